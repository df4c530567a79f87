package container

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/berth-run/berth"
)

// A guest that is used is asked now and then whether it is there: its root may have
// stopped it, and then nothing else of it would answer either. One that has not answered
// for silenceTime is silent. What waits for it ends with an error, and whoever comes gets
// the error at once, until it answers again.
const (
	probeEvery  = 5 * time.Second  // of a guest that is used
	probeTime   = 3 * time.Second  // for its answer
	silenceTime = 15 * time.Second // on a busy machine an answer takes long
)

// health says whether a sandbox is alive and its guest answers. It is guarded by
// instance.mu, except disk.
type health struct {
	checked time.Time    // when the driver was last asked about the sandbox
	disk    atomic.Int64 // bytes on its disk at that time

	fresh   bool      // it has come into use, and was not probed since
	heard   time.Time // when the guest answered, or came into use
	asked   time.Time // when it was last probed
	probing bool

	silent  bool
	contact context.Context // ends, with the error for its users, when the guest becomes silent
	lose    context.CancelCauseFunc
}

// noAnswer is what clients get of a container that does not answer.
func noAnswer(id berth.ContainerID, err error) *berth.Error {
	return &berth.Error{Code: berth.CodeUnavailable, Err: err, Message: fmt.Sprintf("Container with id '%s' does not answer.", id)}
}

// errSilent is why a container that is silent does not answer.
var errSilent = errors.New("its guest has given no answer for some time, and is asked again until it does")

// silence returns an error for the client if the sandbox is known to be silent.
func (s *instance) silence() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.health.silent {
		return noAnswer(s.id, errSilent)
	}
	return nil
}

// contact returns a context that ends when the sandbox becomes silent.
func (s *instance) contact() context.Context {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.health.contact == nil {
		s.health.contact, s.health.lose = context.WithCancelCause(context.Background())
		if s.health.silent {
			s.health.lose(noAnswer(s.id, errSilent))
		}
	}
	return s.health.contact
}

// listen asks a sandbox in the background whether it is there, if it is time to.
func (ls *leases) probeIfDue(s *instance) {
	if !s.running() || s.life.Err() != nil {
		return
	}
	now := ls.opts.now()
	s.mu.Lock()
	h := &s.health
	if h.fresh {
		h.fresh, h.heard = false, now
	}
	due := s.pause.over == nil && !h.probing && (h.silent || s.usage.holds > 0 && now.Sub(h.heard) >= probeEvery && now.Sub(h.asked) >= probeEvery)
	if due {
		h.probing, h.asked = true, now
	}
	s.mu.Unlock()
	if due && !ls.work.spawn(func() { ls.probe(s) }) {
		s.mu.Lock()
		h.probing = false
		s.mu.Unlock()
	}
}

// probe asks a sandbox whether it is there, and notes what comes of it.
func (ls *leases) probe(s *instance) {
	ctx, cancel := ls.work.untilClosing(s.life)
	defer cancel()
	answered, timedOut := s.ping(ctx, probeTime)
	now := ls.opts.now()
	s.mu.Lock()
	h := &s.health
	h.probing = false
	was := h.silent
	if answered {
		h.heard, h.silent = now, false
		if was {
			h.contact, h.lose = nil, nil
		}
	}
	s.mu.Unlock()
	switch {
	case answered && was:
		ls.opts.Log.Info("a container answers again", "container", s.id)
	case timedOut && ctx.Err() == nil:
		ls.markSilent(s, silenceTime)
	}
}

// unanswered makes a sandbox silent that has not answered for a time.
func (ls *leases) markSilent(s *instance, within time.Duration) {
	s.mu.Lock()
	h := &s.health
	becomes := !h.silent && s.pause.over == nil && ls.opts.now().Sub(h.heard) >= within
	if becomes {
		h.silent = true
		if h.lose != nil {
			h.lose(noAnswer(s.id, errSilent))
		}
	}
	s.mu.Unlock()
	if becomes {
		ls.opts.Log.Warn("a container does not answer; what is asked of it fails until it does", "container", s.id, "project", s.project)
		s.client.Disconnect() // which ends what waits on its connection
	}
}
