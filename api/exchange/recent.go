package exchange

import (
	"context"
	"sync"
	"time"

	"github.com/berth-run/berth"
)

// recentAge is how old what a key may do can be for requests with tokens of sandboxes and links, which are many.
const recentAge = time.Second

// maxRecent bounds the number of keys in memory.
const maxRecent = 10_000

// recents are what keys may do, as read in the last moment. The zero value is empty.
type recents struct {
	mu  sync.Mutex
	all map[recentKey]recentCaller
}

type recentKey struct {
	project berth.ProjectID
	key     berth.KeyID
	session string
}

type recentCaller struct {
	caller berth.Caller
	until  time.Time
}

// recent is current from memory, if that is new enough.
func (s *Server) recent(ctx context.Context, c berth.Caller) (berth.Caller, error) {
	id := recentKey{c.Project, c.Key, c.Session}
	s.recents.mu.Lock()
	known, ok := s.recents.all[id]
	s.recents.mu.Unlock()
	if now := time.Now(); ok && now.Before(known.until) {
		c.Permissions, c.Scope, c.Person = known.caller.Permissions, known.caller.Scope, known.caller.Person
		return c, nil
	}
	c, err := s.current(ctx, c)
	if err != nil {
		return c, err
	}
	s.recents.mu.Lock()
	defer s.recents.mu.Unlock()
	if s.recents.all == nil || len(s.recents.all) >= maxRecent {
		s.recents.all = map[recentKey]recentCaller{}
	}
	s.recents.all[id] = recentCaller{c, time.Now().Add(recentAge)}
	return c, nil
}
