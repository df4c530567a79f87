package mux

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/yamux"
)

// pair returns a session with a real guest's end.
func pair(t *testing.T) (*Session, *yamux.Session) {
	t.Helper()
	ours, theirs := sockets(t)
	config := yamux.DefaultConfig()
	config.LogOutput = io.Discard
	guest, err := yamux.Server(theirs, config)
	if err != nil {
		t.Fatal(err)
	}
	s := Client(ours, &Pool{Max: 16 << 20}, nil)
	t.Cleanup(func() { s.Close(); guest.Close() })
	return s, guest
}

// streams returns the two ends of a stream that the server has opened.
func streams(t *testing.T, s *Session, guest *yamux.Session) (*Stream, net.Conn) {
	t.Helper()
	st, err := s.Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	other, err := guest.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { st.Close() })
	return st, other
}

func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not in time: %s", what)
		}
	}
}

// Many streams carry data in pieces of all sizes, whichever side opens them. When all was
// read, nothing is held.
func TestCarry(t *testing.T) {
	s, guest := pair(t)
	var all sync.WaitGroup
	carry := func(from, to net.Conn, seed uint64) {
		random := rand.New(rand.NewPCG(seed, 1))
		sent := make([]byte, 1<<20)
		for i := range sent {
			sent[i] = byte(random.Uint32())
		}
		all.Go(func() {
			for rest := sent; len(rest) > 0; {
				n := min(len(rest), 1+random.IntN(200<<10))
				if random.IntN(2) == 0 {
					n = min(n, 100)
				}
				if _, err := from.Write(rest[:n]); err != nil {
					t.Error(err)
					return
				}
				rest = rest[n:]
			}
			if err := closeWrite(from); err != nil {
				t.Error(err)
			}
		})
		all.Go(func() {
			got, err := io.ReadAll(to)
			if err != nil || !bytes.Equal(got, sent) {
				t.Errorf("got %d bytes and %v, want the %d that were sent", len(got), err, len(sent))
			}
		})
	}
	for i := range uint64(8) {
		var st, other net.Conn
		if i%2 == 0 {
			st, other = streams(t, s, guest)
		} else {
			var err error
			if other, err = guest.Open(); err != nil {
				t.Fatal(err)
			}
			if st, err = s.Accept(); err != nil {
				t.Fatal(err)
			}
		}
		carry(st, other, 2*i)
		carry(other, st, 2*i+1)
	}
	all.Wait()
	until(t, "every stream is forgotten", func() bool { return s.Streams() == 0 })
	until(t, "nothing is held", func() bool { return s.held.pool.Held() == 0 })
}

func closeWrite(c net.Conn) error {
	if st, ok := c.(*Stream); ok {
		return st.CloseWrite()
	}
	return c.Close() // of yamux: for writing
}

// A reset ends writes and reads, on either side.
func TestReset(t *testing.T) {
	s, guest := pair(t)
	st, other := streams(t, s, guest)
	if err := st.Reset(); err != nil {
		t.Fatal(err)
	}
	if _, err := other.Read(make([]byte, 1)); !errors.Is(err, yamux.ErrConnectionReset) {
		t.Errorf("reading: got %v", err)
	}
	if _, err := other.Write(make([]byte, 1<<20)); !errors.Is(err, yamux.ErrConnectionReset) {
		t.Errorf("writing: got %v", err)
	}
	if _, err := st.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
		t.Errorf("reading what was reset: got %v", err)
	}
	if s.Streams() != 0 {
		t.Errorf("%d streams are left", s.Streams())
	}
}

// Data for a closed stream is dropped, and its sender gets an error.
func TestSentToClosed(t *testing.T) {
	s, guest := pair(t)
	st, other := streams(t, s, guest)
	st.Close()
	if s.Streams() != 0 {
		t.Error("the stream is still there")
	}
	other.SetDeadline(time.Now().Add(10 * time.Second))
	var err error
	for range 10 {
		if _, err = other.Write(make([]byte, 256<<10)); err != nil {
			break
		}
	}
	if !errors.Is(err, yamux.ErrConnectionReset) {
		t.Errorf("got %v", err)
	}
	until(t, "nothing is held", func() bool { return s.held.pool.Held() == 0 })
}

