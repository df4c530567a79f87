package container

import (
	"context"
	"errors"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
)

// A pauser pauses sandboxes and resumes them.
type pauser struct {
	opts   *Options
	work   *workers
	deaths *deaths
	meter  *meter
}

func (pa *pauser) pause(ctx context.Context, s *instance) error {
	if err := s.driver.acquire(ctx); err != nil {
		return err
	}
	defer s.driver.release()
	s.mu.Lock()
	if s.pause.over != nil && !s.pause.checkpointing {
		slept := s.quiet.asleep.Swap(false)
		s.mu.Unlock()
		if slept {
			s.client.Disconnect()
		}
		return nil
	}
	if s.pause.over != nil || s.usage.holds > 0 || s.expiry.running.Load() {
		s.mu.Unlock()
		return berth.Errorf(berth.CodeConflict,
			"Container with id '%s' is in use: it can be paused once its calls have ended.", s.id)
	}
	s.pause.over = make(chan struct{}) // from here on users resume it first
	s.mu.Unlock()
	if err := pa.opts.Driver.Pause(ctx, string(s.id)); err != nil {
		s.markResumed(pa.opts.clock.Now())
		s.mu.Lock()
		dying := s.dyingLocked()
		s.mu.Unlock()
		if dying { // its end is being saved and becomes the error
			select {
			case <-s.life.Done():
				return context.Cause(s.life)
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		return &berth.Error{Code: berth.CodeUnavailable, Err: err, Message: "Container with id '" + string(s.id) +
			"' could not be paused."}
	}
	s.client.Disconnect() // the connection would end only later otherwise
	return nil
}

// resume continues a sandbox if it is paused.
func (pa *pauser) resume(ctx context.Context, s *instance) error {
	if err := s.waitCheckpoint(ctx); err != nil {
		return err
	}
	if !s.isPaused() {
		return nil
	}
	ctx, stop := s.withLife(ctx)
	defer stop()
	if err := s.driver.acquire(ctx); err != nil {
		return err
	}
	if !s.isPaused() { // another caller resumed it
		s.driver.release()
		return nil
	}
	err := pa.opts.Driver.Resume(ctx, string(s.id))
	if err == nil {
		s.markResumed(pa.opts.clock.Now())
	}
	s.driver.release()
	if err == nil {
		pa.savePaused(ctx, s, false)
		return nil
	}
	if pa.deaths.check(s); s.life.Err() != nil {
		return context.Cause(s.life)
	}
	return &berth.Error{Code: berth.CodeUnavailable, Err: err, Message: "Container with id '" + string(s.id) +
		"' could not be resumed."}
}

// savePaused saves whether a client paused the sandbox. If that fails, a server that starts while
// it is paused takes it for one that sleeps, or the reverse; both wake at their next use.
func (pa *pauser) savePaused(ctx context.Context, s *instance, paused bool) {
	s.mu.Lock()
	was := s.pause.saved
	s.pause.saved = paused
	s.mu.Unlock()
	if was == paused {
		return
	}
	_, err := pa.opts.Store.UpdateContainer(context.WithoutCancel(ctx), s.project, s.id,
		func(c *berth.Container) error {
			if c.Status != berth.ContainerRunning || c.Berth.Paused == paused {
				return errUnchanged
			}
			c.Berth.Paused = paused
			return nil
		})
	if err != nil && !errors.Is(err, errUnchanged) && !errors.Is(err, store.ErrNotFound) {
		pa.opts.Log.Error("failed to save whether a container is paused", "container", s.id, "paused", paused, "err",
			err)
	}
}

// markResumed wakes the callers that wait for the sandbox.
func (s *instance) markResumed(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.resumedLocked(now)
}

func (s *instance) resumedLocked(now time.Time) {
	close(s.pause.over)
	s.pause.over, s.pause.checkpointing = nil, false
	s.quiet.asleep.Store(false)
	s.awakeLocked(now)
}

// markPaused records that the driver reports the sandbox as paused, after a restart. Unless a
// client paused it, it sleeps.
func (s *instance) markPaused() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pause.over == nil {
		s.pause.over = make(chan struct{})
		s.pause.saved = s.body.Berth.Paused
		s.quiet.asleep.Store(!s.body.Berth.Paused)
	}
}

func (s *instance) isPaused() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pause.over != nil && !s.pause.checkpointing
}

// waitCheckpoint returns when the memory of the sandbox is not being written.
func (s *instance) waitCheckpoint(ctx context.Context) error {
	s.mu.Lock()
	asleep := s.pause.checkpointing
	s.mu.Unlock()
	if !asleep {
		return nil
	}
	ctx, stop := s.withLife(ctx)
	defer stop()
	return s.waitResumed(ctx)
}

// waitResumed returns when the sandbox is not paused.
func (s *instance) waitResumed(ctx context.Context) error {
	s.mu.Lock()
	paused := s.pause.over
	s.mu.Unlock()
	if paused == nil {
		return nil
	}
	select {
	case <-paused:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// waitStarted returns when the sandbox has been started.
func (s *instance) waitStarted(ctx context.Context) error {
	select {
	case <-s.started:
	case <-s.life.Done():
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if s.life.Err() != nil {
		return context.Cause(s.life)
	}
	return nil
}

// mayLocked reports whether the sandbox may sleep as far as its users and its frames are
// concerned.
func (s *instance) mayLocked() bool {
	q := &s.quiet
	return q.sending.Load() == 0 && q.frames.Load() == q.counted && s.usage.holds == 0 && !s.dyingLocked() &&
		!s.expiry.running.Load()
}

// awakeLocked records that the sandbox is not quiet.
func (s *instance) awakeLocked(now time.Time) {
	q := &s.quiet
	q.counted, q.since, q.sampled = q.frames.Load(), now, time.Time{}
}
