package mux

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/yamux"
	"golang.org/x/sys/unix"
)

// A passer is a socket that passes descriptors, as a driver's does.
type passer struct{ *net.UnixConn }

func (p passer) WriteFile(b []byte, f *os.File) error {
	_, _, err := p.WriteMsgUnix(b, unix.UnixRights(int(f.Fd())), nil)
	return err
}

// shared returns both ends of a session with an arena, and a stream of it.
func shared(t *testing.T) (s, guest *Session, st, other *Stream) {
	t.Helper()
	before := arenas.Load()
	ours, theirs := sockets(t)
	s, guest = Client(passer{ours.(*net.UnixConn)}, &Pool{Max: 16 << 20}, nil), Guest(theirs)
	t.Cleanup(func() {
		s.Close()
		guest.Close()
		until(t, "the arena is unmapped", func() bool { return arenas.Load() == before })
	})
	st, other = open(t, s, guest)
	attach(t, s, st, other)
	return s, guest, st, other
}

func open(t *testing.T, s, guest *Session) (st, other *Stream) {
	t.Helper()
	st, err := s.Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	c, err := guest.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { st.Close(); c.Close() })
	return st, c.(*Stream)
}

// attach sends a large frame and waits for the arena that it causes.
func attach(t *testing.T, s *Session, from, to *Stream) {
	t.Helper()
	go from.Write(make([]byte, minShared))
	if _, err := io.ReadFull(to, make([]byte, minShared)); err != nil {
		t.Fatal(err)
	}
	until(t, "the session has an arena", func() bool { return s.share.arena.Load() != nil })
}

// free reports whether no unit of an arena is in use.
func free(a *arena) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.free == allUnits && a.lent == 0
}

func randomBytes(seed uint64, n int) []byte {
	b := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)}).Read(b)
	return b
}

// Streams of both directions carry pieces of all sizes through an arena, some by Write and
// some by ReadFrom. In the end every unit is free again.
func TestShared(t *testing.T) {
	s, guest, _, _ := shared(t)
	var all sync.WaitGroup
	carry := func(from, to *Stream, seed uint64) {
		sent, random := randomBytes(seed, 5<<20), rand.New(rand.NewPCG(seed, 1))
		all.Go(func() {
			defer from.CloseWrite()
			if seed%3 == 0 {
				if n, err := from.ReadFrom(bytes.NewReader(sent)); n != int64(len(sent)) || err != nil {
					t.Errorf("sent %d bytes, %v", n, err)
				}
				return
			}
			for rest := sent; len(rest) > 0; {
				n := min(len(rest), 1+random.IntN(900<<10))
				if _, err := from.Write(rest[:n]); err != nil {
					t.Error(err)
					return
				}
				rest = rest[n:]
			}
		})
		all.Go(func() {
			if got, err := io.ReadAll(to); err != nil || !bytes.Equal(got, sent) {
				t.Errorf("got %d bytes and %v, want the %d that were sent", len(got), err, len(sent))
			}
		})
	}
	for i := range uint64(6) {
		st, other := open(t, s, guest)
		carry(st, other, 2*i)
		carry(other, st, 2*i+1)
	}
	all.Wait()
	for _, end := range []*Session{s, guest} {
		a := end.share.arena.Load()
		until(t, "every unit is free", func() bool { return free(a) })
	}
	until(t, "nothing is held", func() bool { return s.held.pool.Held() == 0 })
}

// An arena that was not used for a while is given back, and a large frame makes another.
func TestSharedRetires(t *testing.T) {
	before := arenas.Load()
	s, guest, st, other := shared(t)
	for range 2 {
		for end := time.Now().Add(10 * time.Second); s.share.arena.Load() != nil ||
			guest.share.arena.Load() != nil; time.Sleep(time.Millisecond) {
			if s.share.tick(s); time.Now().After(end) {
				t.Fatal("the arena is still there")
			}
		}
		if n := arenas.Load(); n != before {
			t.Fatalf("%d arenas are mapped, want %d", n, before)
		}
		attach(t, s, other, st) // from the guest
	}
}

