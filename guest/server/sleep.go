package server

import (
	"context"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/berth-run/berth/guest/mux"
)

// A guest's socket and its connections belong to the host: a checkpoint of the sandbox's
// memory cannot contain them. Before a checkpoint the guest is sent to sleep: it closes
// them and the route for addresses, removes its socket, and waits for a file beside it as
// the signal to wake up. Everything else in the sandbox continues.
const (
	wakeName  = "wake"
	wakeEvery = 2 * time.Millisecond
	sleepMost = 2 * time.Minute // then it wakes up by itself
	sleepSoon = time.Second     // for the server to disconnect
)

// A sleeper records the sessions and the listener that have to be closed.
type sleeper struct {
	mu       sync.Mutex
	asleep   bool
	listener *net.UnixListener // nil if the guest has none that it can recreate
	sessions map[*mux.Session]bool
	serving  sync.WaitGroup
}

// enter counts a session unless the guest sleeps.
func (z *sleeper) enter(session *mux.Session) bool {
	z.mu.Lock()
	defer z.mu.Unlock()
	if z.asleep {
		return false
	}
	if z.sessions == nil {
		z.sessions = map[*mux.Session]bool{}
	}
	z.sessions[session] = true
	z.serving.Add(1)
	return true
}

func (z *sleeper) leave(session *mux.Session) {
	z.mu.Lock()
	delete(z.sessions, session)
	z.mu.Unlock()
	z.serving.Done()
}

// sleep serves POST /sleep. The socket is gone when the guest sleeps.
func (s *Server) sleep(w http.ResponseWriter, r *http.Request) {
	z := &s.sleeper
	z.mu.Lock()
	l, again := z.listener, z.asleep
	z.asleep = l != nil
	z.mu.Unlock()
	if l == nil || again {
		http.Error(w, `{"code":409,"message":"this guest cannot sleep now"}`, http.StatusConflict)
		return
	}
	session, _ := r.Context().Value(sessionKey{}).(*mux.Session)
	w.WriteHeader(http.StatusNoContent)
	go func() {
		if session != nil { // the answer must arrive
			select {
			case <-session.Done():
			case <-time.After(sleepSoon):
			}
		}
		l.Close()
	}()
}

// slept is called when the listener is closed. If the guest was sent to sleep, slept waits
// for the wake-up and returns a new listener.
func (s *Server) slept(ctx context.Context) (net.Listener, error) {
	z := &s.sleeper
	z.mu.Lock()
	if !z.asleep {
		z.mu.Unlock()
		return nil, net.ErrClosed
	}
	path := z.listener.Addr().String()
	for session := range z.sessions {
		_ = session.Close()
	}
	z.mu.Unlock()
	z.serving.Wait()
	if err := s.network.fallAsleep(); err != nil {
		s.opts.Log.Warn("failed to close the route for addresses", "err", err)
	}
	defer s.network.awake()
	wake := filepath.Join(filepath.Dir(path), wakeName)
	_ = os.Remove(wake) // from a time when the guest was awake
	_ = os.Remove(path)
	for began := time.Now(); os.Remove(wake) != nil && time.Since(began) < sleepMost; {
		select {
		case <-time.After(wakeEvery):
		case <-ctx.Done():
			return z.listener, nil // which is closed, as intended
		}
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	z.mu.Lock()
	z.asleep = false
	z.mu.Unlock()
	s.canSleep(l)
	return l, nil
}

// canSleep records a listener that can be recreated.
func (s *Server) canSleep(l net.Listener) {
	ul, ok := l.(*net.UnixListener)
	if !ok {
		return
	}
	ul.SetUnlinkOnClose(false) // its absence signals that the guest sleeps
	s.sleeper.mu.Lock()
	defer s.sleeper.mu.Unlock()
	s.sleeper.listener = ul
}
