package guest

import (
	"bufio"
	"context"
	"encoding/binary"
	"io"
	"net"
	"net/http"
	"runtime"
	"sync/atomic"
	"testing"
	"time"
)

// Frames as a hostile guest writes them.
const (
	typeData = 0
	typePing = 2
	flagSYN  = 1
)

func muxFrame(kind, flags byte, stream, length uint32, body string) []byte {
	f := []byte{0, kind, 0, flags}
	f = binary.BigEndian.AppendUint32(f, stream)
	f = binary.BigEndian.AppendUint32(f, length)
	return append(f, body...)
}

// hostileOutward returns a client and the connection of its guest. The client's own frames
// are dropped there unless deaf is set.
func hostileOutward(t *testing.T, out http.Handler, deaf bool) (*Client, net.Conn) {
	t.Helper()
	ours, theirs := net.Pipe()
	t.Cleanup(func() { theirs.Close() })
	if !deaf {
		go io.Copy(io.Discard, theirs)
	}
	c := NewClient(func(context.Context) (net.Conn, error) { return ours, nil })
	t.Cleanup(func() { c.Close() })
	if _, err := c.connected(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	go c.Outward(ctx, out, func() Network { return Network{} }, func(error) {})
	_ = theirs.SetWriteDeadline(time.Now().Add(30 * time.Second))
	return c, theirs
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse) + int64(m.StackInuse)
}

// A guest that sends data that is not read, on all streams that it gets, fills a bounded
// part of the server's memory, and the streams that hold the most end.
func TestUnreadStreamsAreBounded(t *testing.T) {
	hold := make(chan struct{})
	var cut atomic.Int64
	_, theirs := hostileOutward(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		<-hold
		if _, err := io.Copy(io.Discard, conn); err != nil {
			cut.Add(1)
		}
	}), false)
	before := heap()
	head := "CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\n"
	body := make([]byte, 250<<10)
	w := bufio.NewWriterSize(theirs, 64<<10)
	for i := range uint32(1000) {
		w.Write(muxFrame(typeData, flagSYN, 2+2*i, uint32(len(head)), head))
		w.Write(muxFrame(typeData, 0, 2+2*i, uint32(len(body)), string(body)))
	}
	if err := w.Flush(); err != nil {
		t.Log(err)
	}
	if took := heap() - before; took > 128<<20 {
		t.Errorf("it made the server hold %d MiB", took>>20)
	}
	close(hold)
}

// A guest that sends pings and does not read the answers causes bounded work.
func TestFloodOfPings(t *testing.T) {
	_, theirs := hostileOutward(t, http.NotFoundHandler(), true)
	before, routines := heap(), runtime.NumGoroutine()
	var flood []byte
	for i := range uint32(1000) {
		flood = append(flood, muxFrame(typePing, flagSYN, 0, i, "")...)
	}
	for range 300 {
		if _, err := theirs.Write(flood); err != nil {
			t.Fatalf("its data is no longer read: %v", err)
		}
	}
	if n := runtime.NumGoroutine() - routines; n > 1000 {
		t.Errorf("%d goroutines answer", n)
	}
	if took := heap() - before; took > 32<<20 {
		t.Errorf("it made the server hold %d MiB", took>>20)
	}
}