// A writer that waits for the window gets an error when the stream is closed.
func TestClosedBeforeBlocked(t *testing.T) {
	for name, end := range map[string]func(*Stream){
		"closed":      func(st *Stream) { st.Close() },
		"half closed": func(st *Stream) { st.CloseWrite(); st.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			s, guest := pair(t)
			st, other := streams(t, s, guest)
			blocked := make(chan error, 1)
			go func() { _, err := other.Write(make([]byte, 4<<20)); blocked <- err }()
			until(t, "the window is used up", func() bool {
				st.mu.Lock()
				defer st.mu.Unlock()
				return st.may == 0
			})
			end(st)
			if err := <-blocked; !errors.Is(err, yamux.ErrConnectionReset) {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestDeadlines(t *testing.T) {
	s, guest := pair(t)
	st, _ := streams(t, s, guest)
	for range 2 {
		st.SetDeadline(time.Now().Add(10 * time.Millisecond))
		if _, err := st.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("reading: got %v", err)
		}
		if _, err := st.Write(make([]byte, 4<<20)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("writing: got %v", err)
		}
	}
	st.SetDeadline(time.Time{})
	blocked := make(chan error, 2)
	go func() { _, err := st.Read(make([]byte, 1)); blocked <- err }()
	go func() { _, err := st.Write(make([]byte, 4<<20)); blocked <- err }()
	st.SetDeadline(time.Unix(1, 0)) // whether they are blocked already or not
	for range 2 {
		if err := <-blocked; !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("got %v", err)
		}
	}
}

// Blocked calls return when their stream is closed, when its session is, and when the guest
// disconnects.
func TestBlockedAreTold(t *testing.T) {
	for name, end := range map[string]func(*Stream, *yamux.Session){
		"stream":  func(st *Stream, _ *yamux.Session) { st.Close() },
		"session": func(st *Stream, _ *yamux.Session) { st.Session().Close() },
		"guest":   func(_ *Stream, guest *yamux.Session) { guest.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			s, guest := pair(t)
			st, _ := streams(t, s, guest)
			blocked := make(chan error, 2)
			go func() { _, err := st.Read(make([]byte, 1)); blocked <- err }()
			go func() { _, err := st.Write(make([]byte, 4<<20)); blocked <- err }()
			end(st, guest)
			for range 2 {
				if err := <-blocked; err == nil || err == io.EOF {
					t.Errorf("got %v", err)
				}
			}
		})
	}
}

// hostile returns a session whose guest is the other end of a pipe. Its frames are dropped
// there.
func hostile(t *testing.T, pool *Pool) (*Session, net.Conn) {
	t.Helper()
	ours, theirs := net.Pipe()
	go io.Copy(io.Discard, theirs)
	s := Client(ours, pool, nil)
	t.Cleanup(func() { s.Close(); theirs.Close() })
	_ = theirs.SetWriteDeadline(time.Now().Add(30 * time.Second))
	return s, theirs
}

func wire(kind byte, flags uint16, id, length uint32, body string) []byte {
	f := binary.BigEndian.AppendUint16([]byte{0, kind}, flags)
	f = binary.BigEndian.AppendUint32(f, id)
	f = binary.BigEndian.AppendUint32(f, length)
	return append(f, body...)
}

// A guest that breaks the protocol loses the connection; nothing panics and nothing is held.
func TestBrokenProtocol(t *testing.T) {
	open := wire(kindData, flagSYN, 2, 0, "")
	for name, said := range map[string][]byte{
		"another version":      {1, kindData, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0},
		"an unknown kind":      wire(9, 0, 2, 0, ""),
		"it goes away":         wire(kindGoAway, 0, 0, 0, ""),
		"one of our streams":   wire(kindData, flagSYN, 3, 0, ""),
		"stream 0":             wire(kindData, flagSYN, 0, 0, ""),
		"a stream twice":       append(open, open...),
		"more than the window": append(open, wire(kindData, 0, 2, firstWindow+1, "")...),
		"an endless frame":     append(open, wire(kindData, 0, 2, 1<<32-1, "")...),
		"a window that overflows": append(append(open, wire(kindWindow, 0, 2, 1<<31-1, "")...), wire(kindWindow, 0, 2,
			1<<31-1, "")...),
	} {
		t.Run(name, func(t *testing.T) {
			pool := &Pool{Max: 16 << 20}
			s, theirs := hostile(t, pool)
			if _, err := theirs.Write(said); err != nil {
				t.Fatal(err)
			}
			select {
			case <-s.Done():
			case <-time.After(10 * time.Second):
				t.Fatal("the session goes on")
			}
			if pool.Held() != 0 {
				t.Errorf("%d bytes are held", pool.Held())
			}
		})
	}
}

// Frames of unknown streams, and flags that make no sense, do no harm.
func TestStrangeFrames(t *testing.T) {
	s, theirs := hostile(t, &Pool{Max: 16 << 20})
	for _, f := range [][]byte{
		wire(kindData, 0, 77, 3, "abc"), wire(kindData, flagRST, 78, 3, "abc"),
		wire(kindWindow, flagFIN|flagACK|flagRST, 79, 9, ""),
		wire(kindPing, flagACK, 0, 0, ""), wire(kindWindow, flagACK, 1, 0, ""),
		wire(kindData, flagSYN|flagACK|flagFIN, 2, 3, "abc"), wire(kindWindow, flagFIN, 2, 0, ""),
		wire(kindData, 0, 2, 3, "def"),
		wire(kindData, flagSYN|flagRST, 4, 0, ""), wire(kindData, flagRST, 4, 0, ""),
	} {
		if _, err := theirs.Write(f); err != nil {
			t.Fatal(err)
		}
	}
	c, err := s.Accept()
	if err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(c); err != nil || string(got) != "abc" {
		t.Errorf("got %q, %v", got, err)
	}
	if s.Ended() {
		t.Error("the session has ended")
	}
}

// A session that holds too much, or more than its share when all sessions do, loses the
// streams that hold the most; the others go on.
func TestFullest(t *testing.T) {
	pool := &Pool{Max: 6 << 20}
	calm, quiet := hostile(t, pool)
	if _, err := quiet.Write(wire(kindData, flagSYN, 2, 64<<10, string(make([]byte, 64<<10)))); err != nil {
		t.Fatal(err)
	}
	s, theirs := hostile(t, pool)
	if _, err := theirs.Write(wire(kindData, flagSYN, 2, 5, "small")); err != nil {
		t.Fatal(err)
	}
	full := string(make([]byte, firstWindow))
	for i := range uint32(60) {
		if _, err := theirs.Write(wire(kindData, flagSYN, 4+2*i, firstWindow, full)); err != nil {
			t.Fatal(err)
		}
		if n := pool.Held(); n > pool.Max {
			t.Fatalf("%d bytes are held", n)
		}
	}
	pool.held.Add(pool.Max) // a session may hold its share whatever others hold
	defer pool.held.Add(-pool.Max)
	for i := range uint32(4) {
		if _, err := quiet.Write(wire(kindData, flagSYN, 4+2*i, firstWindow, full)); err != nil {
			t.Fatal(err)
		}
	}
	for session, want := range map[*Session]int{calm: 64 << 10, s: 5} {
		c, err := session.Accept()
		if err != nil {
			t.Fatal(err)
		}
		if n, err := io.ReadFull(c, make([]byte, want)); err != nil {
			t.Errorf("a stream that holds little: got %d bytes and %v", n, err)
		}
	}
	for range 4 {
		c, err := calm.Accept()
		if err != nil {
			t.Fatal(err)
		}
		if n, err := io.ReadFull(c, make([]byte, firstWindow)); err != nil {
			t.Errorf("a stream of a session that holds little: got %d bytes and %v", n, err)
		}
	}
	c, err := s.Accept()
	if err != nil {
		t.Fatal(err)
	}
	if n, err := c.Read(make([]byte, 1)); !errors.Is(err, errFull) {
		t.Errorf("the first that was full: got %d bytes and %v", n, err)
	}
	s.Close()
	calm.Close()
	if n := pool.Held() - pool.Max; n != 0 {
		t.Errorf("%d bytes are held after all", n)
	}
}

// A write to a guest that reads nothing ends with the caller's context or deadline.
func TestDeafGuest(t *testing.T) {
	ours, theirs := net.Pipe()
	defer theirs.Close()
	s := Client(ours, nil, nil)
	defer s.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	var err error
	for err == nil {
		var st *Stream
		if st, err = s.Open(ctx); err == nil {
			defer st.Close()
		}
	}
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
}

// A guest that does not answer pings loses its session; one that does stays connected.
func TestSignsOfLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		silent, living := func() *Session {
			ours, theirs := net.Pipe()
			go io.Copy(io.Discard, theirs)
			return Client(ours, &Pool{Max: 1 << 20}, nil)
		}(), func() *Session {
			ours, theirs := net.Pipe()
			go func() { // not hashicorp's, whose timers outlive the bubble
				for head := make([]byte, headSize); ; {
					if _, err := io.ReadFull(theirs, head); err != nil {
						return
					}
					_, _ = theirs.Write(wire(kindPing, flagACK, 0, binary.BigEndian.Uint32(head[8:]), ""))
				}
			}()
			return Client(ours, &Pool{Max: 1 << 20}, nil)
		}()
		time.Sleep(aliveTime - time.Second)
		if silent.Ended() {
			t.Error("it ends before the first ping")
		}
		time.Sleep(aliveTime)
		if !silent.Ended() {
			t.Error("a silent guest's session goes on")
		}
		time.Sleep(20 * aliveTime)
		if living.Ended() {
			t.Error("a living guest's session has ended")
		}
		living.Close()
	})
}

// FuzzSession reads what a guest might send.
func FuzzSession(f *testing.F) {
	f.Add(wire(kindData, flagSYN, 2, 3, "abc"))
	f.Add(append(wire(kindData, flagSYN, 2, 3, "abc"), wire(kindWindow, flagFIN, 2, 3, "")...))
	f.Add(append(wire(kindPing, flagSYN, 0, 3, ""), wire(kindData, flagRST, 2, 1<<31, "")...))
	f.Fuzz(func(t *testing.T, said []byte) {
		pool := &Pool{Max: 1 << 20}
		s, theirs := hostile(t, pool)
		_, _ = theirs.Write(said)
		theirs.Close()
		<-s.Done()
		if pool.Held() != 0 {
			t.Errorf("%d bytes are held", pool.Held())
		}
	})
}
