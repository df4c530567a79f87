package forward_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"testing"

	"github.com/berth-run/berth/internal/forward"
)

type transport func(*http.Request) (*http.Response, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// A body breaks off at its first byte, and calls read before.
type body struct{ read func() }

func (b body) Read([]byte) (int, error) { b.read(); return 0, errors.New("it broke off") }
func (body) Close() error               { return nil }

// The head of an answer of unknown length is sent before its body is read, so that the client has it if the body breaks
// off. That of a known length is sent with the body.
func TestServe(t *testing.T) {
	for _, c := range []struct {
		length int64
		sent   bool
	}{{-1, true}, {5, false}} {
		out := httptest.NewRecorder()
		read := false
		modified := false
		proxy := httputil.ReverseProxy{
			Rewrite: func(*httputil.ProxyRequest) {},
			Transport: transport(func(r *http.Request) (*http.Response, error) {
				return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Request: r, ContentLength: c.length,
					Body: body{func() {
						read = true
						if out.Flushed != c.sent {
							t.Errorf("length %d: the head was sent before the body: %t", c.length, out.Flushed)
						}
					}}}, nil
			}),
			ModifyResponse: func(*http.Response) error { modified = true; return nil },
		}
		forward.Serve(proxy, out, httptest.NewRequest("GET", "http://other/", http.NoBody))
		if out.Code != http.StatusOK || !read || !modified {
			t.Errorf("got status %d; the body was read: %t, the answer was modified: %t", out.Code, read, modified)
		}
	}
}

// What the server's writer can do, such as to hijack a connection, remains within reach.
func TestServeUpgrade(t *testing.T) {
	back := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		_, err = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\nhello")
		if err != nil {
			t.Error(err)
		}
	}))
	defer back.Close()
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		forward.Serve(httputil.ReverseProxy{Rewrite: func(pr *httputil.ProxyRequest) {
			pr.Out.URL.Scheme, pr.Out.URL.Host = "http", back.Listener.Addr().String()
			pr.Out.Header.Set("Connection", "Upgrade")
			pr.Out.Header.Set("Upgrade", "x")
		}}, w, r)
	}))
	defer front.Close()
	r, err := http.NewRequestWithContext(t.Context(), "GET", front.URL, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Connection", "Upgrade")
	r.Header.Set("Upgrade", "x")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text := make([]byte, 5)
	if _, err := io.ReadFull(resp.Body, text); err != nil || resp.StatusCode != 101 || string(text) != "hello" {
		t.Errorf("got %s %q, %v", resp.Status, text, err)
	}
}
