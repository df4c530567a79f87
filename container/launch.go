package container

import (
	"context"
	"errors"
	"io/fs"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/internal/backoff"
	"github.com/berth-run/berth/internal/clock"
	"github.com/berth-run/berth/sandbox"
	"github.com/berth-run/berth/store"
)

const (
	startTimeout = 5 * time.Minute // preparing a sandbox, including the wait for a slot and the copying of files
)

// starter starts the sandboxes of containers.
type starter struct {
	opts      *Options
	work      *workers
	deaths    *deaths
	networks  *networks
	records   *startRecords
	volumes   *volumes
	files     *Files
	snapshots *Snapshots
	slots     slots // sandboxes started concurrently
}

// launch starts the sandbox of a new container. If the start fails, the container ends,
// unless the server is stopping: then the next server repeats the start.
func (st *starter) launch(s *instance, pl *plan) {
	how, err := st.start(s.life, s, pl)
	switch {
	case err != nil && st.work.life.Err() != nil:
		<-s.life.Done() // ends a moment after its parent; who waits must not see a live container
		close(s.started)
		return
	case err != nil:
		how = StartFailed
		st.discardSkills(s.project, pl)
		st.fail(s, err)
	default:
		if pl.restarted {
			s.touch(st.opts.clock.Now()) // it could not be used until now
		}
		close(s.started)
		st.discardSkills(s.project, pl)
	}
	st.opts.Observer.Started(how, st.opts.clock.Since(pl.requestedAt))
	traceStart(s, pl, how)
}

// start executes a plan. It returns how the sandbox was started.
//
// If the server dies during a step, all steps are repeated with another sandbox. The processes
// of a sandbox restored from memory run immediately, and data that they send cannot be undone. They
// are therefore connected only after the step that prevents a repetition.
func (st *starter) start(ctx context.Context, s *instance, pl *plan) (how string, err error) {
	how = StartMemory
	if !pl.networkOnly {
		err := st.whenRoom(s, func() (err error) {
			ctx, cancel := st.opts.clock.WithTimeout(ctx, startTimeout)
			defer cancel()
			how, err = st.fill(ctx, s, pl)
			pl.restarted = pl.restarted || err != nil // the next attempt removes the sandbox first
			return err
		})
		if err != nil {
			return "", err
		}
	}
	connect := func() error {
		ctx, cancel := st.opts.clock.WithTimeout(ctx, guestTimeout)
		defer cancel()
		if err := st.networks.connect(ctx, s); err != nil {
			return stepError{"its network could not be connected", err}
		}
		return nil
	}
	save := func() error {
		_, err := st.opts.Store.UpdateContainer(ctx, s.project, s.id, func(c *berth.Container) error {
			c.Berth.Starting, c.Berth.Start = false, pl.started(how, st.opts.clock.Now())
			return nil
		})
		if err != nil {
			return stepError{"its state could not be saved", err}
		}
		return nil
	}
	steps := []func() error{connect, save}
	if how == StartMemory {
		steps = []func() error{save, connect, func() error { return st.records.delete(ctx, s) }}
	}
	for _, step := range steps {
		if err := st.whenRoom(s, step); err != nil {
			return "", err
		}
	}
	return how, nil
}

// whenRoom calls step until it succeeds, or fails for another reason than a full volume, or
// the container ends. A full volume is no reason to end a container that has not started: no
// command was sent to it, and it starts as soon as there is room.
func (st *starter) whenRoom(s *instance, step func() error) error {
	delays := backoff.Delays{First: 100 * time.Millisecond, Max: 5 * time.Second}
	for logged := false; ; logged = true {
		err := step()
		if err == nil || !st.lacksRoom(err) || s.life.Err() != nil {
			return err
		}
		if !logged {
			st.opts.Log.Warn("volume is full; container start waits", "container", s.id, "project", s.project, "err",
				err)
		}
		if clock.Sleep(s.life, s.clock, delays.Next()) != nil {
			return err
		}
	}
}

// lacksRoom reports whether a step of a start failed because the volume of the state directory
// is full. Programs that a driver runs report it in words only, so any failure counts while
// there is no room.
func (st *starter) lacksRoom(err error) bool {
	return errors.Is(err, store.ErrStorage) || errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) ||
		st.opts.Disk.Room() != nil
}

// fill prepares the sandbox with its volumes, snapshot, environment and files.
func (st *starter) fill(ctx context.Context, s *instance, pl *plan) (how string, err error) {
	if pl.restarted {
		if err := st.unmake(ctx, s); err != nil {
			return "", stepError{"the remains of an interrupted start could not be removed", err}
		}
	}
	spec := st.spec(pl.body, pl.template)
	if spec.Mounts, err = st.volumes.open(ctx, s); err != nil {
		return "", stepError{"its volumes could not be mounted", err}
	}
	if how, err = st.wake(ctx, s, spec, st.snapshots.memoryOf(s, pl)); err != nil {
		return "", err
	}
	for _, step := range []struct {
		do      func() error
		failing string
	}{
		{func() error { return st.snapshots.restore(ctx, s, pl) }, "its snapshot could not be restored"},
		{func() error { return st.volumes.link(ctx, st.snapshots, s) }, "the links to its volumes could not be made"},
		{func() error { return s.setEnvironment(ctx, pl.env) }, "its environment could not be set"},
		{func() error { return st.files.add(ctx, s, pl.files) }, "its files could not be copied in"},
		{func() error { return st.installSkills(ctx, s, pl.skills) }, "its skills could not be copied in"},
	} {
		if err := step.do(); err != nil {
			return "", stepError{step.failing, err}
		}
	}
	return how, nil
}

