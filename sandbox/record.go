package sandbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/berth-run/berth/internal/statefile"
)

// RecordFile is the file with a sandbox's record in its directory: what the driver needs to find
// and start it. A record has the field "boot_id", the BootID at creation.
const RecordFile = "sandbox.json"

// ErrGarbled is returned (wrapped) by ReadRecord for a damaged record.
var ErrGarbled = errors.New(RecordFile + " is damaged")

// ReadRecord decodes the record of the sandbox in dir into r. It returns fs.ErrNotExist if there
// is no record.
func ReadRecord(dir string, r any) error {
	raw, err := statefile.ReadFile(filepath.Join(dir, RecordFile))
	if err != nil {
		return err
	}
	if err := json.Unmarshal(raw, r); err != nil {
		return fmt.Errorf("%w: %w", ErrGarbled, err)
	}
	return nil
}

// startedFile marks a sandbox for which Start was called.
const startedFile = "started"

// MarkStarted marks the sandbox in dir as started. It returns fs.ErrExist if it was started
// before.
func MarkStarted(dir string) error {
	f, err := os.OpenFile(filepath.Join(dir, startedFile), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	return f.Close()
}

// StateOnDisk returns the state of the sandbox in dir, which must have no live process: created,
// or dead. bootID is that of this boot. A dead sandbox of this boot has ReasonKilled, which the
// driver may replace.
func StateOnDisk(dir, bootID string) (State, Reason, error) {
	var r struct {
		BootID string `json:"boot_id"`
	}
	err := ReadRecord(dir, &r)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, ErrGarbled):
		return StateDead, ReasonKilled, nil
	case err != nil:
		return "", "", err
	case r.BootID != bootID:
		return StateDead, ReasonHost, nil
	}
	_, err = os.Lstat(filepath.Join(dir, startedFile))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return StateCreated, "", nil
	case err != nil:
		return "", "", err
	}
	return StateDead, ReasonKilled, nil
}
