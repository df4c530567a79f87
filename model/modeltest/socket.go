package modeltest

import (
	"bufio"
	"bytes"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// A socket is a server below HTTP: it reads requests, and to each connection writes
// what it is told to, once.
type socket struct {
	addr   string
	asked  atomic.Int64
	answer atomic.Value // a reply
	closed sync.WaitGroup
	over   chan struct{} // closed when the test is
}

// A reply writes the answer to a request; its connection is closed thereafter.
type reply func(conn *net.TCPConn, req *http.Request)

func listen(t *testing.T, answer reply) *socket {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &socket{addr: l.Addr().String(), over: make(chan struct{})}
	s.answer.Store(answer)
	s.closed.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			s.closed.Go(func() { s.serve(conn.(*net.TCPConn)) })
			s.closed.Go(func() { // a client may keep one on which it has asked nothing
				<-s.over
				conn.Close()
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		close(s.over)
		s.closed.Wait()
	})
	return s
}

func (s *socket) serve(conn *net.TCPConn) {
	defer conn.Close()
	req, err := http.ReadRequest(bufio.NewReader(conn))
	if err != nil {
		return
	}
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return
	}
	req.Body = io.NopCloser(bytes.NewReader(body))
	s.asked.Add(1)
	s.answer.Load().(reply)(conn, req)
}

// at is the address of a double with the socket's in its place.
func (s *socket) at(double *Double) string {
	u, err := url.Parse(double.URL)
	if err != nil {
		panic(err)
	}
	u.Host = s.addr
	return u.String()
}

// record returns what the vendor's answer to a turn is on the wire, from the status
// line to the end of the connection.
func record(t *testing.T, h Harness, turn Turn) (double *Double, response []byte) {
	t.Helper()
	_, double = h.Open(t, Always(turn))
	s := listen(t, func(conn *net.TCPConn, req *http.Request) {
		u, err := url.Parse(double.URL)
		if err != nil {
			panic(err)
		}
		vendor, err := net.Dial("tcp", u.Host)
		if err != nil {
			t.Error(err)
			return
		}
		defer vendor.Close()
		req.Close = true
		if err := req.Write(vendor); err != nil {
			t.Error(err)
			return
		}
		if response, err = io.ReadAll(vendor); err != nil {
			t.Error(err)
		}
		_, _ = conn.Write(response)
	})
	_, err := Ask(t, h.At(t, s.at(double), 0), withTools("hi"))
	if err != nil && turn.Refusal == nil {
		t.Fatal(err)
	}
	return double, response
}

// whole writes all of an answer.
func whole(response string) reply {
	return func(conn *net.TCPConn, _ *http.Request) { _, _ = io.WriteString(conn, response) }
}

// hanging writes the beginning of an answer and holds the connection until the
// client closes it, which it tells.
func hanging(response string, left chan<- struct{}) reply {
	return func(conn *net.TCPConn, _ *http.Request) {
		_, _ = io.WriteString(conn, response)
		_, _ = conn.Read(make([]byte, 1))
		left <- struct{}{}
	}
}

// unchunked is a recorded answer in one piece: of a chunk that is not there yet,
// net/http gives its reader nothing, nor of those before it.
func unchunked(t *testing.T, response []byte) string {
	t.Helper()
	res, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(response)), nil)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return stream(string(body))
}

// stream is an answer of events.
func stream(body string) string {
	return "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n" + body
}

// tlsServer is an HTTPS server whose certificate nobody has signed that counts.
func tlsServer(t *testing.T) *httptest.Server {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		t.Error("a server that cannot be trusted was asked")
	}))
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // it complains of handshakes
	server.StartTLS()
	t.Cleanup(server.Close)
	return server
}

// settled runs a case and checks that it leaves no goroutine of an adapter, nor a
// connection, behind.
func settled(t *testing.T, run func()) {
	t.Helper()
	run()
	var left []string
	for deadline := time.Now().Add(5 * patience); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if left = working(); len(left) == 0 {
			return
		}
	}
	t.Errorf("%d goroutines were left behind:\n%s", len(left), strings.Join(left, "\n\n"))
}

// working returns the stacks of the goroutines that ask vendors.
func working() (stacks []string) {
	buf := make([]byte, 1<<20)
	for stack := range strings.SplitSeq(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
		if strings.Contains(stack, "http.(*persistConn)") || strings.Contains(stack, "/model/") && !strings.Contains(stack, "/modeltest.") {
			stacks = append(stacks, stack)
		}
	}
	return stacks
}
