package guest

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/yamux"

	"github.com/berth-run/berth/guest/mux"
)

// Of 10,000 streams that a guest opens at the same time, with forged frames and half of the requests
// unfinished, a bounded number is served.
func TestFloodOfStreams(t *testing.T) {
	ours, theirs := net.Pipe()
	defer theirs.Close()
	go io.Copy(io.Discard, theirs)
	c := NewClient(func(context.Context) (net.Conn, error) { return ours, nil })
	defer c.Close()
	if _, err := c.connected(t.Context()); err != nil {
		t.Fatal(err)
	}
	var serving, most atomic.Int64
	hold := make(chan struct{})
	defer close(hold)
	out := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		n := serving.Add(1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		<-hold
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go c.Outward(ctx, out, func() Network { return Network{} }, func(error) {})
	const (
		typeData = 0
		flagSYN  = 1
		bound    = mux.MaxAccepted
	)
	for i := range uint32(10_000) {
		said := "CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\n"
		if i%2 == 0 {
			said = said[:len(said)-2]
		}
		frame := []byte{0, typeData, 0, flagSYN}
		frame = binary.BigEndian.AppendUint32(frame, 2+2*i)
		frame = binary.BigEndian.AppendUint32(frame, uint32(len(said)))
		_ = theirs.SetWriteDeadline(time.Now().Add(30 * time.Second))
		if _, err := theirs.Write(append(frame, said...)); err != nil {
			t.Fatalf("stream %d: %v", i, err)
		}
		if n := c.session.Streams(); n > bound+1 { // and the one of SetNetwork
			t.Fatalf("%d streams are open", n)
		}
	}
	for end := time.Now().Add(20 * time.Second); most.Load() < mux.MaxAccepted/4 && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	if n := most.Load(); n > mux.MaxAccepted || n < mux.MaxAccepted/4 {
		t.Errorf("%d were served at once", n)
	}
}

// A guest's requests end with its connection. A handler that has taken over the stream
// learns of that by its context only.
func TestRequestsEndWithTheirSession(t *testing.T) {
	ours, theirs := net.Pipe()
	hostile, err := yamux.Server(theirs, nil)
	if err != nil {
		t.Fatal(err)
	}
	c := NewClient(func(context.Context) (net.Conn, error) { return ours, nil })
	defer c.Close()
	begun, ended := make(chan struct{}), make(chan struct{})
	out := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		close(begun)
		<-r.Context().Done()
		close(ended)
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go c.Outward(ctx, out, func() Network { return Network{} }, func(error) {})
	stream, err := hostile.Open()
	if err != nil {
		t.Fatal(err)
	}
	go io.WriteString(stream, "CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\n")
	<-begun
	hostile.Close()
	select {
	case <-ended:
	case <-time.After(10 * time.Second):
		t.Error("the request goes on")
	}
}
