// Package mux carries the streams between a server and a guest over one connection, in
// yamux's protocol. The server's end bounds the memory and the work that a guest can cause.
// Where the connection passes descriptors, the bodies of large frames travel in shared memory
// (arena).
//
// Guests of earlier versions use github.com/hashicorp/yamux, which works with the server's
// end, without shared memory. It is not used here because it trusts its peer: it starts a
// goroutine for each ping, holds buffers of up to four times a stream's limit for minutes
// after the stream is closed, and cannot reset a stream. In a guest its copies and its two
// writes for each frame take half of the time.
package mux

import (
	"bufio"
	"net"
	"sync"
	"sync/atomic"
)

// A Sleeper is the state of a sandbox that may be paused while its session stays open. Its
// methods are safe for concurrent use.
type Sleeper interface {
	// Sending is called before a frame is sent, and Sent afterwards. Sending returns when the
	// sandbox runs, which then is not paused before Sent. After an error, the session ends.
	Sending() error
	Sent()

	// Received is called for each received frame.
	Received()

	// Asleep reports whether the sandbox is paused. A paused sandbox gets no pings: they neither
	// count as frames above nor wake it.
	Asleep() bool
}

// A Session is one end of a connection between a server and a guest. It is a net.Listener
// for the streams that the other end opens. It is safe for concurrent use.
type Session struct {
	conn    net.Conn
	guest   bool    // this is the guest's end
	sleeper Sleeper // nil: the sandbox is never paused
	in      *bufio.Reader
	share   sharing
	held    account
	opening chan struct{} // holds one value for each stream that is not accepted yet
	replies chan reply
	accept  chan *Stream
	done    chan struct{}
	pong    atomic.Uint32 // number of the last received pong

	turn  chan struct{} // holds one value during a write
	heads []byte        // with the turn
	bufs  [2][]byte

	mu       sync.Mutex
	streams  map[uint32]*Stream
	accepted int // number of streams that the other end opened
	next     uint32
	err      error // the reason of the end
}

// Done is closed when the session has ended.
func (s *Session) Done() <-chan struct{} { return s.done }

// Ended reports whether the session has ended.
func (s *Session) Ended() bool {
	select {
	case <-s.done:
		return true
	default:
		return false
	}
}

// Streams returns the number of open streams.
func (s *Session) Streams() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.streams)
}

// Addr implements net.Listener.
func (s *Session) Addr() net.Addr { return s.conn.LocalAddr() }

// Close ends the session with all of its streams. It does not wait for the guest.
func (s *Session) Close() error {
	s.end(net.ErrClosed)
	return nil
}

// end closes everything, once.
func (s *Session) end(err error) {
	s.mu.Lock()
	if s.err != nil {
		s.mu.Unlock()
		return
	}
	s.err = err
	streams := s.streams
	s.streams, s.accepted = map[uint32]*Stream{}, 0
	s.mu.Unlock()
	s.held.end()
	close(s.done)
	s.conn.Close()
	for _, st := range streams {
		st.lost(err)
	}
	s.share.end()
}

// forget removes a stream from the session.
func (s *Session) forget(st *Stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.streams[st.id] == st {
		delete(s.streams, st.id)
		if s.foreign(st.id) {
			s.accepted--
		}
	}
	s.established(st)
}

// foreign reports whether the other end opens streams with this id.
func (s *Session) foreign(id uint32) bool { return id%2 == 0 != s.guest }

// established records that a stream was accepted. The caller holds s.mu.
func (s *Session) established(st *Stream) {
	if st.slow != nil {
		st.slow.Stop()
		st.slow = nil
		<-s.opening
	}
}
