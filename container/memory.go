package container

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/container/snapshot"
	"github.com/berth-run/berth/layer"
	"github.com/berth-run/berth/sandbox"
)

// sleepTime bounds the guest's answer to being sent to sleep.
const sleepTime = 10 * time.Second

// keepsMemory returns an error for the client if the driver cannot write memory.
func (sn *snapshots) driver(param string) (sandbox.Snapshotter, error) {
	d, ok := sn.opts.Driver.(sandbox.Snapshotter)
	if !ok {
		return nil, berth.Invalid(param, "Snapshots of this server have no memory: its driver, %s, cannot keep it.", sn.opts.Driver.Features().Isolation)
	}
	return d, nil
}

// checkpoint writes all that a sandbox is, with what runs in it. Nobody but the
// caller may use the sandbox: connections into it end, and those who come wait.
func (sn *snapshots) checkpoint(ctx context.Context, s *instance, w io.Writer) (layer.Made, error) {
	d, err := sn.driver("memory")
	if err != nil {
		return layer.Made{}, err
	}
	if len(s.body.Berth.Volumes) > 0 {
		return layer.Made{}, berth.Invalid("memory", "The memory of a container with volumes cannot be kept.")
	}
	if err := s.files.lock.acquire(ctx); err != nil { // whoever looks for new files holds nothing
		return layer.Made{}, err
	}
	defer s.files.lock.release()
	// Over the connection that there is, because nobody may make one from then on.
	if err := s.client.Ping(ctx); err != nil {
		return layer.Made{}, err
	}
	s.mu.Lock()
	busy := s.pause.over != nil || s.usage.holds > 1 || s.expiry.running.Load()
	if !busy {
		s.pause.over, s.pause.checkpointing = make(chan struct{}), true
	}
	s.mu.Unlock()
	if busy {
		return layer.Made{}, berth.Errorf(berth.CodeConflict, "Container with id '%s' is in use: its memory can be kept when its calls have ended.", s.id)
	}
	defer s.resumed()
	asleep, cancel := context.WithTimeout(ctx, sleepTime)
	defer cancel()
	if err := s.client.Sleep(asleep); err != nil {
		return layer.Made{}, err
	}
	if err := s.driver.acquire(ctx); err != nil {
		return layer.Made{}, err // the guest wakes by itself
	}
	defer s.driver.release()
	sum := sha256.New()
	counted := &counter{w: io.MultiWriter(w, sum)}
	if err := d.Checkpoint(ctx, string(s.id), counted); err != nil {
		return layer.Made{}, checkpointError{err}
	}
	return layer.Made{Digest: "sha256:" + hex.EncodeToString(sum.Sum(nil)), Bytes: counted.n}, nil
}

// A checkpointError is the driver's, or that of what its checkpoint is written to.
type checkpointError struct{ error }

func (e checkpointError) Unwrap() error { return e.error }

// A counter counts what is written.
type counter struct {
	w io.Writer
	n int64
}

func (c *counter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	return n, err
}

// memory returns what the sandbox of a plan is restored from, with what ran; nil if
// it is started.
func (pl *plan) memory() *snapshot.Record {
	if pl.from == nil || !pl.from.Snapshot.Memory {
		return nil
	}
	return pl.from
}

// checkMemory checks that a plan can be restored from memory, and gives its
// container the memory limit that this takes.
func (pn *planner) checkMemory(pl *plan, asked string) error {
	r := pl.memory()
	if r == nil {
		return nil
	}
	if _, err := pn.snapshots.driver("berth.snapshot_id"); err != nil {
		return err
	}
	if len(pl.body.Berth.Volumes) > 0 {
		return berth.Invalid("berth.volumes", "A container that starts from the memory of another cannot have volumes.")
	}
	if have := pn.opts.Driver.Features().Isolation; r.Isolation != have {
		return berth.Invalid("berth.snapshot_id", "Snapshot '%s' has the memory of a sandbox of %s, which %s cannot restore.", r.Snapshot.ID, r.Isolation, have)
	}
	if asked != "" && asked != r.Snapshot.MemoryLimit {
		return berth.Invalid("memory_limit", "Invalid value: '%s'. A container that starts from the memory of another has its limit, '%s'.", asked, r.Snapshot.MemoryLimit)
	}
	pl.body.MemoryLimit = r.Snapshot.MemoryLimit
	return nil
}

// startFrom starts a created sandbox, from memory if there is one.
func (st *starter) startFrom(ctx context.Context, s *instance, memory *snapshot.Record) error {
	if memory == nil {
		if err := st.opts.Driver.Start(ctx, string(s.id)); err != nil {
			return stepError{"its sandbox did not start", err}
		}
		return nil
	}
	d, err := st.snapshots.driver("")
	if err != nil {
		return err
	}
	content, err := st.opts.Snapshots.Open(ctx, s.project, memory)
	if err != nil {
		return stepError{"its snapshot could not be read", err}
	}
	defer content.Close()
	err = d.Restore(ctx, string(s.id), content)
	if errors.Is(err, sandbox.ErrForeign) {
		return stepError{"its memory was kept by another version of this server", err}
	}
	if err != nil {
		return stepError{"its memory could not be restored", err}
	}
	return nil
}
