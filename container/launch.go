package container

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/container/snapshot"
	"github.com/berth-run/berth/internal/nofile"
	"github.com/berth-run/berth/sandbox"
)

const (
	startTime  = 5 * time.Minute  // a whole start, waiting for its turn and copying files included
	guestTime  = 30 * time.Second // a guest's first answer
	answerTime = 30 * time.Second // any later answer that is not streamed
	dialTime   = 10 * time.Second
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
	snapshots *snapshots
	slots     slots // sandboxes started at once
}

// launch starts a new sandbox. If that fails, the container ends, unless it failed
// because the server stops: the next server starts it again.
func (st *starter) launch(s *instance, pl *plan) {
	ctx, cancel := context.WithTimeout(s.life, startTime)
	defer cancel()
	how, err := st.start(ctx, s, pl)
	switch {
	case err != nil && st.work.life.Err() != nil:
		close(s.started)
		return
	case err != nil:
		how = StartFailed
		st.fail(s, pl, err)
	default:
		if pl.again {
			s.touch(st.opts.now()) // it could not be used before
		}
		st.finish(s, pl)
	}
	st.opts.Observer.Started(how, time.Since(pl.asked))
}

// start makes a sandbox what was planned, and says how it came to be.
//
// If the server dies in one of the steps, all are done again, with another sandbox. The
// processes of one that was restored from memory run at once, and what they send cannot
// be taken back: they get their network after the step that ends that.
func (st *starter) start(ctx context.Context, s *instance, pl *plan) (how string, err error) {
	how = StartMemory
	if !pl.adopted {
		if how, err = st.fill(ctx, s, pl); err != nil {
			return "", err
		}
	}
	connect := func() error {
		ctx, cancel := context.WithTimeout(ctx, guestTime)
		defer cancel()
		if err := st.networks.connect(ctx, s); err != nil {
			return stepError{"it could not be given its network", err}
		}
		return nil
	}
	save := func() error {
		_, err := st.opts.Store.UpdateContainer(ctx, s.project, s.id, func(c *berth.Container) error {
			c.Berth.Starting = false
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
		if err := step(); err != nil {
			return "", err
		}
	}
	return how, nil
}

// fill makes a sandbox with all that is to be in it.
func (st *starter) fill(ctx context.Context, s *instance, pl *plan) (how string, err error) {
	if pl.again {
		if err := st.unmake(ctx, s); err != nil {
			return "", stepError{"what an interrupted start left could not be removed", err}
		}
	}
	spec := st.spec(pl.body, pl.template)
	if spec.Mounts, err = st.volumes.open(ctx, s); err != nil {
		return "", stepError{"its volumes could not be mounted", err}
	}
	if how, err = st.wake(ctx, s, spec, pl.memory()); err != nil {
		return "", err
	}
	for _, step := range []struct {
		do      func() error
		failing string
	}{
		{func() error { return st.snapshots.restore(ctx, s, pl) }, "its snapshot could not be put in"},
		{func() error { return s.setEnvironment(ctx, pl.env) }, "it could not be given its environment"},
		{func() error { return st.files.add(ctx, s, pl.files) }, "its files could not be put in"},
	} {
		if err := step.do(); err != nil {
			return "", stepError{step.failing, err}
		}
	}
	return how, nil
}

// wake returns when the sandbox's guest has answered. One from the pool that does
// not is made anew.
func (st *starter) wake(ctx context.Context, s *instance, spec sandbox.Spec, memory *snapshot.Record) (how string, err error) {
	switch {
	case memory != nil:
		return StartMemory, st.boot(ctx, s, spec, memory)
	case s.pool == nil:
		return StartCold, st.boot(ctx, s, spec, nil)
	case s.answers(ctx):
		return StartPool, nil
	}
	s.pool.count(-1, 1)
	st.opts.Log.Warn("a sandbox from the pool does not answer; its container is started cold", "container", s.id)
	if err := st.unmake(ctx, s); err != nil {
		return "", stepError{"a sandbox of its name could not be removed", err}
	}
	return StartCold, st.boot(ctx, s, spec, nil)
}

// setEnvironment gives the commands of a sandbox, which is made without one, their
// environment.
func (s *instance) setEnvironment(ctx context.Context, env []string) error {
	if len(env) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	return s.client.SetEnvironment(ctx, env)
}

// unmake removes a sandbox that another is to take the place of.
func (st *starter) unmake(ctx context.Context, s *instance) error {
	if err := s.driver.acquire(ctx); err != nil {
		return err
	}
	defer s.driver.release()
	return st.deaths.destroy(ctx, s)
}

// boot makes the sandbox, from memory if there is one, and returns when its guest
// has answered.
func (st *starter) boot(ctx context.Context, s *instance, spec sandbox.Spec, memory *snapshot.Record) error {
	if err := st.slots.acquire(ctx); err != nil {
		return stepError{"other containers were being started for too long", err}
	}
	defer st.slots.release()
	if err := st.make(ctx, s, spec, memory); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, guestTime)
	defer cancel()
	if _, err := s.dir(ctx); err != nil {
		return stepError{"its guest did not answer", err}
	}
	return nil
}

func (st *starter) make(ctx context.Context, s *instance, spec sandbox.Spec, memory *snapshot.Record) error {
	if err := s.driver.acquire(ctx); err != nil {
		return err
	}
	defer s.driver.release()
	for again := true; ; again = false {
		err := st.opts.Driver.Create(ctx, spec)
		if again && errors.Is(err, fs.ErrExist) {
			// An engine may finish what a server asked of it before that died.
			if err := st.opts.Driver.Destroy(ctx, string(s.id)); err != nil {
				return stepError{"a sandbox of its name could not be removed", err}
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
		st.opts.Log.Warn("a sandbox hangs and is made again", "container", s.id, "err", err)
		if err := st.deaths.destroy(ctx, s); err != nil {
			return stepError{"a sandbox that hangs could not be removed", err}
		}
	}
}

// A stepError says which step of a start failed, in words for the client.
type stepError struct {
	step string
	err  error // for the operator
}

func (e stepError) Error() string { return e.step + ": " + e.err.Error() }
func (e stepError) Unwrap() error { return e.err }

// startError is what those who wait for a container get if it does not start. The
// driver's own words, which may tell of the host, are for the log.
func startError(id berth.ContainerID, err error) error {
	why := "the server was interrupted"
	if e, ok := errors.AsType[stepError](err); ok {
		why = e.step
	}
	if e, ok := errors.AsType[*berth.Error](err); ok {
		why += ": " + e.Message
	}
	return &berth.Error{Code: berth.CodeUnavailable, Wire: "container_start_failed", Err: err,
		Message: fmt.Sprintf("Container with id '%s' could not be started: %s.", id, trimDot(why))}
}

// dial connects to a sandbox's guest, for its client. When that fails, the
// sandbox is often dead, and its users then learn why.
func (ls *leases) dial(ctx context.Context, s *instance) (net.Conn, error) {
	ctx, stop := s.within(ctx)
	defer stop()
	if err := s.unpaused(ctx); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, dialTime)
	defer cancel()
	if err := s.driver.acquire(ctx); err != nil {
		return nil, err
	}
	var conn net.Conn
	err := nofile.Retry(func() (err error) {
		conn, err = ls.opts.Driver.Dial(ctx, string(s.id))
		return err
	})
	s.driver.release()
	if err != nil {
		ls.deaths.check(s)
	}
	return conn, err
}
