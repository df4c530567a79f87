package sandbox

import (
	"context"
	"errors"
	"fmt"
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
	silenceTime = 15 * time.Second // more where processors are short: see slack
)

// A hearing is what is known of whether a guest answers. It is part of a sandbox, and
// owned by its mu.
type hearing struct {
	fresh   bool      // it has come into use, and has not been asked since
	heard   time.Time // when it answered, or came into use
	asked   time.Time // when it was asked for the last time
	probing bool

	silent  bool
	contact context.Context // ends, if it is silent, with what those who wait are told
	lose    context.CancelCauseFunc
}

// noAnswer is what clients get of a container that does not answer.
func noAnswer(id berth.ContainerID, err error) *berth.Error {
	return &berth.Error{Code: berth.CodeUnavailable, Err: err, Message: fmt.Sprintf("Container with id '%s' does not answer.", id)}
}

// errSilent is why a container that is silent does not answer.
var errSilent = errors.New("its guest has given no answer for some time, and is asked again until it does")

// silence returns an error for the client if the sandbox is known to be silent.
func (s *sandbox) silence() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.hearing.silent {
		return noAnswer(s.id, errSilent)
	}
	return nil
}

// contact returns a context that ends when the sandbox becomes silent.
func (s *sandbox) contact() context.Context {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.hearing.contact == nil {
		s.hearing.contact, s.hearing.lose = context.WithCancelCause(context.Background())
		if s.hearing.silent {
			s.hearing.lose(noAnswer(s.id, errSilent))
		}
	}
	return s.hearing.contact
}

// listen asks a sandbox in the background whether it is there, if it is time to.
func (k *Keeper) listen(s *sandbox) {
	if !s.running() || s.life.Err() != nil {
		return
	}
	now := k.now()
	s.mu.Lock()
	h := &s.hearing
	if h.fresh {
		h.fresh, h.heard = false, now
	}
	due := s.paused == nil && !h.probing && (h.silent || s.holds > 0 && now.Sub(h.heard) >= probeEvery && now.Sub(h.asked) >= probeEvery)
	if due {
		h.probing, h.asked = true, now
	}
	s.mu.Unlock()
	if due && !k.spawn(func() { k.probe(s) }) {
		s.mu.Lock()
		h.probing = false
		s.mu.Unlock()
	}
}

// probe asks a sandbox whether it is there, and notes what comes of it.
func (k *Keeper) probe(s *sandbox) {
	ctx, cancel := context.WithCancel(s.life)
	defer cancel()
	go func() {
		select {
		case <-k.closing:
			cancel()
		case <-ctx.Done():
		}
	}()
	answered, timedOut := s.ping(ctx, probeTime)
	now := k.now()
	s.mu.Lock()
	h := &s.hearing
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
		k.opts.Log.Info("a container answers again", "container", s.id)
	case timedOut && ctx.Err() == nil:
		k.unanswered(s, k.slack(silenceTime))
	}
}

// unanswered makes a sandbox silent that has not answered for a time.
func (k *Keeper) unanswered(s *sandbox, within time.Duration) {
	s.mu.Lock()
	h := &s.hearing
	becomes := !h.silent && s.paused == nil && k.now().Sub(h.heard) >= within
	if becomes {
		h.silent = true
		if h.lose != nil {
			h.lose(noAnswer(s.id, errSilent))
		}
	}
	s.mu.Unlock()
	if becomes {
		k.opts.Log.Warn("a container does not answer; what is asked of it fails until it does", "container", s.id, "project", s.project)
		s.client.Disconnect() // which ends what waits on its connection
	}
}
