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
	s, err := k.find(ctx, p, id)
	if err != nil {
		return nil, err
	}
	ctx, stop := s.within(ctx)
	defer stop()
	if err := s.await(ctx); err != nil {
		return nil, err
	}
	if err := s.files.take(ctx); err != nil { // whoever looks for new files holds nothing
		return nil, err
	}
	err = k.pause(ctx, s)
	s.files.give()
	if err != nil {
		return nil, err
	}
	return k.Get(ctx, p, id)
}

func (k *Service) pause(ctx context.Context, s *instance) error {
	if err := s.driver.take(ctx); err != nil {
		return err
	}
	defer s.driver.give()
	s.mu.Lock()
	if s.paused != nil && !s.asleep {
		s.mu.Unlock()
		return nil
	}
	if s.paused != nil || s.holds > 0 || s.leaving.Load() {
		s.mu.Unlock()
		return berth.Errorf(berth.CodeConflict, "Container with id '%s' is in use: it can be paused when its calls have ended.", s.id)
	}
	s.paused = make(chan struct{}) // from now on users resume it first
	s.mu.Unlock()
	if err := k.opts.Driver.Pause(ctx, string(s.id)); err != nil {
		s.resumed()
		return &berth.Error{Code: berth.CodeUnavailable, Err: err, Message: "Container with id '" + string(s.id) + "' could not be paused."}
	}
	s.client.Disconnect() // it would find out by itself, later
	return nil
}

// Resume continues a paused container. Any use does.
func (k *Service) Resume(ctx context.Context, p berth.ProjectID, id berth.ContainerID) (*berth.Container, error) {
	_, release, err := k.hold(ctx, p, id)
	if err != nil {
		return nil, err
	}
	release()
	return k.Get(ctx, p, id)
}

// resume continues a sandbox if it is paused.
func (k *Service) resume(ctx context.Context, s *instance) error {
	if err := s.awake(ctx); err != nil {
		return err
	}
	if !s.isPaused() {
		return nil
	}
	ctx, stop := s.within(ctx)
	defer stop()
	if err := s.driver.take(ctx); err != nil {
		return err
	}
	if !s.isPaused() { // somebody else came
		s.driver.give()
		return nil
	}
	err := k.opts.Driver.Resume(ctx, string(s.id))
	if err == nil {
		s.resumed()
	}
	s.driver.give()
	if err == nil {
		return nil
	}
	if k.check(s); s.life.Err() != nil {
		return context.Cause(s.life)
	}
	return &berth.Error{Code: berth.CodeUnavailable, Err: err, Message: "Container with id '" + string(s.id) + "' could not be resumed."}
}

// resumed lets those go on who wait for the sandbox.
func (s *instance) resumed() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.paused)
	s.paused, s.asleep = nil, false
}

// foundPaused is told by the driver, after a restart.
func (s *instance) foundPaused() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.paused == nil {
		s.paused = make(chan struct{})
	}
}

func (s *instance) isPaused() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.paused != nil && !s.asleep
}

// awake returns when the memory of the sandbox is not being written.
func (s *instance) awake(ctx context.Context) error {
	s.mu.Lock()
	asleep := s.asleep
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
	paused := s.paused
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
