package container

import (
	"context"
	"slices"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/sandbox"
)

// Reboot ends all processes of a container and starts its sandbox anew, with the same files, network and volumes. env
// is the environment of its commands. Calls wait until the sandbox runs again. If the server dies during the start, the
// next one repeats it, with the files as they were.
func (svc *Service) Reboot(ctx context.Context, p berth.ProjectID, id berth.ContainerID, env []string) error {
	s, ctx, release, err := svc.leases.use(ctx, p, id)
	if err != nil {
		return err
	}
	defer release()
	t, err := svc.opts.Template(s.body.Berth.Template)
	if err != nil {
		return asUnavailable(err, "The template that the container started from is gone.")
	}
	expires := svc.opts.clock.Now().Add(restartSnapshotLife).Unix()
	made, err := svc.snapshots.make(ctx, s, &berth.Snapshot{Name: s.body.Name, Cause: berth.SnapshotExpired,
		ExpiresAt: &expires})
	if err != nil {
		return err
	}
	from, err := svc.snapshots.get(ctx, p, made.ID)
	if err != nil {
		return err
	}
	if err := svc.starter.reboot(ctx, s, &plan{requestedAt: svc.opts.clock.Now(), body: &s.body, template: t.Template,
		env: slices.Concat(t.Env, env), requestEnv: env, from: from}); err != nil {
		return err // the next server may need the snapshot; it expires
	}
	svc.snapshots.discard(p, made.ID)
	return nil
}

// reboot replaces the sandbox of a container by one with the files of a snapshot.
func (st *starter) reboot(ctx context.Context, s *instance, pl *plan) error {
	if err := st.slots.acquire(ctx); err != nil {
		return err
	}
	defer st.slots.release()
	if !beginReboot(s) {
		return berth.Errorf(berth.CodeConflict,
			"Container with id '%s' is in use: it can start anew once its calls have ended.", s.id)
	}
	defer endReboot(s)
	if err := st.saveStarting(ctx, s, pl); err != nil {
		return err
	}
	// From here on the container has no other state than the snapshot's, whatever becomes of the request.
	ctx, cancel := st.opts.clock.WithTimeout(context.WithoutCancel(ctx), startTimeout)
	defer cancel()
	ctx, stop := s.withLife(ctx)
	defer stop()
	switch err := st.replace(ctx, s, pl); {
	case err == nil:
	case s.life.Err() != nil: // it was deleted, or the server stops and the next one repeats the start
		return context.Cause(s.life)
	default:
		failed := startError(s.id, err)
		st.deaths.end(s, reasonHost, failed, err, nil)
		return failed
	}
	_, err := st.opts.Store.UpdateContainer(ctx, s.project, s.id, func(c *berth.Container) error {
		c.Berth.Starting = false
		return nil
	})
	if err != nil {
		return err
	}
	return st.records.delete(ctx, s)
}

// replace destroys the sandbox of a container, starts another one, and fills it.
func (st *starter) replace(ctx context.Context, s *instance, pl *plan) error {
	spec := st.spec(pl.body, pl.template)
	var err error
	if spec.Mounts, err = st.volumes.open(ctx, s); err != nil {
		return stepError{"its volumes could not be mounted", err}
	}
	if err := st.renew(ctx, s, spec); err != nil {
		return err
	}
	for _, step := range []struct {
		do      func() error
		failing string
	}{
		{func() error { _, err := s.workingDir(ctx); return err }, "its guest did not answer"},
		{func() error { return st.snapshots.restore(ctx, s, pl) }, "its snapshot could not be restored"},
		{func() error { return st.volumes.link(ctx, st.snapshots, s) }, "the links to its volumes could not be made"},
		{func() error { return s.setEnvironment(ctx, pl.env) }, "its environment could not be set"},
	} {
		if err := step.do(); err != nil {
			return stepError{step.failing, err}
		}
	}
	return nil
}

// renew destroys a sandbox and starts another one, in one turn at the driver, so that nobody finds the container
// without a sandbox.
func (st *starter) renew(ctx context.Context, s *instance, spec sandbox.Spec) error {
	if err := s.driver.acquire(ctx); err != nil {
		return err
	}
	defer s.driver.release()
	if err := ctx.Err(); err != nil {
		return err // nobody would remove another sandbox of a container that has ended
	}
	if err := st.deaths.destroy(ctx, s); err != nil {
		return stepError{"its sandbox could not be removed", err}
	}
	s.client.Disconnect()
	s.mu.Lock()
	s.files.workDir = ""
	s.mu.Unlock()
	return st.makeHeld(ctx, s, spec, nil)
}

// saveStarting saves what a server needs that repeats the start.
func (st *starter) saveStarting(ctx context.Context, s *instance, pl *plan) error {
	record, err := st.records.object(s, pl)
	if err != nil {
		return err
	}
	if err := st.records.delete(ctx, s); err != nil {
		return err
	}
	if err := st.opts.Store.CreateObjects(ctx, s.project, record); err != nil {
		return err
	}
	_, err = st.opts.Store.UpdateContainer(ctx, s.project, s.id, func(c *berth.Container) error {
		if c.Status != berth.ContainerRunning {
			return goneError(c, c.Berth.Reason)
		}
		c.Berth.Starting = true
		return nil
	})
	return err
}

// beginReboot makes new users wait until endReboot, and reports false if the container has users beside the caller.
func beginReboot(s *instance) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.usage.holds > 1 || s.reboot != nil || s.pause.over != nil || s.dyingLocked() || s.expiry.running.Load() {
		return false
	}
	s.reboot = make(chan struct{})
	return true
}

func endReboot(s *instance) {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.reboot)
	s.reboot = nil
}

// waitRebooted returns when the sandbox does not start anew.
func waitRebooted(ctx context.Context, s *instance) error {
	s.mu.Lock()
	over := s.reboot
	s.mu.Unlock()
	if over == nil {
		return nil
	}
	select {
	case <-over:
	case <-s.life.Done():
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if s.life.Err() != nil {
		return context.Cause(s.life)
	}
	return nil
}
