package container

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/berth-run/berth"
)

// Guests in use are probed: root in the sandbox may have stopped the guest program, and
// then no call to it returns. A guest that has not answered for silentAfter is silent:
// pending calls end with an error, and new calls get the error immediately, until it answers
// again.
const (
	probeInterval = 5 * time.Second  // for guests in use
	probeTimeout  = 3 * time.Second  // for one answer
	silentAfter   = 15 * time.Second // longer while CPUs are busy: see slack
)

// noAnswer returns the error for clients of a container that does not answer.
func noAnswer(id berth.ContainerID, err error) *berth.Error {
	return &berth.Error{Code: berth.CodeUnavailable, Err: err,
		Message: fmt.Sprintf("Container with id '%s' does not answer.", id)}
}

// errSilent is the cause of errors of silent containers.
var errSilent = errors.New("the guest does not answer probes")

// silentError returns an error for the client if the sandbox is known to be silent.
func (s *instance) silentError() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.health.silent {
		return noAnswer(s.id, errSilent)
	}
	return nil
}

// reachContext returns a context that ends when the sandbox becomes silent.
func (s *instance) reachContext() context.Context {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.health.reach == nil {
		s.health.reach, s.health.cancelReach = context.WithCancelCause(context.Background())
		if s.health.silent {
			s.health.cancelReach(noAnswer(s.id, errSilent))
		}
	}
	return s.health.reach
}

// A prober probes the guests that are in use.
type prober struct {
	opts *Options
	work *workers
}

// probeIfDue probes a guest in the background if its probe is due.
func (pb *prober) probeIfDue(s *instance) {
	if !s.running() || s.life.Err() != nil {
		return
	}
	now := pb.opts.clock.Now()
	s.mu.Lock()
	h := &s.health
	if h.fresh {
		h.fresh, h.answered = false, now
	}
	due := s.pause.over == nil && !h.probing && (h.silent || s.usage.holds > 0 &&
		now.Sub(h.answered) >= probeInterval && now.Sub(h.probed) >= probeInterval)
	if due {
		h.probing, h.probed = true, now
	}
	s.mu.Unlock()
	if due && !pb.work.spawn(func() { pb.probe(s) }) {
		s.mu.Lock()
		h.probing = false
		s.mu.Unlock()
	}
}

// probe pings a guest and records the outcome.
func (pb *prober) probe(s *instance) {
	ctx, cancel := pb.work.untilClosing(s.life)
	defer cancel()
	answered, timedOut := s.ping(ctx, probeTimeout)
	now := pb.opts.clock.Now()
	s.mu.Lock()
	h := &s.health
	h.probing = false
	was := h.silent
	if answered {
		h.answered, h.silent = now, false
		if was {
			h.reach, h.cancelReach = nil, nil
		}
	}
	s.mu.Unlock()
	switch {
	case answered && was:
		pb.opts.Log.Info("guest answers again", "container", s.id)
	case timedOut && ctx.Err() == nil:
		pb.markSilent(s, pb.patience(ctx, s))
	}
}

// markSilent marks a guest as silent if its last answer is older than within.
func (pb *prober) markSilent(s *instance, within time.Duration) {
	s.mu.Lock()
	h := &s.health
	becomes := !h.silent && s.pause.over == nil && pb.opts.clock.Now().Sub(h.answered) >= within
	if becomes {
		h.silent = true
		if h.cancelReach != nil {
			h.cancelReach(noAnswer(s.id, errSilent))
		}
	}
	s.mu.Unlock()
	if becomes {
		pb.opts.Log.Warn("guest does not answer; calls to it fail until it does", "container", s.id, "project",
			s.project)
		s.client.Disconnect() // ends the calls that wait on its connection
	}
}

// patience returns the time after which a guest that does not answer is silent. If the driver
// reports the CPU pressure of the sandbox, it counts in place of the machine's: on a machine whose
// CPUs are busy, a stopped guest waits for no CPU.
func (pb *prober) patience(ctx context.Context, s *instance) time.Duration {
	ctx, cancel := pb.opts.clock.WithTimeout(ctx, probeTimeout)
	defer cancel()
	if s.driver.acquire(ctx) == nil {
		stats, err := pb.opts.Driver.Stats(ctx, string(s.id))
		s.driver.release()
		if err == nil && stats.Pressure != nil {
			return slackAt(silentAfter, *stats.Pressure)
		}
	}
	return pb.opts.slack(silentAfter)
}

// checkInterval is the time between two checks of a sandbox.
const checkInterval = 10 * time.Second
