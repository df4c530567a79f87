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

// A socket is a server below HTTP. It reads one request on each connection and writes
// the current reply.
type socket struct {
	addr     string
	requests atomic.Int64
	answer   atomic.Value // a reply
	closed   sync.WaitGroup
	over     chan struct{} // closed at the end of the test
}

// A reply writes the answer to a request. The connection is then closed.
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
			s.closed.Go(func() { // a client may hold a connection without a request
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
	s.requests.Add(1)
	s.answer.Load().(reply)(conn, req)
}

// received returns the number of requests that were read whole.
func (s *socket) received() int { return int(s.requests.Load()) }

// at returns the address of a double with the socket's host.
func (s *socket) at(double *Double) string {
	u, err := url.Parse(double.URL)
	if err != nil {
		panic(err)
	}
	u.Host = s.addr
	return u.String()
}

// record returns the vendor's response to a turn as on the wire, from the status line
// to the end of the connection.
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
	_, err := Collect(t, h.At(t, s.at(double), 0), withTools("hi"))
	if err != nil && turn.Refusal == nil {
		t.Fatal(err)
	}
	return double, response
}

// whole writes a complete response.
func whole(response string) reply {
	return func(conn *net.TCPConn, _ *http.Request) { _, _ = io.WriteString(conn, response) }
}

// hanging writes the start of a response, and blocks until the client closes the
// connection. It reports that on left.
func hanging(response string, left chan<- struct{}) reply {
	return func(conn *net.TCPConn, _ *http.Request) {
		_, _ = io.WriteString(conn, response)
		_, _ = conn.Read(make([]byte, 1))
		select {
		case left <- struct{}{}:
		default:
		}
	}
}

// unchunked returns a recorded response without chunked encoding. net/http holds back
// data of an incomplete chunk.
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

// stream returns a response of events.
func stream(body string) string {
	return "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n" + body
}

// tlsServer is an HTTPS server whose certificate is not trusted.
func tlsServer(t *testing.T) *httptest.Server {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		t.Error("a server without a trusted certificate got a request")
	}))
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // discards handshake errors
	server.StartTLS()
	t.Cleanup(server.Close)
	return server
}

// settled runs a case. It checks that no goroutine of a provider and no connection
// remains.
func settled(t *testing.T, run func()) {
	t.Helper()
	run()
	var left []string
	for deadline := time.Now().Add(waitLimit); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if left = working(); len(left) == 0 {
			return
		}
	}
	t.Errorf("%d goroutines remain:\n%s", len(left), strings.Join(left, "\n\n"))
}

// working returns the stacks of goroutines that run requests to vendors.
func working() (stacks []string) {
	buf := make([]byte, 1<<20)
	for stack := range strings.SplitSeq(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
		if strings.Contains(stack, "http.(*persistConn)") || strings.Contains(stack, "/model/") &&
			!strings.Contains(stack, "/modeltest.") {
			stacks = append(stacks, stack)
		}
	}
	return stacks
}
