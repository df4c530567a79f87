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
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
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
	kindArena  = 4 // offer (SYN), acceptance (ACK), refusal (RST) and end (FIN) of shared memory
	kindSlot   = 5 // returns the units of a mask, which is in the place of the length

	flagSYN    = 1 << 0
	flagACK    = 1 << 1
	flagFIN    = 1 << 2
	flagRST    = 1 << 3
	flagShared = 1 << 4 // of data: the body is in a slot, the number of whose first unit follows the head
)

const (
	// MaxAccepted is the number of streams that the guest may have open. More are reset.
	MaxAccepted = 1024
	// maxOpened is the number of streams of the server that a guest accepts.
	maxOpened = 1 << 16

	firstWindow = 256 << 10 // of each stream in each direction, by the protocol
	fullWindow  = 512 << 10 // of a stream that is read, while there is room
	wideWindow  = sideSize  // the same with an arena
	maxFrame    = 256 << 10 // bytes of a sent frame
	maxOpening  = 256       // streams that the guest has not accepted yet
	maxReplies  = 256       // waiting to be sent; more are dropped

	openTime  = 10 * time.Second // for the guest to accept a stream
	writeTime = 30 * time.Second // for the guest to read a frame
	aliveTime = 30 * time.Second // between pings; each must be answered within half of it
)

