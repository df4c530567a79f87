package serial

import (
	"bytes"
	"context"
	"crypto/rand"
	"io"
	"net"
	"os"
	"sync"
	"testing"
	"time"
)

// A fakeLine is a port of a virtual machine: servers come and go, and their data stays.
type fakeLine struct {
	mu     sync.Mutex
	moved  *sync.Cond
	in     []byte // to the guest
	up     bool   // a server is there
	hungUp bool   // the hang-up was reported to the guest
	quiet  bool   // the hang-up is never reported, because the next server was faster
	out    []byte // to the server

	last sync.WaitGroup // the server before
}

func newFakeLine() *fakeLine {
	l := &fakeLine{}
	l.moved = sync.NewCond(&l.mu)
	return l
}

func (l *fakeLine) Read(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.in) == 0 {
		if !l.up && !l.hungUp && !l.quiet {
			l.hungUp = true
			return 0, nil
		}
		l.moved.Wait()
	}
	n := copy(p, l.in)
	l.in = l.in[n:]
	return n, nil
}

func (l *fakeLine) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.out) > 1<<16 {
		l.moved.Wait()
	}
	l.out = append(l.out, p...)
	l.moved.Broadcast()
	return len(p), nil
}

// connect returns a server's end of the line.
func (l *fakeLine) connect(t *testing.T) net.Conn {
	ours, theirs := net.Pipe()
	l.last.Wait()
	l.mu.Lock()
	l.up, l.hungUp = true, false
	l.mu.Unlock()
	var gone bool // guarded by l.mu
	l.last.Go(func() {
		io.Copy(writer(func(p []byte) {
			l.mu.Lock()
			l.in = append(l.in, p...)
			l.moved.Broadcast()
			l.mu.Unlock()
		}), theirs)
		l.mu.Lock()
		gone, l.up = true, false
		l.moved.Broadcast()
		l.mu.Unlock()
		theirs.Close()
	})
	l.last.Go(func() {
		for {
			l.mu.Lock()
			for len(l.out) == 0 && !gone {
				l.moved.Wait()
			}
			if gone {
				l.mu.Unlock()
				return
			}
			part := l.out[:min(len(l.out), 1000)]
			l.mu.Unlock()
			n, err := theirs.Write(part)
			l.mu.Lock()
			l.out = l.out[n:]
			l.moved.Broadcast()
			l.mu.Unlock()
			if err != nil {
				return
			}
		}
	})
	t.Cleanup(func() { ours.Close() })
	return ours
}

type writer func([]byte)

func (w writer) Write(p []byte) (int, error) { w(p); return len(p), nil }

// echo answers every connection with its own data.
func echo(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			io.Copy(c, c)
		}()
	}
}

// talk sends more than the line holds and checks that it comes back.
func talk(t *testing.T, c *Conn) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := c.Await(ctx); err != nil {
		t.Fatalf("Await: %v", err)
	}
	sent := make([]byte, 300<<10)
	rand.Read(sent)
	go c.Write(sent)
	got := make([]byte, len(sent))
	if _, err := io.ReadFull(c, got); err != nil || !bytes.Equal(got, sent) {
		t.Fatalf("the data that came back differs: %v", err)
	}
}

func dial(t *testing.T, l *fakeLine) *Conn {
	t.Helper()
	c, err := Dial(l.connect(t))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestConversation(t *testing.T) {
	line, opened := newFakeLine(), make(chan time.Time, 1)
	l := Listen([]Line{line}, func(now time.Time) { opened <- now })
	defer l.Close()
	go echo(l)
	talk(t, dial(t, line))
	if off := time.Since(<-opened); off < 0 || off > time.Minute {
		t.Errorf("the server's time: got %v ago", off)
	}
}

// TestEnd checks that the guest's end of a connection is the server's.
func TestEnd(t *testing.T) {
	line := newFakeLine()
	l := Listen([]Line{line}, nil)
	defer l.Close()
	go func() {
		c, _ := l.Accept()
		io.WriteString(c, "bye")
		c.Close()
	}()
	if got, err := io.ReadAll(dial(t, line)); string(got) != "bye" || err != nil {
		t.Errorf("got %q, %v, want bye", got, err)
	}
}

// TestServerDies ends the server in the middle of a transfer, in both directions, with and
// without a hang-up that the guest sees.
func TestServerDies(t *testing.T) {
	for _, quiet := range []bool{false, true} {
		line := newFakeLine()
		line.quiet = quiet
		l := Listen([]Line{line}, nil)
		defer l.Close()
		go echo(l)
		for cut := 0; cut < 40; cut++ {
			first := line.connect(t)
			c, err := Dial(first)
			if err != nil {
				t.Fatal(err)
			}
			// Data whose answer is not read, and an incomplete frame.
			if cut%2 == 0 {
				c.Write(make([]byte, 20<<10))
			}
			first.Write(appendFrame(nil, data, bytes.Repeat([]byte{magic}, 5000))[:cut*7])
			first.Close()
			next := dial(t, line)
			talk(t, next)
			next.Close()
		}
	}
}

// TestBrokenOff checks that neither an incomplete frame nor the next server's padding is
// delivered.
func TestBrokenOff(t *testing.T) {
	line := newFakeLine()
	line.quiet = true
	l := Listen([]Line{line}, nil)
	defer l.Close()
	first := line.connect(t)
	if _, err := Dial(first); err != nil {
		t.Fatal(err)
	}
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	first.Write(appendFrame(nil, data, []byte("whole")))
	first.Write(appendFrame(nil, data, bytes.Repeat([]byte("x"), 100))[:60])
	first.Close()
	got := make(chan string, 1)
	go func() {
		b, _ := io.ReadAll(c)
		got <- string(b)
	}()
	dial(t, line)
	if s := <-got; s != "whole" {
		t.Errorf("got %q, want the complete frames", s)
	}
}

func TestAwaitGivesUp(t *testing.T) {
	c := dial(t, newFakeLine()) // without a listener
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if err := c.Await(ctx); err == nil || !os.IsTimeout(err) && ctx.Err() == nil {
		t.Errorf("Await: got %v, want that it gave up", err)
	}
}

func FuzzReadFrame(f *testing.F) {
	f.Add(appendFrame(nil, data, []byte("hello")))
	f.Add(appendFrame(appendFrame(nil, hello, make([]byte, helloSize)), end, nil)[3:])
	f.Fuzz(func(t *testing.T, b []byte) {
		good := appendFrame(nil, data, []byte("good"))
		// After any data and the padding, a frame is read.
		r := newReader(io.MultiReader(bytes.NewReader(b), bytes.NewReader(make([]byte, headerSize+maxPayload)),
			bytes.NewReader(good)))
		for {
			_, payload, err := readFrame(r)
			if err == errFrame {
				continue
			}
			if err != nil {
				t.Fatalf("the frame was lost: %v", err)
			}
			if string(payload) == "good" && r.Buffered() == 0 {
				return
			}
		}
	})
}
