// Package mux is the server's end of its one connection to a guest: yamux's protocol, with
// bounds on the memory and the work that a guest can cause.
//
// The guest's end is github.com/hashicorp/yamux. Its client is not used here because it
// trusts its server: it starts a goroutine for each ping, holds buffers of up to four times
// a stream's limit for minutes after the stream is closed, and cannot reset a stream.
package mux

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// The head of a frame: version, kind, flags, stream, and a length, a window or a number.
const (
	headSize = 12

	kindData   = 0
	kindWindow = 1
	kindPing   = 2
	kindGoAway = 3

	flagSYN = 1 << 0
	flagACK = 1 << 1
	flagFIN = 1 << 2
	flagRST = 1 << 3
)

const (
	// MaxAccepted is the number of streams that the guest may have open. More are reset.
	MaxAccepted = 1024

	firstWindow = 256 << 10 // of each stream in each direction, by the protocol
	fullWindow  = 512 << 10 // of a stream that is read, while there is room
	maxFrame    = 256 << 10 // bytes of a sent frame
	maxOpening  = 256       // streams that the guest has not accepted yet
	maxReplies  = 256       // waiting to be sent; more are dropped

	openTime  = 10 * time.Second // for the guest to accept a stream
	writeTime = 30 * time.Second // for the guest to read a frame
	aliveTime = 30 * time.Second // between pings; each must be answered within half of it
)

var (
	errLost = errors.New("the connection to the guest is lost")
	errWire = errors.New("the guest does not keep to the protocol")
)

// A Session is a connection to a guest. It is a net.Listener for the streams that the
// guest opens. It is safe for concurrent use.
type Session struct {
	conn    net.Conn
	in      *bufio.Reader
	held    account
	opening chan struct{} // holds one value for each stream that is not accepted yet
	replies chan reply
	accept  chan *Stream
	done    chan struct{}
	pong    atomic.Uint32 // number of the last received pong

	turn chan struct{}  // holds one value during a write
	head [headSize]byte // with the turn
	bufs [2][]byte

	mu       sync.Mutex
	streams  map[uint32]*Stream
	accepted int // number of streams that the guest opened
	next     uint32
	err      error // the reason of the end
}

// A reply is a frame without a body that waits to be sent to the guest.
type reply struct {
	kind       byte
	flags      uint16
	id, length uint32
}

// Client starts a session over conn, which it closes at the end. Received data counts
// towards pool; nil is the pool of the process.
func Client(conn net.Conn, pool *Pool) *Session {
	if pool == nil {
		pool = &process
	}
	s := &Session{conn: conn, in: bufio.NewReaderSize(conn, 4<<10), next: 1,
		opening: make(chan struct{}, maxOpening), replies: make(chan reply, maxReplies), accept: make(chan *Stream, MaxAccepted),
		done: make(chan struct{}), turn: make(chan struct{}, 1), streams: map[uint32]*Stream{}}
	s.held = account{session: s, pool: pool, freed: make(chan struct{}, 1)}
	go func() { s.end(s.receive()) }()
	go s.reply()
	go s.live()
	return s
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
		st.lost()
	}
}

