package berth

// A Batch runs the requests of a file.
type Batch struct {
	ID               BatchID            `json:"id"`
	Object           string             `json:"object"` // "batch"
	Endpoint         string             `json:"endpoint"`
	Model            *string            `json:"model"` // of its requests; null before the validation
	Errors           *BatchErrors       `json:"errors"`
	InputFileID      FileID             `json:"input_file_id"`
	CompletionWindow string             `json:"completion_window"` // "24h"
	Status           BatchStatus        `json:"status"`
	OutputFileID     *FileID            `json:"output_file_id"`
	ErrorFileID      *FileID            `json:"error_file_id"`
	CreatedAt        int64              `json:"created_at"`
	InProgressAt     *int64             `json:"in_progress_at"`
	ExpiresAt        int64              `json:"expires_at"`
	FinalizingAt     *int64             `json:"finalizing_at"`
	CompletedAt      *int64             `json:"completed_at"`
	FailedAt         *int64             `json:"failed_at"`
	ExpiredAt        *int64             `json:"expired_at"`
	CancellingAt     *int64             `json:"cancelling_at"`
	CancelledAt      *int64             `json:"cancelled_at"`
	RequestCounts    BatchRequestCounts `json:"request_counts"`
	Usage            *Usage             `json:"usage"`
	Metadata         map[string]string  `json:"metadata"`
	Berth            *BatchBerth        `json:"berth,omitempty"`
}

// A BatchBerth extends a batch with facts about this server.
type BatchBerth struct {
	// WaitingFor is why requests of the batch wait to run again, in the words of the refusal; empty
	// if none waits.
	WaitingFor string `json:"waiting_for"`
}

// A BatchStatus is the status of a batch.
type BatchStatus string

// The statuses of a batch. A batch that is completed, failed, expired or cancelled has ended.
const (
	BatchValidating BatchStatus = "validating"
	BatchInProgress BatchStatus = "in_progress"
	BatchFinalizing BatchStatus = "finalizing"
	BatchCompleted  BatchStatus = "completed"
	BatchFailed     BatchStatus = "failed"
	BatchExpired    BatchStatus = "expired"
	BatchCancelling BatchStatus = "cancelling"
	BatchCancelled  BatchStatus = "cancelled"
)

// BatchRequestCounts are the numbers of requests of a batch.
type BatchRequestCounts struct {
	Total     int `json:"total"`
	Completed int `json:"completed"`
	Failed    int `json:"failed"`
}

// BatchErrors are the errors of a batch that failed.
type BatchErrors struct {
	Object string       `json:"object"` // "list"
	Data   []BatchError `json:"data"`
}

// A BatchError is an error in the input file of a batch.
type BatchError struct {
	Code    string  `json:"code"`
	Message string  `json:"message"`
	Param   *string `json:"param"`
	Line    *int    `json:"line"` // counted from 1
}
