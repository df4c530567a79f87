package container

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/berth-run/berth"
)

// Guests in use are probed: root in the sandbox may have stopped the guest program, and
// then no call to it returns. A guest that has not answered for silentAfter is silent:
// pending calls end with an error, and new calls get the error at once, until it answers
// again.
const (
	probeInterval = 5 * time.Second  // for guests in use
	probeTimeout  = 3 * time.Second  // for one answer
	silentAfter   = 15 * time.Second // longer while CPUs are busy: see slack
)

// health is whether a sandbox is alive and its guest answers. It is guarded by instance.mu,
// except disk.
type health struct {
	checked time.Time    // when the driver was last queried about the sandbox
	disk    atomic.Int64 // bytes on its disk at that time

	fresh    bool      // a user acquired it and it was not probed since
	answered time.Time // when the guest last answered, or when a user acquired the idle sandbox
	probed   time.Time // when it was last probed
	probing  bool

	silent      bool
	reach       context.Context // ends, with the error for its users, when the guest becomes silent
	cancelReach context.CancelCauseFunc
}

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

// probeIfDue probes a guest in the background if its probe is due.
func (ls *leases) probeIfDue(s *instance) {
	if !s.running() || s.life.Err() != nil {
		return
	}
	now := ls.opts.clock.Now()
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
	if due && !ls.work.spawn(func() { ls.probe(s) }) {
		s.mu.Lock()
		h.probing = false
		s.mu.Unlock()
	}
}

// probe pings a guest and records the outcome.
func (ls *leases) probe(s *instance) {
	ctx, cancel := ls.work.untilClosing(s.life)
	defer cancel()
	answered, timedOut := s.ping(ctx, probeTimeout)
	now := ls.opts.clock.Now()
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
		ls.opts.Log.Info("guest answers again", "container", s.id)
	case timedOut && ctx.Err() == nil:
		ls.markSilent(s, ls.patience(ctx, s))
	}
}

// markSilent marks a guest as silent if its last answer is older than within.
func (ls *leases) markSilent(s *instance, within time.Duration) {
	s.mu.Lock()
	h := &s.health
	becomes := !h.silent && s.pause.over == nil && ls.opts.clock.Now().Sub(h.answered) >= within
	if becomes {
		h.silent = true
		if h.cancelReach != nil {
			h.cancelReach(noAnswer(s.id, errSilent))
		}
	}
	s.mu.Unlock()
	if becomes {
		ls.opts.Log.Warn("guest does not answer; calls to it fail until it does", "container", s.id, "project",
			s.project)
		s.client.Disconnect() // ends the calls that wait on its connection
	}
}
