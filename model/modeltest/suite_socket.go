package modeltest

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/model"
)

// sockets are the cases about connections below HTTP.
var sockets = []conversation{
	{name: "connection closed after any byte", run: func(t *testing.T, h Harness) {
		cutAnywhere(t, h, 1, func(conn *net.TCPConn) error { return nil })
	}},
	{name: "connection reset after any byte", run: func(t *testing.T, h Harness) {
		cutAnywhere(t, h, 7, func(conn *net.TCPConn) error { return conn.SetLinger(0) })
	}},
	{name: "byte by byte", run: func(t *testing.T, h Harness) {
		double, response := record(t, h, Turn{Steps: speech(h)})
		s := listen(t, func(conn *net.TCPConn, _ *http.Request) {
			for i := range response {
				if _, err := conn.Write(response[i : i+1]); err != nil {
					return // the client may not read past the end mark
				}
			}
		})
		a, err := Collect(t, h.At(t, s.at(double), 0), withTools("hi"))
		if err != nil || a.Text != "Grüße 🌊, and:" || len(a.Calls) != 1 || a.Calls[0].Arguments != `{"a":1}` ||
			a.Finish.Reason != model.FinishStop {
			t.Errorf("got %+v, %v", a, err)
		}
	}},
	{name: "timeout after any part", run: func(t *testing.T, h Harness) {
		double, response := record(t, h, Turn{Steps: speech(h)})
		whole, left := unchunked(t, response), make(chan struct{}, 1)
		for part := range 8 {
			s := listen(t, hanging(whole[:len(whole)*part/10], left))
			UntilReceived(200*time.Millisecond, s.received, func(timeout time.Duration) {
				_, err := Collect(t, h.At(t, s.at(double), timeout), withTools("hi"))
				if e := wantError(t, err, berth.CodeUpstream); !strings.Contains(e.Message, "stopped responding") {
					t.Errorf("after %d tenths: got %v", part, err)
				}
			})
			wantLeft(t, left)
		}
	}},
	{name: "a server that does not speak HTTP", run: func(t *testing.T, h Harness) {
		for name, response := range map[string]string{
			"another protocol": "SSH-2.0-OpenSSH_9.2\r\n",
			"no header":        "data: {}\n\n",
			"a bad status":     "HTTP/1.1 OK\r\n\r\n",
			"endless headers": "HTTP/1.1 200 OK\r\n" + strings.Repeat("X-Filler: "+strings.Repeat("x", 1000)+"\r\n",
				12_000),
			"a bad chunk":        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
			"more than is there": "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 1000\r\n\r\ndata: ",
		} {
			wantBroken(t, h, name, response)
		}
	}},
	{name: "no answer", run: func(t *testing.T, h Harness) {
		const page = "<html><body>Sign in to the network</body></html>"
		for name, response := range map[string]string{
			"a page":              "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nConnection: close\r\n\r\n" + page,
			"nothing":             "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
			"no content":          "HTTP/1.1 204 No Content\r\n\r\n",
			"no event":            stream(": a comment\n\n: and another\n\n"),
			"a status of its own": "HTTP/1.1 799 Odd\r\nConnection: close\r\n\r\n" + page,
		} {
			wantBroken(t, h, name, response)
		}
	}},
	{name: "malformed events", run: func(t *testing.T, h Harness) {
		for name, body := range map[string]string{
			"half an object":    "data: {\"a\": \n\n",
			"no JSON":           "data: hello\n\n",
			"a list":            "data: [1]\n\n",
			"a number":          "data: 7\n\n",
			"null":              "data: null\n\n",
			"another type":      "event: message_start\ndata: {\"type\":7,\"choices\":7,\"candidates\":7,\"message\":7}\n\n",
			"zero bytes":        "data: \x00\x00\n\n",
			"no Unicode":        "data: \xff\xfe{}\n\n",
			"deep nesting":      "data: " + strings.Repeat("[", 100_000) + "\n\n",
			"an unknown event":  "event: pong\ndata: {\"type\":\"pong\"}\n\n",
			"an event too long": "data: " + strings.Repeat("x", 65<<20) + "\n\n",
		} {
			wantBroken(t, h, name, stream(body))
		}
	}},
	{name: "a refusal without end", run: func(t *testing.T, h Harness) {
		left := make(chan struct{}, 1)
		for _, status := range []string{"500 Internal Server Error", "429 Too Many Requests"} {
			s := listen(t, hanging("HTTP/1.1 "+status+"\r\nContent-Length: 100\r\n\r\n{\"error\":", left))
			UntilReceived(20*time.Millisecond, s.received, func(timeout time.Duration) {
				_, err := Collect(t, h.At(t, "http://"+s.addr, timeout), newRequest("hi"))
				if code := berth.ErrorCode(err); code != berth.CodeUpstream && code != berth.CodeRateLimited {
					t.Errorf("%s: got %v", status, err)
				}
			})
			wantLeft(t, left)
		}
	}},
	{name: "refusals without a message", run: func(t *testing.T, h Harness) {
		for _, tt := range []struct {
			head  string
			code  berth.Code
			after time.Duration
		}{
			{"429 Too Many Requests\r\nRetry-After: 7", berth.CodeRateLimited, 7 * time.Second},
			{"429 Too Many Requests", berth.CodeRateLimited, 0},
			{"500 Internal Server Error", berth.CodeUpstream, 0},
			{"503 Service Unavailable\r\nRetry-After: 9", berth.CodeUpstream, 9 * time.Second},
			{"529 Overloaded", berth.CodeUpstream, 0},
			{"401 Unauthorized", berth.CodeUnavailable, 0},
			{"402 Payment Required", berth.CodeUnavailable, 0},
		} {
			s := listen(t, whole("HTTP/1.1 "+tt.head+"\r\nContent-Length: 0\r\n\r\n"))
			_, err := Collect(t, h.At(t, "http://"+s.addr, 0), newRequest("hi"))
			wantError(t, err, tt.code)
			if d, _ := model.RetryAfter(err); d != tt.after || s.requests.Load() != 1 {
				t.Errorf("%s: got %v, retry after %v, %d requests", tt.head, err, d, s.requests.Load())
			}
		}
	}},
	{name: "a redirect", run: func(t *testing.T, h Harness) {
		stranger := listen(t, whole(stream("")))
		for _, status := range []int{301, 302, 303, 307, 308} {
			s := listen(t,
				whole(fmt.Sprintf("HTTP/1.1 %d Elsewhere\r\nLocation: http://%s/\r\nContent-Length: 0\r\n\r\n", status,
					stranger.addr)))
			_, err := Collect(t, h.At(t, "http://"+s.addr, 0), newRequest("hi"))
			wantError(t, err, berth.CodeUnavailable)
			loop := listen(t,
				whole(fmt.Sprintf(
					"HTTP/1.1 %d Here\r\nLocation: /again\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", status)))
			_, err = Collect(t, h.At(t, "http://"+loop.addr, 0), newRequest("hi"))
			wantError(t, err, berth.CodeUnavailable)
		}
		if n := stranger.requests.Load(); n > 0 {
			t.Errorf("the other host got %d requests", n)
		}
	}},
	{name: "an untrusted certificate", run: func(t *testing.T, h Harness) {
		_, err := Collect(t, h.At(t, tlsServer(t).URL, 0), newRequest("hi"))
		wantError(t, err, berth.CodeUpstream)
	}},
	{name: "a server without TLS", run: func(t *testing.T, h Harness) {
		s := listen(t, whole(stream("")))
		_, err := Collect(t, h.At(t, "https://"+s.addr, 0), newRequest("hi"))
		wantError(t, err, berth.CodeUpstream)
		if s.requests.Load() > 0 {
			t.Error("the request was sent unencrypted")
		}
	}},
	{name: "the caller cancels", run: func(t *testing.T, h Harness) {
		double, response := record(t, h, Turn{Steps: speech(h)})
		whole, left := unchunked(t, response), make(chan struct{}, 1)
		s := listen(t, hanging(whole[:len(whole)*7/10], left))
		for range h.At(t, s.at(double), 0).Stream(t.Context(), withTools("hi")) {
			break
		}
		wantLeft(t, left)
	}},
}