// wake returns when the sandbox's guest has answered. It replaces a sandbox from the pool whose
// guest does not answer.
func (st *starter) wake(ctx context.Context, s *instance, spec sandbox.Spec, memory memoryOpener) (how string,
	err error) {
	switch {
	case memory != nil:
		return StartMemory, st.boot(ctx, s, spec, memory)
	case s.pool == nil:
		return StartCold, st.boot(ctx, s, spec, nil)
	case s.answers(ctx):
		return StartPool, nil
	}
	s.pool.spoiled()
	st.opts.Log.Warn("pooled sandbox does not answer; starting cold", "container", s.id)
	if err := st.unmake(ctx, s); err != nil {
		return "", stepError{"an earlier sandbox could not be removed", err}
	}
	return StartCold, st.boot(ctx, s, spec, nil)
}

// ready makes a claimed sandbox of a pool ready for its container, if all that the container needs
// is there or one answer away, and reports whether it is. Then the container is saved once, as started.
// The others are saved as starting, and launched.
//
// A sandbox that is not ready may have the container's environment, so it must not return to its pool.
func (st *starter) ready(ctx context.Context, s *instance, pl *plan) bool {
	if s.pool == nil || s.network.Load() != nil || pl.from != nil || pl.copies != nil || len(pl.files) > 0 ||
		len(pl.skills) > 0 {
		return false
	}
	ctx, cancel := st.opts.clock.WithTimeout(ctx, pingTimeout)
	defer cancel()
	if len(pl.requestEnv) > 0 {
		return s.setEnvironment(ctx, pl.env) == nil
	}
	return s.answers(ctx) // the pool has set the template's environment
}

// unmake destroys a sandbox so that another can be created under its name, and drops all that is
// known of its guest.
func (st *starter) unmake(ctx context.Context, s *instance) error {
	if err := s.driver.acquire(ctx); err != nil {
		return err
	}
	defer s.driver.release()
	if err := st.deaths.destroy(ctx, s); err != nil {
		return err
	}
	s.client.Disconnect()
	s.mu.Lock()
	s.files.workDir = ""
	s.mu.Unlock()
	return nil
}

// boot creates and starts a sandbox, from memory if memory is not nil, and returns when
// its guest has answered.
func (st *starter) boot(ctx context.Context, s *instance, spec sandbox.Spec, memory memoryOpener) error {
	if err := st.slots.acquire(ctx); err != nil {
		return stepError{"it waited too long for other containers to start", err}
	}
	defer st.slots.release()
	if err := st.make(ctx, s, spec, memory); err != nil {
		return err
	}
	ctx, cancel := st.opts.clock.WithTimeout(ctx, guestTimeout)
	defer cancel()
	if _, err := s.workingDir(ctx); err != nil {
		return stepError{"its guest did not answer", err}
	}
	return nil
}

func (st *starter) make(ctx context.Context, s *instance, spec sandbox.Spec, memory memoryOpener) error {
	if err := s.driver.acquire(ctx); err != nil {
		return err
	}
	defer s.driver.release()
	return st.makeHeld(ctx, s, spec, memory)
}

// makeHeld is make of a caller that has acquired s.driver.
func (st *starter) makeHeld(ctx context.Context, s *instance, spec sandbox.Spec, memory memoryOpener) error {
	for again := true; ; again = false {
		err := st.opts.Driver.Create(ctx, spec)
		if again && errors.Is(err, fs.ErrExist) {
			// A container engine may complete a call after the server that made it died.
			if err := st.opts.Driver.Destroy(ctx, string(s.id)); err != nil {
				return stepError{"an earlier sandbox could not be removed", err}
			}
			continue
		}
		if err != nil {
			return stepError{"its sandbox could not be created", err}
		}
		err = st.startFrom(ctx, s, memory)
		if !again || !errors.Is(err, sandbox.ErrHung) {
			return err
		}
		st.opts.Log.Warn("sandbox hangs; creating it again", "container", s.id, "err", err)
		if err := st.deaths.destroy(ctx, s); err != nil {
			return stepError{"a sandbox that hangs could not be removed", err}
		}
	}
}

// startFrom starts a created sandbox, from memory if memory is not nil.
func (st *starter) startFrom(ctx context.Context, s *instance, memory memoryOpener) error {
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
	content, err := memory(ctx)
	if err != nil {
		return stepError{"its snapshot could not be read", err}
	}
	defer content.Close()
	err = d.Restore(ctx, string(s.id), content)
	if errors.Is(err, sandbox.ErrForeign) {
		return stepError{"its memory was saved by another version of this server", err}
	}
	if err != nil {
		return stepError{"its memory could not be restored", err}
	}
	return nil
}

// spec returns the Spec of a container's sandbox. Its environment is set later.
func (st *starter) spec(c *berth.Container, t sandbox.Template) sandbox.Spec {
	return sandbox.Spec{ID: string(c.ID), Template: t, Limits: st.opts.limitsOf(c.MemoryLimit)}
}
