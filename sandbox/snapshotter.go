package sandbox

import (
	"context"
	"errors"
	"io"
)

// ErrForeign is returned (wrapped or not) by Restore for a checkpoint of another version of the
// driver or of its programs.
var ErrForeign = errors.New("the memory was written by another version of this driver")

// ErrHung is returned (wrapped or not) by Restore for a sandbox that hangs for a reason other
// than its checkpoint. The caller destroys it and may try another.
var ErrHung = errors.New("the sandbox hangs")

// A Snapshotter is a Driver that can write the state of a sandbox, including its running
// processes, and start other sandboxes from it.
type Snapshotter interface {
	Driver

	// Checkpoint writes the state of a running sandbox at one moment as a tar archive that only
	// this driver can read. The caller has sent the guest to sleep (guest.Client.Sleep), so
	// that it has no connection to the outside. Checkpoint waits until it sleeps, and always
	// wakes it. The sandbox continues afterwards.
	Checkpoint(ctx context.Context, id string, w io.Writer) error

	// Restore replaces Start for a created sandbox whose Spec equals that of the checkpoint's,
	// except for the ID. After an error the sandbox can only be destroyed.
	Restore(ctx context.Context, id string, r io.Reader) error
}