// speech is a turn with parts of every kind.
func speech(h Harness) []Step {
	steps := []Step{model.Text{Text: "Grüße 🌊, "}, model.Text{Text: "and:"}, model.Call{ID: "c1", Name: "now"},
		model.Call{Arguments: `{"a":`}, model.Call{Arguments: `1}`}, stop}
	if !h.lacks(Thoughts) {
		steps = append([]Step{model.Thought{Text: "Hm."}}, steps...)
	}
	return steps
}

// cutAnywhere ends the connection after every step bytes of a response. The deltas
// must be the start of the answer, and the answer may succeed only if its finish
// reason had arrived.
func cutAnywhere(t *testing.T, h Harness, step int, end func(*net.TCPConn) error) {
	double, response := record(t, h, Turn{Steps: speech(h)})
	s := listen(t, whole(string(response)))
	p := h.At(t, s.at(double), 0)
	all := must(t, p, withTools("hi"))
	count := s.requests.Load()
	for at := 0; at < len(response); at += step {
		s.answer.Store(reply(func(conn *net.TCPConn, _ *http.Request) {
			_, err := conn.Write(response[:at])
			if err == nil {
				err = end(conn)
			}
			if err != nil && !errors.Is(err, net.ErrClosed) { // the test may be over by now
				t.Error(err)
			}
		}))
		a, err := Collect(t, p, withTools("hi"))
		if err == nil {
			if a.Text != all.Text || a.Thought != all.Thought || len(a.Calls) != 1 || a.Calls[0] != all.Calls[0] ||
				a.Finish.Reason != all.Finish.Reason {
				t.Errorf("after %d of %d bytes: got %+v for a whole answer", at, len(response), a)
			}
		} else {
			wantError(t, err, berth.CodeUpstream)
		}
		if !strings.HasPrefix(all.Text, a.Text) || !strings.HasPrefix(all.Thought, a.Thought) || len(a.Calls) == 1 &&
			!strings.HasPrefix(all.Calls[0].Arguments, a.Calls[0].Arguments) {
			t.Errorf("after %d of %d bytes: got %+v, which is not a prefix of the answer", at, len(response), a)
		}
		if count++; s.requests.Load() != count {
			t.Fatalf("after %d of %d bytes: %d requests, want 1", at, len(response), s.requests.Load()-count+1)
		}
	}
}

// wantBroken expects an empty answer with an error of the upstream.
func wantBroken(t *testing.T, h Harness, name, response string) {
	t.Helper()
	s := listen(t, func(conn *net.TCPConn, _ *http.Request) {
		_, _ = io.WriteString(conn, response) // may fail if the client closed the connection
	})
	a, err := Collect(t, h.At(t, "http://"+s.addr, 0), newRequest("hi"))
	if code := berth.ErrorCode(err); code != berth.CodeUpstream || a.Deltas > 0 {
		t.Errorf("%s: got %v after %d deltas, want code %s", name, err, a.Deltas, berth.CodeUpstream)
	}
}