var (
	// ErrLost means that the connection has ended.
	ErrLost = errors.New("the connection to the guest is lost")
	errWire = errors.New("the guest does not keep to the protocol")
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

// Client starts a session over conn, which it closes at the end. Received data counts
// towards pool; nil is the pool of the process. sleeper is nil for a sandbox that is not paused
// while it is connected.
func Client(conn net.Conn, pool *Pool, sleeper Sleeper) *Session {
	if pool == nil {
		pool = &process
	}
	s := newSession(conn, conn, pool)
	s.next, s.sleeper = 1, sleeper
	s.share.passer, _ = conn.(filePasser)
	s.start()
	go s.live()
	return s
}

// Guest starts the guest's end of a session over conn, which it closes at the end. It trusts
// its server: received data is bounded by the windows alone, and a server that is quiet is
// not given up.
func Guest(conn net.Conn) *Session {
	var in io.Reader = conn
	unix, _ := conn.(*net.UnixConn)
	files := &fileReader{conn: unix}
	if unix != nil {
		in = files
	}
	s := newSession(conn, in, &Pool{Max: math.MaxInt64})
	s.guest, s.next = true, 2
	if unix != nil {
		s.share.files = files
	}
	s.start()
	return s
}

func newSession(conn net.Conn, in io.Reader, pool *Pool) *Session {
	s := &Session{conn: conn, in: bufio.NewReaderSize(in, 4<<10),
		opening: make(chan struct{}, maxOpening), replies: make(chan reply, maxReplies), accept: make(chan *Stream,
			MaxAccepted),
		done: make(chan struct{}), turn: make(chan struct{}, 1), streams: map[uint32]*Stream{}}
	s.held = account{session: s, pool: pool, freed: make(chan struct{}, 1)}
	s.share.kick = make(chan struct{}, 1)
	return s
}

func (s *Session) start() {
	go func() { s.end(s.receive()) }()
	go s.reply()
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

// Open opens a stream. It returns before the guest has accepted the stream, but waits while
// too many are not accepted.
func (s *Session) Open(ctx context.Context) (*Stream, error) {
	select {
	case s.opening <- struct{}{}:
	case <-s.done:
		return nil, ErrLost
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	s.mu.Lock()
	if s.err != nil || s.next > 1<<31 {
		s.mu.Unlock()
		s.Close()
		return nil, ErrLost
	}
	st := newStream(s, s.next)
	wait := openTime
	if s.guest {
		wait = math.MaxInt64 // the server accepts streams when it has connected the sandbox to the network
	}
	st.slow = time.AfterFunc(wait, func() { s.end(errors.New("the guest does not accept streams")) })
	s.next += 2
	s.streams[st.id] = st
	s.mu.Unlock()
	sent := make(chan error, 1)
	// send blocks while the guest does not read
	go func() { sent <- s.send(ctx.Done(), kindWindow, flagSYN, st.id, 0, nil) }()
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

// live sends pings and ends the session when the guest does not answer one. It sends none to a
// sleeping guest, which may also owe the answer to the last one.
func (s *Session) live() {
	tick := time.NewTicker(aliveTime / 2)
	defer tick.Stop()
	sent, expected := uint32(0), uint32(0)
	for half := 1; ; half++ {
		select {
		case <-tick.C:
		case <-s.done:
			return
		}
		if s.sleeper != nil && s.sleeper.Asleep() {
			expected = s.pong.Load()
			continue
		}
		if s.pong.Load() < expected {
			s.end(errors.New("the guest does not answer pings"))
			return
		}
		if half%2 == 0 {
			sent++
			expected = sent
			s.answer(reply{kindPing, flagSYN, 0, sent})
			s.share.tick(s)
		}
	}
}

// receive reads frames until the connection ends or the guest breaks the protocol.
func (s *Session) receive() error {
	var head [headSize]byte
	for {
		if _, err := io.ReadFull(s.in, head[:]); err != nil {
			return err
		}
		r := reply{head[1], binary.BigEndian.Uint16(head[2:]), binary.BigEndian.Uint32(head[4:]),
			binary.BigEndian.Uint32(head[8:])}
		if s.sleeper != nil && r.kind != kindPing {
			s.sleeper.Received()
		}
		switch {
		case head[0] != 0:
			return fmt.Errorf("%w: version %d", errWire, head[0])
		case r.kind == kindData, r.kind == kindWindow:
			if err := s.frame(r); err != nil {
				return err
			}
		case r.kind == kindPing && r.flags&flagSYN != 0:
			s.answer(reply{kindPing, flagACK | r.flags&flagShared&s.share.able(), 0, r.length})
		case r.kind == kindPing && r.length == probe:
			s.share.probed(s, r.flags&flagShared != 0)
		case r.kind == kindPing:
			s.pong.Store(r.length)
		case r.kind == kindArena, r.kind == kindSlot:
			if err := s.share.receive(s, r); err != nil {
				return err
			}
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
	if r.kind == kindData && r.flags&flagShared != 0 {
		if err := s.shared(st, r); err != nil {
			return err
		}
	} else if r.kind == kindData && r.length > 0 {
		if st == nil || r.flags&flagRST != 0 {
			if r.flags&flagRST == 0 {
				s.answer(reply{kindWindow, flagRST, r.id, 0})
			}
			return s.discard(int(r.length))
		}
		if r.length >= minShared {
			s.share.large(s)
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
		st.fail(ErrReset)
	case r.flags&flagFIN != 0 && st.ended():
		s.forget(st)
	}
	return nil
}

// shared processes a frame whose body is in a slot.
func (s *Session) shared(st *Stream, r reply) error {
	var slot [4]byte
	if _, err := io.ReadFull(s.in, slot[:]); err != nil {
		return err
	}
	a := s.share.arena.Load()
	if a == nil || r.length > slotSize {
		return fmt.Errorf("%w: a body in shared memory that it does not have", errWire)
	}
	c, err := a.borrow(binary.BigEndian.Uint32(slot[:]), int(r.length))
	if err != nil {
		return err
	}
	if st == nil || r.flags&flagRST != 0 {
		s.share.giveBack(c)
		if r.flags&flagRST == 0 {
			s.answer(reply{kindWindow, flagRST, r.id, 0})
		}
		return nil
	}
	return st.receiveShared(c)
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
	if st != nil || !s.foreign(r.id) || r.id == 0 {
		return nil, fmt.Errorf("%w: it opens stream %d", errWire, r.id)
	}
	if limit := MaxAccepted; s.accepted < limit || s.guest && s.accepted < maxOpened {
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
