package container

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/cluster"
	"github.com/berth-run/berth/guest"
	"github.com/berth-run/berth/internal/nofile"
)

// leases finds the instances of containers and holds them for their users.
type leases struct {
	opts         *Options
	work         *workers
	index        *index
	deaths       *deaths
	prober       *prober
	pauser       *pauser
	reservations *reservations
}

// hold returns the running instance of a container. It waits for the start, resumes a
// paused container, and prevents expiry until release is called.
func (ls *leases) hold(ctx context.Context, p berth.ProjectID, id berth.ContainerID) (s *instance, release func(),
	err error) {
	if s, err = ls.find(ctx, p, id); err != nil {
		return nil, nil, err
	}
	if err := s.acquire(ctx); err != nil {
		return nil, nil, err
	}
	release = sync.OnceFunc(func() { s.release(ls.opts.clock.Now()) })
	if err = ls.reservations.create(ctx, s); err != nil {
		release()
		ls.reservations.drop(s)
		return nil, nil, err
	}
	if err = s.waitStarted(ctx); err == nil {
		err = waitRebooted(ctx, s)
	}
	if err == nil {
		err = ls.pauser.resume(ctx, s)
	}
	if err == nil {
		err = s.silentError()
	}
	if err != nil {
		release()
		return nil, nil, err
	}
	return s, release, nil
}

// use is hold with a context that also ends when the sandbox does.
func (ls *leases) use(ctx context.Context, p berth.ProjectID, id berth.ContainerID) (*instance, context.Context, func(),
	error) {
	s, release, err := ls.hold(ctx, p, id)
	if err != nil {
		return nil, nil, nil, err
	}
	ctx, stop := s.withGuest(ctx)
	return s, ctx, func() {
		stop()
		release()
	}, nil
}

// find returns the instance of a container that has not ended as far as this server has
// recorded.
func (ls *leases) find(ctx context.Context, p berth.ProjectID, id berth.ContainerID) (*instance, error) {
	if s := ls.index.lookup(p, id); s != nil {
		return s, nil
	}
	rec, err := ls.opts.container(ctx, p, id)
	switch {
	case err != nil:
		return nil, err
	case rec.Body.Status != berth.ContainerRunning:
		return nil, goneError(rec.Body, rec.Body.Berth.Reason)
	}
	if server := ls.opts.placement.other(rec.Body); server != "" {
		return nil, cluster.Elsewhere(fmt.Sprintf("Container with id '%s'", id), server)
	}
	return nil, berth.Errorf(berth.CodeUnavailable, "Container with id '%s' is not managed by this server.", id)
}

// explainWaits are the delays before each check of why a connection ended: the driver notices
// the death of a sandbox with a delay.
var explainWaits = [...]time.Duration{0, 50 * time.Millisecond, 250 * time.Millisecond}

// explain turns an error of a call to a guest into an error for the client. That is the
// container's end if it has ended, the cause of ctx if ctx has ended, and otherwise that the
// container does not answer.
func (ls *leases) explain(ctx context.Context, s *instance, err error) error {
	if _, ok := errors.AsType[*berth.Error](err); ok {
		return err
	}
	timedOut := false
	for _, wait := range explainWaits {
		select {
		case <-ls.opts.clock.After(wait):
		case <-s.life.Done():
		case <-ctx.Done():
		}
		ls.deaths.check(s)
		if s.life.Err() != nil {
			return context.Cause(s.life)
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		silent := s.silentError()
		if silent != nil {
			return silent
		}
		var answered bool
		if answered, timedOut = s.ping(ctx, ls.opts.slack(pingTimeout)); answered {
			break
		}
	}
	if timedOut && ctx.Err() == nil {
		ls.prober.markSilent(s, 0) // it did not answer during all of the delays
	}
	return noAnswer(s.id, err)
}

func trimPeriod(s string) string { return strings.TrimSuffix(s, ".") }

// newInstance returns the instance of a container. It is not registered yet.
func (ls *leases) newInstance(p berth.ProjectID, body *berth.Container) *instance {
	s := &instance{id: body.ID, clock: ls.opts.clock, started: make(chan struct{}), driver: newSlots(1),
		policy: policyState{lock: newSlots(1)}, files: fileState{lock: newSlots(1)}, log: newCommandLog(),
		health: health{checked: ls.opts.clock.Now()}}
	s.assign(p, body)
	s.life, s.end = context.WithCancelCause(ls.work.life)
	s.client = guest.NewSleepingClient(func(ctx context.Context) (net.Conn, error) {
		return ls.dial(ctx, s)
	}, &sleeper{ls.pauser, s})
	return s
}

// dial connects to the guest of a sandbox. If that fails, dial checks whether the sandbox is
// dead, so that its users get the reason.
func (ls *leases) dial(ctx context.Context, s *instance) (net.Conn, error) {
	ctx, stop := s.withLife(ctx)
	defer stop()
	if err := ls.pauser.wake(ctx, s); err != nil {
		return nil, err
	}
	if err := s.waitResumed(ctx); err != nil {
		return nil, err
	}
	ctx, cancel := ls.opts.clock.WithTimeout(ctx, dialTimeout)
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