// Streams that are not read hold all slots; others go on without.
func TestSharedStalled(t *testing.T) {
	s, guest, _, _ := shared(t)
	for range 4 {
		_, other := open(t, s, guest)
		go other.Write(make([]byte, 1<<20))
	}
	a := guest.share.arena.Load()
	until(t, "no slot is free", func() bool {
		_, piece := a.assign(unitSize)
		if piece != nil {
			a.drop() // keeps the unit: the test takes what the streams leave
		}
		return piece == nil
	})
	st, other := open(t, s, guest)
	want := randomBytes(1, 3<<20)
	go other.Write(want)
	got := make([]byte, len(want))
	if _, err := io.ReadFull(st, got); err != nil || !bytes.Equal(got, want) {
		t.Errorf("got other data or %v", err)
	}
}

// What has arrived in shared memory can be read after the session has ended, when the memory
// is gone.
func TestSharedOutlived(t *testing.T) {
	before := arenas.Load()
	s, guest, st, other := shared(t)
	want := randomBytes(2, 150<<10)
	if _, err := other.Write(want); err != nil {
		t.Fatal(err)
	}
	until(t, "the data has arrived", func() bool { st.mu.Lock(); defer st.mu.Unlock(); return st.unread == len(want) })
	guest.Close()
	<-s.Done()
	until(t, "the arena is unmapped", func() bool { return arenas.Load() < before+1 })
	got := make([]byte, len(want))
	if _, err := io.ReadFull(st, got); err != nil || !bytes.Equal(got, want) {
		t.Errorf("got other data or %v", err)
	}
}

// A guest of an earlier version is not offered an arena.
func TestSharedWithYamux(t *testing.T) {
	ours, theirs := sockets(t)
	config := yamux.DefaultConfig()
	config.LogOutput = io.Discard
	guest, err := yamux.Server(theirs, config)
	if err != nil {
		t.Fatal(err)
	}
	s := Client(passer{ours.(*net.UnixConn)}, &Pool{Max: 16 << 20}, nil)
	t.Cleanup(func() { s.Close(); guest.Close() })
	st, other := streams(t, s, guest)
	want := randomBytes(3, 1<<20)
	for from, to := range map[net.Conn]net.Conn{st: other, other: st} {
		go from.Write(want)
		got := make([]byte, len(want))
		if _, err := io.ReadFull(to, got); err != nil || !bytes.Equal(got, want) {
			t.Errorf("got other data or %v", err)
		}
	}
	until(t, "the guest has declined", func() bool { return s.share.state.Load() == sharingNever })
}

// offered returns a session whose guest is the other end of a socket and has got an arena.
func offered(t *testing.T) (*Session, *net.UnixConn, *os.File) {
	t.Helper()
	ours, theirs := sockets(t)
	s := Client(passer{ours.(*net.UnixConn)}, &Pool{Max: 16 << 20}, nil)
	t.Cleanup(func() { s.Close() })
	in := &fileReader{conn: theirs.(*net.UnixConn)}
	expect := func(kind byte) {
		head := make([]byte, headSize)
		for head[1] = 255; head[1] != kind; {
			if _, err := io.ReadFull(in, head); err != nil {
				t.Fatal(err)
			}
		}
	}
	theirs.Write(wire(kindData, flagSYN, 2, minShared, string(make([]byte, minShared))))
	expect(kindPing)
	theirs.Write(wire(kindPing, flagACK|flagShared, 0, probe, ""))
	expect(kindArena)
	if in.file == nil {
		t.Fatal("no descriptor came with the offer")
	}
	t.Cleanup(func() { in.file.Close() })
	return s, in.conn, in.file
}

func sharedFrame(id uint32, unit, length uint32) []byte {
	return binary.BigEndian.AppendUint32(wire(kindData, flagShared, id, length, ""), unit)
}

