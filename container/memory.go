package container

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/internal/seal"
	"github.com/berth-run/berth/sandbox"
)

// sleepTimeout bounds the guest's answer to Sleep.
const sleepTimeout = 10 * time.Second

// A memoryOpener opens the memory that a sandbox is restored from. nil means that there is none.
type memoryOpener func(context.Context) (io.ReadCloser, error)

// memoryOf returns the memory of a plan.
func (sn *Snapshots) memoryOf(s *instance, pl *plan) memoryOpener {
	switch {
	case !pl.withMemory():
		return nil
	case pl.copies != nil:
		return func(ctx context.Context) (io.ReadCloser, error) { return sn.copyMemory(ctx, pl.copies), nil }
	}
	return func(ctx context.Context) (io.ReadCloser, error) {
		return sn.opts.Snapshots.Open(ctx, s.project, pl.from)
	}
}

// driver returns the driver as a Snapshotter, or an error for the client if it is not one.
func (sn *Snapshots) driver(param string) (sandbox.Snapshotter, error) {
	d, ok := sn.opts.Driver.(sandbox.Snapshotter)
	if !ok {
		return nil, berth.Invalid(param,
			"Snapshots on this server cannot include memory: its driver, %s, does not support it.",
			sn.opts.Driver.Features().Isolation)
	}
	return d, nil
}

// checkpoint writes the state of a sandbox, including its memory. The caller must be the
// only user: connections into the sandbox end, and new users wait.
func (sn *Snapshots) checkpoint(ctx context.Context, s *instance, w io.Writer) error {
	d, err := sn.driver("memory")
	if err != nil {
		return err
	}
	if len(s.body.Berth.Volumes) > 0 {
		return berth.Invalid("memory", "The memory of a container with volumes cannot be saved.")
	}
	if err := s.files.lock.acquire(ctx); err != nil { // a scan for new files does not hold the container
		return err
	}
	defer s.files.lock.release()
	// The ping uses the existing connection, because new ones wait from here on.
	if err := s.client.Ping(ctx); err != nil {
		return err
	}
	s.mu.Lock()
	busy := s.pause.over != nil || s.usage.holds > 1 || s.expiry.running.Load()
	if !busy {
		s.pause.over, s.pause.checkpointing = make(chan struct{}), true
	}
	s.mu.Unlock()
	if busy {
		return berth.Errorf(berth.CodeConflict,
			"Container with id '%s' is in use: its memory can be saved once its calls have ended.", s.id)
	}
	defer func() { s.markResumed(sn.opts.clock.Now()) }()
	asleep, cancel := sn.opts.clock.WithTimeout(ctx, sleepTimeout)
	defer cancel()
	if err := s.client.Sleep(asleep); err != nil {
		return err
	}
	if err := s.driver.acquire(ctx); err != nil {
		return err // the guest wakes up by itself
	}
	defer s.driver.release()
	if err := d.Checkpoint(ctx, string(s.id), w); err != nil {
		return checkpointError{err}
	}
	return nil
}

// A checkpointError is an error of the driver, or of the checkpoint's writer.
type checkpointError struct{ error }

func (e checkpointError) Unwrap() error { return e.error }

// A counter counts written bytes.
type counter struct {
	w io.Writer
	n int64
}

func (c *counter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	return n, err
}

// copyMemory returns the memory of the source, which is written while it is read.
func (sn *Snapshots) copyMemory(ctx context.Context, c *contentCopy) io.ReadCloser {
	ctx, done := c.bind(ctx)
	return c.open(func(w io.Writer) error {
		defer done()
		if c.shared != nil {
			return writeSpool(w, c.shared)
		}
		return sn.writeMemory(ctx, c.from, w)
	})
}

// writeMemory writes the memory of the source.
func (sn *Snapshots) writeMemory(ctx context.Context, from *instance, w io.Writer) error {
	if err := sn.slots.acquire(ctx); err != nil {
		return err
	}
	defer sn.slots.release()
	began := sn.opts.clock.Now()
	if err := sn.checkpoint(ctx, from, w); err != nil {
		return fmt.Errorf("copy memory: %w", err)
	}
	sn.opts.Log.Debug("memory copied", "container", from.id, "took", sn.opts.clock.Since(began))
	return nil
}

// share reads the content of the source once, for several forks. The caller closes the spool.
func (sn *Snapshots) share(ctx context.Context, c *contentCopy) (*seal.Spool, error) {
	if err := sn.opts.Disk.Room(); err != nil {
		return nil, err
	}
	spool, err := seal.NewSpool(sn.opts.SpoolDir)
	if err != nil {
		return nil, fmt.Errorf("make a file for the content of forks: %w", err)
	}
	if c.memory {
		err = sn.writeMemory(ctx, c.from, spool)
	} else {
		var t Template
		if t, err = sn.opts.Template(c.from.body.Berth.Template); err == nil {
			err = sn.writeFiles(ctx, c.from, t.Path, spool)
		}
	}
	if err == nil {
		_, err = spool.Content()
	}
	if err != nil {
		return nil, errors.Join(err, spool.Close())
	}
	return spool, nil
}

// writeSpool writes the content of a spool that other goroutines read, too.
func writeSpool(w io.Writer, spool *seal.Spool) error {
	content, err := spool.Content()
	if err == nil {
		_, err = io.Copy(w, content)
	}
	return err
}
