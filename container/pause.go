package container

import (
	"context"

	"github.com/berth-run/berth"
)

// Pause stops all that runs in a container until its next use, which resumes it; it
// keeps its memory and goes on to expire. A container in use is not paused. What it
// has open towards the network ends. To pause a paused one is no error.
//
// The driver knows what is paused, also after a restart; there is no other record.
func (k *Service) Pause(ctx context.Context, p berth.ProjectID, id berth.ContainerID) (*berth.Container, error) {
	features := k.opts.Driver.Features()
	if !features.Pause {
		return nil, berth.Invalid("", "Containers cannot be paused: this server's driver, %s, cannot.", features.Isolation)
	}
	s, err := k.leases.find(ctx, p, id)
	if err != nil {
		return nil, err
	}
	ctx, stop := s.within(ctx)
	defer stop()
	if err := s.await(ctx); err != nil {
		return nil, err
	}
	if err := s.files.lock.acquire(ctx); err != nil { // whoever looks for new files holds nothing
		return nil, err
	}
	err = k.leases.pause(ctx, s)
	s.files.lock.release()
	if err != nil {
		return nil, err
	}
	return k.Get(ctx, p, id)
}

func (ls *leases) pause(ctx context.Context, s *instance) error {
	if err := s.driver.acquire(ctx); err != nil {
		return err
	}
	defer s.driver.release()
	s.mu.Lock()
	if s.pause.over != nil && !s.pause.checkpointing {
		s.mu.Unlock()
		return nil
	}
	if s.pause.over != nil || s.usage.holds > 0 || s.expiry.running.Load() {
		s.mu.Unlock()
		return berth.Errorf(berth.CodeConflict, "Container with id '%s' is in use: it can be paused when its calls have ended.", s.id)
	}
	s.pause.over = make(chan struct{}) // from now on users resume it first
	s.mu.Unlock()
	if err := ls.opts.Driver.Pause(ctx, string(s.id)); err != nil {
		s.resumed()
		return &berth.Error{Code: berth.CodeUnavailable, Err: err, Message: "Container with id '" + string(s.id) + "' could not be paused."}
	}
	s.client.Disconnect() // it would find out by itself, later
	return nil
}

// Resume continues a paused container. Any use does.
func (k *Service) Resume(ctx context.Context, p berth.ProjectID, id berth.ContainerID) (*berth.Container, error) {
	_, release, err := k.leases.hold(ctx, p, id)
	if err != nil {
		return nil, err
	}
	release()
	return k.Get(ctx, p, id)
}

// resume continues a sandbox if it is paused.
func (ls *leases) resume(ctx context.Context, s *instance) error {
	if err := s.awake(ctx); err != nil {
		return err
	}
	if !s.isPaused() {
		return nil
	}
	ctx, stop := s.within(ctx)
	defer stop()
	if err := s.driver.acquire(ctx); err != nil {
		return err
	}
	if !s.isPaused() { // somebody else came
		s.driver.release()
		return nil
	}
	err := ls.opts.Driver.Resume(ctx, string(s.id))
	if err == nil {
		s.resumed()
	}
	s.driver.release()
	if err == nil {
		return nil
	}
	if ls.deaths.check(s); s.life.Err() != nil {
		return context.Cause(s.life)
	}
	return &berth.Error{Code: berth.CodeUnavailable, Err: err, Message: "Container with id '" + string(s.id) + "' could not be resumed."}
}

// resumed lets those go on who wait for the sandbox.
func (s *instance) resumed() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.pause.over)
	s.pause.over, s.pause.checkpointing = nil, false
}

// foundPaused is told by the driver, after a restart.
func (s *instance) foundPaused() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pause.over == nil {
		s.pause.over = make(chan struct{})
	}
}

func (s *instance) isPaused() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pause.over != nil && !s.pause.checkpointing
}

// awake returns when the memory of the sandbox is not being written.
func (s *instance) awake(ctx context.Context) error {
	s.mu.Lock()
	asleep := s.pause.checkpointing
	s.mu.Unlock()
	if !asleep {
		return nil
	}
	ctx, stop := s.within(ctx)
	defer stop()
	return s.unpaused(ctx)
}

// unpaused returns when the sandbox is not paused.
func (s *instance) unpaused(ctx context.Context) error {
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

// await returns when the sandbox has been started.
func (s *instance) await(ctx context.Context) error {
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
