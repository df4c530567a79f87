package egress

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
)

// A connection whose host accepts nothing holds only a small buffer once the container's large
// buffers are borrowed; returned ones serve other connections.
func TestStuckUploads(t *testing.T) { synctest.Test(t, testStuckUploads) }

func testStuckUploads(t *testing.T) {
	w := newWorld(t, policy(t, false, "example.com:8080"))
	over := make(chan struct{})
	w.host("example.com", "93.184.216.34", 8080, "")
	w.gate.Dial = func(context.Context, string, netip.AddrPort) (net.Conn, error) {
		here, there := net.Pipe()
		go func() {
			_, _ = io.CopyN(io.Discard, there, 4*quietBuffer)
			<-over
			_, _ = io.Copy(io.Discard, there)
		}()
		return here, nil
	}
	var sending sync.WaitGroup
	for range 2 * maxBusy {
		conn, status := w.connect("example.com:8080")
		if status != http.StatusOK {
			t.Fatalf("status %d", status)
		}
		sending.Go(func() {
			_, _ = conn.Write(make([]byte, 400<<10))
			conn.Close()
		})
	}
	synctest.Wait()
	if n := w.gate.Traffic.Totals().Open; n != 2*maxBusy {
		t.Errorf("%d connections open", n)
	}
	if n := w.gate.lent.Load(); n != maxBusy {
		t.Errorf("%d large buffers borrowed", n)
	}
	close(over)
	sending.Wait()
	synctest.Wait()
	if n := w.gate.lent.Load(); n > 0 {
		t.Errorf("%d large buffers not returned", n)
	}
}

// The server bounds the header of a response.
func TestEndlessAnswerHead(t *testing.T) {
	w := newWorld(t, policy(t, false, "example.com"))
	w.host("example.com", "93.184.216.34", 80, listen(t, func(c net.Conn) {
		if _, err := http.ReadRequest(bufio.NewReader(c)); err != nil {
			return
		}
		io.WriteString(c, "HTTP/1.1 200 OK\r\n")
		for i := range 64 {
			fmt.Fprintf(c, "X-%d: %s\r\n", i, strings.Repeat("x", 4<<10))
		}
		io.WriteString(c, "Content-Length: 0\r\n\r\n")
	}))
	conn, _ := w.connect("example.com:80")
	io.WriteString(conn, "GET / HTTP/1.1\r\nHost: example.com\r\n\r\n")
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil || resp.StatusCode != http.StatusBadGateway {
		t.Errorf("got %v, %v", resp, err)
	}
}