// A guest that misuses shared memory loses the connection, and the memory is unmapped.
func TestBrokenSharing(t *testing.T) {
	accept := wire(kindArena, flagACK, 0, 0, "")
	after := func(frames ...[]byte) []byte { return append(bytes.Clone(accept), bytes.Join(frames, nil)...) }
	for name, sent := range map[string][]byte{
		"data before acceptance":     sharedFrame(2, 0, 100),
		"slots before acceptance":    wire(kindSlot, 0, 0, 1, ""),
		"accepted twice":             after(accept),
		"offered by the guest":       after(wire(kindArena, flagSYN, 0, 0, "")),
		"ended by the guest":         after(wire(kindArena, flagFIN, 0, 0, "")),
		"beyond the last unit":       after(sharedFrame(2, unitCount, 100)),
		"reaching over the end":      after(sharedFrame(2, unitCount-1, unitSize+1)),
		"a huge unit":                after(sharedFrame(2, 1<<32-1, 100)),
		"larger than a slot":         after(sharedFrame(2, 0, slotSize+1)),
		"empty":                      after(sharedFrame(2, 0, 0)),
		"a unit twice":               after(sharedFrame(2, 1, 100), sharedFrame(2, 1, 100)),
		"overlapping units":          after(sharedFrame(2, 1, unitSize), sharedFrame(2, 0, unitSize+1)),
		"more than the window":       after(sharedFrame(2, 0, 200<<10), sharedFrame(2, 4, 200<<10)),
		"returns what it has not":    after(wire(kindSlot, 0, 0, 1, "")),
		"returns units beyond all":   after(wire(kindSlot, 0, 0, 1<<unitCount, "")),
		"an unknown frame of kind 4": after(wire(kindArena, 0, 0, 0, "")),
	} {
		t.Run(name, func(t *testing.T) {
			before := arenas.Load()
			s, theirs, _ := offered(t)
			st, err := s.Open(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if _, err := theirs.Write(sent); err != nil {
				t.Fatal(err)
			}
			select {
			case <-s.Done():
			case <-time.After(10 * time.Second):
				t.Fatal("the session goes on")
			}
			if _, err := io.ReadAll(st); !errors.Is(err, ErrLost) || !strings.Contains(err.Error(), errWire.Error()) {
				t.Errorf("a stream ends with %v, want %v and the reason", err, ErrLost)
			}
			until(t, "the memory is unmapped", func() bool { return arenas.Load() == before })
			if n := s.held.pool.Held(); n != 0 {
				t.Errorf("%d bytes are held", n)
			}
		})
	}
}

// A guest cannot take the memory away while the server reads it: that would kill the server.
func TestSealed(t *testing.T) {
	s, theirs, f := offered(t)
	theirs.Write(wire(kindArena, flagACK, 0, 0, ""))
	c, err := s.Accept()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(c, make([]byte, minShared)); err != nil {
		t.Fatal(err)
	}
	if err := f.Truncate(0); err == nil {
		t.Error("the guest could shrink the memory")
	}
	if err := f.Truncate(2 * arenaSize); err == nil {
		t.Error("the guest could grow the memory")
	}
	if _, err := f.WriteAt([]byte("hello"), sideSize); err != nil {
		t.Fatal(err)
	}
	theirs.Write(sharedFrame(2, 0, 5))
	got := make([]byte, 5)
	if _, err := io.ReadFull(c, got); err != nil || string(got) != "hello" {
		t.Errorf("got %q, %v", got, err)
	}
}

// A guest that sends large pieces while it gets the memory uses it only when the server knows
// that it has it: a frame in shared memory before that would end the session.
func TestSharedWhileSending(t *testing.T) {
	for range 50 {
		ours, theirs := sockets(t)
		s, guest := Client(passer{ours.(*net.UnixConn)}, &Pool{Max: 16 << 20}, nil), Guest(theirs)
		var all sync.WaitGroup
		for range 4 {
			st, other := open(t, s, guest)
			all.Go(func() {
				defer other.CloseWrite()
				for range 20 {
					if _, err := other.Write(make([]byte, minShared)); err != nil {
						t.Error(err)
						return
					}
				}
			})
			all.Go(func() {
				if n, err := io.Copy(io.Discard, st); n != 20*minShared || err != nil {
					t.Errorf("got %d bytes, %v", n, err)
				}
			})
		}
		all.Wait()
		s.mu.Lock()
		if s.err != nil {
			t.Errorf("the session has ended: %v", s.err)
		}
		s.mu.Unlock()
		s.Close()
		guest.Close()
	}
}
