package sandbox

import (
	"context"
	"errors"
	"io"
)

// ErrForeign is returned (wrapped or not) by Restore for what another version of the
// driver or of its programs has written.
var ErrForeign = errors.New("the memory was written by another version of this driver")

// ErrHung is returned (wrapped or not) by Restore for a sandbox that does not come to
// run, though nothing is wrong with it. It is to be destroyed; another may run.
var ErrHung = errors.New("the sandbox hangs")

// A Snapshotter is a Driver that can write all that a sandbox is to a file, with
// its running processes, and start others from that.
type Snapshotter interface {
	Driver

	// Checkpoint writes a running sandbox as it is at one moment, as a tar archive
	// that means something to this driver only. The guest has been told to sleep
	// (guest.Client.Sleep), so that nothing of it is outside; Checkpoint waits
	// until it does and wakes it, whatever happens. The sandbox goes on when the
	// moment is over.
	Checkpoint(ctx context.Context, id string, w io.Writer) error

	// Restore takes the place of Start for a created sandbox, whose Spec but for the
	// ID has to be that of the one that was written. After an error the sandbox is
	// good for Destroy only.
	Restore(ctx context.Context, id string, r io.Reader) error
}
