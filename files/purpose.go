package files

import (
	"fmt"
	"path"
	"strings"

	"github.com/berth-run/berth"
)

// The purposes of files, which are OpenAI's.
const (
	PurposeBatch    = "batch"
	purposeFineTune = "fine-tune"

	// Of files that the server makes.
	PurposeBatchOutput      = "batch_output"
	PurposeAssistantsOutput = "assistants_output"
)

// Purposes are the values of "purpose" that a client may send.
var Purposes = []string{"assistants", PurposeBatch, purposeFineTune, "vision", "user_data", "evals"}

const (
	// MaxBatchBytes is the size limit of a file with the purpose batch.
	MaxBatchBytes = 200 << 20
	// batchExpiry is the default lifetime of such a file in seconds.
	batchExpiry = 30 * 24 * 60 * 60
)

// Check returns an error for the client if a file of this purpose may not have the name or the
// size.
func Check(purpose, filename string, bytes int64) error {
	lines := strings.EqualFold(path.Ext(filename), ".jsonl")
	switch {
	case purpose == PurposeBatch && !lines:
		return berth.Invalid("file", "Invalid file format for Batch API. Must be .jsonl")
	case purpose == purposeFineTune && !lines:
		return berth.Invalid("file", "Invalid file format for Fine-Tuning API. Must be .jsonl")
	case purpose == PurposeBatch && bytes > MaxBatchBytes:
		return &berth.Error{Code: berth.CodeTooLarge, Param: "file",
			Message: fmt.Sprintf(
				"The file is larger than the limit of %d bytes of files with the purpose 'batch'. Split it into several batches.",
				MaxBatchBytes)}
	}
	return nil
}
