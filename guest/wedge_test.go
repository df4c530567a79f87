package guest

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/yamux"
)

// A guest that answers nothing, or does not even read, blocks the callers that wait for it,
// and no others.
func TestSilentGuest(t *testing.T) {
	for name, serve := range map[string]func(net.Conn){
		"answers nothing": func(conn net.Conn) { _, _ = io.Copy(io.Discard, conn) },
		"takes nothing":   func(net.Conn) {},
	} {
		t.Run(name, func(t *testing.T) {
			ours, theirs := net.Pipe()
			defer theirs.Close()
			go serve(theirs)
			c := NewClient(func(context.Context) (net.Conn, error) { return ours, nil })
			ctx, cancel := context.WithCancel(t.Context())
			var waiting sync.WaitGroup
			for range 2 * yamux.DefaultConfig().AcceptBacklog { // streams pile up
				waiting.Go(func() { _, _ = c.open(ctx) })
			}
			one, stop := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer stop()
			err := c.Ping(one)
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("a ping: got %v", err)
			}
			c.Disconnect() // which must not wait
			if err := c.Close(); err != nil {
				t.Errorf("Close: %v", err)
			}
			cancel()
			waiting.Wait()
		})
	}
}

// A dial that does not end blocks neither a caller whose context ends nor Close.
func TestSlowDial(t *testing.T) {
	begun := make(chan struct{})
	c := NewClient(func(ctx context.Context) (net.Conn, error) {
		close(begun)
		<-ctx.Done()
		return nil, ctx.Err()
	})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { _, err := c.open(ctx); ended <- err }()
	<-begun
	gone, stop := context.WithCancel(t.Context())
	stop()
	if _, err := c.open(gone); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	c.Close()
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("the caller that dials: got %v", err)
	}
}

// Reading an answer whose head does not end fails.
func TestEndlessHead(t *testing.T) {
	var sent atomic.Int64
	c := NewClient(func(context.Context) (net.Conn, error) {
		ours, theirs := net.Pipe()
		session, err := yamux.Server(theirs, nil)
		if err != nil {
			return nil, err
		}
		go func() {
			for {
				stream, err := session.Accept()
				if err != nil {
					return
				}
				go func() {
					defer stream.Close()
					_, _ = stream.Read(make([]byte, 1<<10))
					_, _ = io.WriteString(stream, "HTTP/1.1 200 OK\r\n")
					for line := []byte("X-Long: " + strings.Repeat("x", 4<<10) +
						"\r\n"); sent.Load() < 64<<20; sent.Add(int64(len(line))) {
						if _, err := stream.Write(line); err != nil {
							return
						}
					}
				}()
			}
		}()
		return ours, nil
	})
	defer c.Close()
	for name, ask := range map[string]func() error{
		"port": func() error { _, err := c.DialPort(t.Context(), 80); return err },
		"ping": func() error { return c.Ping(t.Context()) },
		"file": func() error { _, _, err := c.ReadFile(t.Context(), "/mnt", "x", ""); return err },
	} {
		sent.Store(0)
		if err := ask(); err == nil || sent.Load() > 2<<20 {
			t.Errorf("%s: got %v after %d bytes", name, err, sent.Load())
		}
	}
}
