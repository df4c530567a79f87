package mux

import (
	"bufio"
	"context"
	"errors"
	"io"
	"math"
	"net"
	"time"
)

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
