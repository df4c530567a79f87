package exchange

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"sync"
	"time"

	"github.com/berth-run/berth"
)

// errKeyEnded is the cause of the end of a request whose key was deleted or has expired.
var errKeyEnded = &berth.Error{Code: berth.CodeUnauthorized, Wire: "invalid_api_key",
	Message: "The API key of this request was deleted, has expired or may do less than before."}

// running are the requests that were let in by a key, among them streams and WebSockets that may last for days. The
// zero value is empty.
type running struct {
	mu    sync.Mutex
	open  map[*openRequest]struct{}
	timer *time.Timer // of the next check; nil if there is nothing to check
}

// An openRequest is a request that runs.
type openRequest struct {
	caller berth.Caller
	end    context.CancelCauseFunc
}

// WhileValid returns the request with a context that ends when the key of a caller is deleted or expires. The handler
// must call release when the request has been answered.
func (x *Exchange) WhileValid(r *http.Request, c berth.Caller) (_ *http.Request, release func()) {
	if c.Key == "" {
		return r, func() {} // the server had no keys
	}
	ctx, end := context.WithCancelCause(r.Context())
	o := &openRequest{c, end}
	s := x.server
	s.running.mu.Lock()
	defer s.running.mu.Unlock()
	if s.running.open == nil {
		s.running.open = map[*openRequest]struct{}{}
	}
	s.running.open[o] = struct{}{}
	if s.running.timer == nil {
		s.running.timer = time.AfterFunc(s.KeyCheck, s.endInvalid)
	}
	return r.WithContext(ctx), func() {
		s.running.mu.Lock()
		delete(s.running.open, o)
		s.running.mu.Unlock()
		end(nil)
	}
}

// endInvalid ends the requests whose key is not valid any more, and sets the time of the next check.
func (s *Server) endInvalid() {
	s.running.mu.Lock()
	if len(s.running.open) == 0 {
		s.running.timer = nil
		s.running.mu.Unlock()
		return
	}
	open := maps.Clone(s.running.open) // a later one may have a key that is newer than the list
	s.running.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), s.KeyCheck)
	valid, err := s.validCallers(ctx, open)
	cancel()
	s.running.mu.Lock()
	defer s.running.mu.Unlock()
	s.running.timer.Reset(s.KeyCheck)
	if err != nil {
		return // requests go on while the store cannot tell
	}
	for o := range open {
		if !valid[callerWithKey(o.caller)] {
			o.end(errKeyEnded)
		}
	}
}

// A permitted is a caller by its key, with what the key permits.
type permitted struct {
	recentKey
	permissions berth.Permission
}

func callerWithKey(c berth.Caller) permitted {
	return permitted{recentKey{c.Project, c.Key, c.Session}, c.Permissions}
}

// validCallers returns the callers of requests whose keys are valid and may do the same as at the start.
func (s *Server) validCallers(ctx context.Context, open map[*openRequest]struct{}) (map[permitted]bool, error) {
	valid := map[permitted]bool{}
	for o := range open {
		of := callerWithKey(o.caller)
		if _, ok := valid[of]; ok {
			continue
		}
		valid[of] = false
		key, err := s.Keys.KeyOf(ctx, o.caller)
		if err != nil && !errors.Is(err, berth.ErrNotFound) {
			return nil, fmt.Errorf("look up key: %w", err)
		}
		if err == nil && checkKey(key) == nil {
			valid[of] = key.Permissions() == o.caller.Permissions
		}
	}
	return valid, nil
}