// Open opens a stream. It returns before the guest has accepted the stream, but waits while
// too many are not accepted.
func (s *Session) Open(ctx context.Context) (*Stream, error) {
	select {
	case s.opening <- struct{}{}:
	case <-s.done:
		return nil, errLost
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	s.mu.Lock()
	if s.err != nil || s.next > 1<<31 {
		s.mu.Unlock()
		s.Close()
		return nil, errLost
	}
	st := newStream(s, s.next)
	st.slow = time.AfterFunc(openTime, func() { s.end(errors.New("the guest does not accept streams")) })
	s.next += 2
	s.streams[st.id] = st
	s.mu.Unlock()
	sent := make(chan error, 1)
	go func() { sent <- s.send(ctx.Done(), kindWindow, flagSYN, st.id, 0, nil) }() // send blocks while the guest does not read
	select {
	case err := <-sent:
		if err == nil {
			return st, nil
		}
		s.forget(st)
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return nil, err
	case <-ctx.Done():
		go func() {
			<-sent
			st.Close()
		}()
		return nil, context.Cause(ctx)
	}
}

// Accept implements net.Listener.
func (s *Session) Accept() (net.Conn, error) {
	select {
	case st := <-s.accept:
		if err := s.owe(reply{kindWindow, flagACK, st.id, 0}); err != nil {
			return nil, err
		}
		return st, nil
	case <-s.done:
		return nil, net.ErrClosed
	}
}

// forget removes a stream from the session.
func (s *Session) forget(st *Stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.streams[st.id] == st {
		delete(s.streams, st.id)
		if st.id%2 == 0 {
			s.accepted--
		}
	}
	s.established(st)
}

// established records that a stream was accepted. The caller holds s.mu.
func (s *Session) established(st *Stream) {
	if st.slow != nil {
		st.slow.Stop()
		st.slow = nil
		<-s.opening
	}
}

// send writes one frame, unless cancel is closed before its turn. It ends the session if the
// guest does not read the frame in time.
func (s *Session) send(cancel <-chan struct{}, kind byte, flags uint16, id, length uint32, body []byte) error {
	select {
	case s.turn <- struct{}{}:
	case <-s.done:
		return errLost
	case <-cancel:
		return context.Canceled
	}
	defer func() { <-s.turn }()
	s.head = [headSize]byte{1: kind}
	binary.BigEndian.PutUint16(s.head[2:], flags)
	binary.BigEndian.PutUint32(s.head[4:], id)
	binary.BigEndian.PutUint32(s.head[8:], length)
	s.bufs = [2][]byte{s.head[:], body}
	bufs := net.Buffers(s.bufs[:])
	if len(body) == 0 {
		bufs = bufs[:1]
	}
	_ = s.conn.SetWriteDeadline(time.Now().Add(writeTime))
	if _, err := bufs.WriteTo(s.conn); err != nil {
		s.end(err)
		return errLost
	}
	return nil
}

// answer queues a frame for the guest, or drops it if too many wait. It does not block:
// receiving must not depend on the guest's reading.
func (s *Session) answer(r reply) {
	select {
	case s.replies <- r:
	default:
	}
}

// owe is answer for frames that must not be dropped. It waits while too many are queued.
func (s *Session) owe(r reply) error {
	select {
	case s.replies <- r:
		return nil
	case <-s.done:
		return errLost
	}
}

// reply sends the queued frames.
func (s *Session) reply() {
	for {
		select {
		case r := <-s.replies:
			if s.send(nil, r.kind, r.flags, r.id, r.length, nil) != nil {
				return
			}
		case <-s.done:
			return
		}
	}
}

// live sends pings and ends the session when the guest does not answer one.
func (s *Session) live() {
	tick := time.NewTicker(aliveTime / 2)
	defer tick.Stop()
	for n := uint32(1); ; n++ {
		for range 2 {
			select {
			case <-tick.C:
			case <-s.done:
				return
			}
			if asked := n - 1; s.pong.Load() != asked {
				s.end(errors.New("the guest does not answer pings"))
				return
			}
		}
		s.answer(reply{kindPing, flagSYN, 0, n})
	}
}

// receive reads frames until the connection ends or the guest breaks the protocol.
func (s *Session) receive() error {
	var head [headSize]byte
	for {
		if _, err := io.ReadFull(s.in, head[:]); err != nil {
			return err
		}
		r := reply{head[1], binary.BigEndian.Uint16(head[2:]), binary.BigEndian.Uint32(head[4:]), binary.BigEndian.Uint32(head[8:])}
		switch {
		case head[0] != 0:
			return fmt.Errorf("%w: version %d", errWire, head[0])
		case r.kind == kindData, r.kind == kindWindow:
			if err := s.frame(r); err != nil {
				return err
			}
		case r.kind == kindPing && r.flags&flagSYN != 0:
			s.answer(reply{kindPing, flagACK, 0, r.length})
		case r.kind == kindPing:
			s.pong.Store(r.length)
		default: // "go away", or an unknown kind
			return fmt.Errorf("%w: a frame of kind %d", errWire, r.kind)
		}
	}
}

// frame processes the frame of a stream. Its body was not read yet.
func (s *Session) frame(r reply) error {
	st, err := s.stream(r)
	if err != nil {
		return err
	}
	if r.kind == kindData && r.length > 0 {
		if st == nil || r.flags&flagRST != 0 {
			if r.flags&flagRST == 0 {
				s.answer(reply{kindWindow, flagRST, r.id, 0})
			}
			return s.discard(int(r.length))
		}
		if err := st.receive(int(r.length)); err != nil {
			return err
		}
	}
	if st == nil {
		return nil
	}
	if r.kind == kindWindow {
		if err := st.allow(r.length); err != nil {
			return err
		}
	}
	switch {
	case r.flags&flagRST != 0:
		s.forget(st)
		st.fail(errReset)
	case r.flags&flagFIN != 0 && st.ended():
		s.forget(st)
	}
	return nil
}

// stream returns the stream of a frame. It creates one if the frame opens it.
func (s *Session) stream(r reply) (*Stream, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.streams[r.id]
	if r.flags&flagACK != 0 && st != nil {
		s.established(st)
	}
	if r.flags&flagSYN == 0 || s.err != nil {
		return st, nil
	}
	if st != nil || r.id%2 != 0 || r.id == 0 {
		return nil, fmt.Errorf("%w: it opens stream %d", errWire, r.id)
	}
	if s.accepted < MaxAccepted {
		st = newStream(s, r.id)
		select {
		case s.accept <- st:
			s.streams[r.id] = st
			s.accepted++
			return st, nil
		default:
		}
	}
	s.answer(reply{kindWindow, flagRST, r.id, 0})
	return nil, nil
}

func (s *Session) discard(n int) error {
	_, err := s.in.Discard(n)
	return err
}
