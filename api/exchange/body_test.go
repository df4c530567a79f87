package exchange

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/berth-run/berth"
)

// serveDownload answers every request with content.
func serveDownload(t *testing.T, name string, size int64, content func() io.Reader) *httptest.Server {
	srv := httptest.NewServer(handle(t.Output(), func(x *Exchange, r *http.Request, _ berth.Caller) error {
		return x.Download(r, name, size, content())
	}))
	t.Cleanup(srv.Close)
	return srv
}

// A browser must not display a downloaded file as a page of this server.
func TestDownload(t *testing.T) {
	const page = "<script>alert(1)</script>"
	for kind, content := range map[string]func() io.Reader{
		"stream": func() io.Reader { return io.MultiReader(strings.NewReader(page)) },
		"file":   func() io.Reader { return strings.NewReader(page) },
	} {
		srv := serveDownload(t, "Grüße\".html", int64(len(page)), content)
		resp, err := http.Get(srv.URL)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		if err != nil || string(body) != page || resp.ContentLength != int64(len(page)) {
			t.Errorf("%s: got %q (length %d), %v, want %q", kind, body, resp.ContentLength, err, page)
		}
		for name, want := range map[string]string{
			"Content-Type": "application/octet-stream", "X-Content-Type-Options": "nosniff",
			"Content-Disposition": "attachment; filename*=utf-8''Gr%C3%BC%C3%9Fe%22.html",
		} {
			if got := resp.Header.Get(name); got != want {
				t.Errorf("%s: got %s %q, want %q", kind, name, got, want)
			}
		}
		resp, err = http.Head(srv.URL)
		if err != nil || resp.StatusCode != 200 || resp.ContentLength != int64(len(page)) {
			t.Errorf("%s: HEAD: got %v, %v, want the length only", kind, resp, err)
		}
	}
}

func TestDownloadRange(t *testing.T) {
	srv := serveDownload(t, "x", 10, func() io.Reader { return strings.NewReader("0123456789") })
	req, _ := http.NewRequest("GET", srv.URL, nil)
	req.Header.Set("Range", "bytes=2-4")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	if body, _ := io.ReadAll(resp.Body); resp.StatusCode != http.StatusPartialContent || string(body) != "234" {
		t.Errorf("got %d %q, want 206 \"234\"", resp.StatusCode, body)
	}
}

// A partial file must not look complete, with or without a known length.
func TestDownloadBreaksOff(t *testing.T) {
	for _, size := range []int64{-1, 100} {
		srv := serveDownload(t, "x", size, func() io.Reader {
			return io.MultiReader(bytes.NewReader(make([]byte, 50)), iotest.ErrReader(errors.New("disk on fire")))
		})
		resp, err := http.Get(srv.URL)
		if err == nil {
			_, err = io.ReadAll(resp.Body)
		}
		if err == nil {
			t.Errorf("size %d: got no error, want a broken connection", size)
		}
	}
}

// A client that stops sending or reading is disconnected.
func TestPatience(t *testing.T) {
	result := make(chan error, 1)
	opts := Options{Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
		Limits: Limits{Patience: 50 * time.Millisecond}}
	srv := httptest.NewServer(handleWith(opts, func(x *Exchange, r *http.Request, _ berth.Caller) error {
		if r.Method == "POST" {
			_, err := io.ReadAll(x.Body(r, 0))
			result <- err
			return bodyError(err)
		}
		out := x.Patient()
		var err error
		for piece := make([]byte, 1<<20); err == nil; {
			_, err = out.Write(piece)
		}
		result <- err
		return err
	}))
	defer srv.Close()
	hold, release := io.Pipe()
	defer release.Close()
	go http.Post(srv.URL, "", hold)
	if err := <-result; !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("reading from a silent client: got %v, want the deadline", err)
	}
	resp, err := http.Get(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if err := <-result; !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("writing to a client that does not read: got %v, want the deadline", err)
	}
}
