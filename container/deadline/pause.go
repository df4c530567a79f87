package deadline

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
)

// discardTimeout bounds the deletion of a container whose sandbox could not be saved.
const discardTimeout = time.Minute

// maxPauseTries is how often a pause is tried again because clients connect to the sandbox before it ends.
const maxPauseTries = 20

// Pause pauses a sandbox. It remains until a client resumes or deletes it, or its container
// expires. Connections to it end, while their processes stay; a call of a response that runs in it is a conflict.
// The caller has the sandbox's turn.
//
// With FilesOnly, Resume starts the sandbox anew with its files.
func (d *Records) Pause(ctx context.Context, p berth.ProjectID, id berth.ContainerID, keep Kept) error {
	for try := 0; ; try++ {
		ended, err := d.connections.end(ctx, id)
		if err != nil {
			return err
		}
		_, err = d.Containers.Pause(ctx, p, id)
		if err == nil {
			break
		}
		if berth.ErrorCode(err) != berth.CodeConflict || ended == 0 || try == maxPauseTries {
			return err
		}
	}
	_, err := d.Update(ctx, p, id, func(rec *Record) error {
		if !rec.Paused {
			d.emit(p, id, rec, berth.EventSandboxPaused, nil)
		}
		rec.Paused, rec.FilesOnly, rec.Deadline = true, keep == FilesOnly, never
		return nil
	})
	return err
}

// What a sandbox keeps while it is paused.
const (
	Memory    Kept = iota // all of it
	FilesOnly             // its files, without processes
)

// Kept is what a sandbox keeps while it is paused.
type Kept int

// Resume resumes a container of a sandbox that is paused. SetResumed must follow in its record, in the same turn.
func (d *Records) Resume(ctx context.Context, p berth.ProjectID, id berth.ContainerID, rec *Record) error {
	if rec.FilesOnly {
		return d.Containers.Reboot(ctx, p, id, rec.Env)
	}
	_, err := d.Containers.Resume(ctx, p, id)
	return err
}

// IfPaused returns the record of a sandbox if it is paused, and otherwise nil. It reads the store only if the sandbox
// is paused as far as this server knows.
func (d *Records) IfPaused(ctx context.Context, p berth.ProjectID, id berth.ContainerID) (*Record, error) {
	if !d.paused(id) {
		return nil, nil
	}
	o, err := d.Objects.GetObject(ctx, p, keyOf(id))
	if errors.Is(err, store.ErrNotFound) {
		return nil, notFound(id)
	}
	if err != nil {
		return nil, fmt.Errorf("read sandbox: %w", err)
	}
	rec, err := decode(o)
	if err != nil || !rec.Paused {
		return nil, err
	}
	return rec, nil
}

// Discard deletes a container that no client knows.
func (d *Records) Discard(p berth.ProjectID, id berth.ContainerID) {
	ctx, cancel := d.Clock.WithTimeout(context.Background(), discardTimeout)
	defer cancel()
	if err := d.Containers.Delete(ctx, p, id); err != nil {
		d.Log.Error("failed to delete the container of a sandbox that could not be saved", "container", id, "err", err)
	}
}
