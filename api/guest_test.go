package api

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	stdlog "log"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/textproto"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-run/berth/api/envd"
	"github.com/berth-run/berth/api/exchange"
	"github.com/berth-run/berth/guest"
	guestserver "github.com/berth-run/berth/guest/server"
)

// liveGuest runs a guest on this machine and returns a client of it, and its
// working directory.
func liveGuest(t *testing.T) (*guest.Client, string) {
	t.Helper()
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	srv, err := guestserver.New(guestserver.Options{User: me.Username, WorkDir: filepath.Join(dir, "data"),
		StateDir: filepath.Join(dir, "state")})
	if err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(dir, "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- srv.Serve(ctx, l) }()
	client := guest.NewClient(func(ctx context.Context) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	})
	t.Cleanup(func() {
		client.Close()
		stop()
		if err := <-ended; err != nil {
			t.Errorf("the guest: %v", err)
		}
	})
	return client, filepath.Join(dir, "data")
}

// guestDoor is a server that forwards requests to a guest.
func guestDoor(t *testing.T, transport http.RoundTripper) *httptest.Server {
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	h := through(t, exchange.Limits{}, func(x *exchange.Exchange, r *http.Request) error {
		path := strings.TrimPrefix(r.URL.Path, "/v1/containers/cntr_1/guest/")
		return envd.Pass(x, r, path, transport, log)
	})
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	return srv
}

func TestGuestThroughTheDoor(t *testing.T) {
	t.Parallel()
	inner, dir := liveGuest(t)
	srv := guestDoor(t, inner.Transport())
	outer := guest.NewHTTPClient(srv.URL+"/v1/containers/cntr_1/guest", srv.Client())
	ctx := t.Context()
	if err := outer.Ping(ctx); err != nil {
		t.Fatalf("Ping: %v", err)
	}
	p, err := outer.Start(ctx, guest.ProcessRequest{Cmd: "sh",
		Args: []string{"-c", "read line; echo got $line; exit 3"}, In: true})
	if err != nil {
		t.Fatalf("Start: %v", err)
	}
	if err := p.Write(ctx, []byte("ahoy\n")); err != nil {
		t.Fatalf("Write: %v", err)
	}
	out, code := drain(t, p)
	if out != "got ahoy\n" || code != 3 {
		t.Errorf("got %q, exit %d, want \"got ahoy\\n\", exit 3", out, code)
	}
	big := bytes.Repeat([]byte("berth"), 1<<20)
	if err := outer.WriteFile(ctx, "", filepath.Join(dir, "big"), "", bytes.NewReader(big)); err != nil {
		t.Fatalf("WriteFile: %v", err)
	}
	r, _, err := outer.ReadFile(ctx, "", filepath.Join(dir, "big"), "")
	if err != nil {
		t.Fatalf("ReadFile: %v", err)
	}
	defer r.Close()
	if back, err := io.ReadAll(r); err != nil || !bytes.Equal(back, big) {
		t.Errorf("got %d bytes back, %v, want the %d sent", len(back), err, len(big))
	}
}

// An answer can start while the request is still being sent, such as the input of a process
// that prints.
func TestGuestAnswersDuringTheRequest(t *testing.T) {
	t.Parallel()
	srv := guestDoor(t, roundTripper(func(r *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: 200, ContentLength: -1, Header: http.Header{}, Body: r.Body}, nil
	}))
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	body, input := io.Pipe()
	defer input.Close()
	req, _ := http.NewRequestWithContext(ctx, "POST", srv.URL+"/v1/containers/cntr_1/guest/process.Process/StreamInput",
		body)
	sent := "one\n"
	go io.WriteString(input, "one\n")
	resp, err := srv.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	echo := bufio.NewReader(resp.Body)
	for _, line := range []string{"two\n", "three\n", ""} {
		got, err := echo.ReadString('\n')
		if want := sent; err != nil || got != want {
			t.Fatalf("got %q, %v, want %q", got, err, want)
		}
		sent = line
		go io.WriteString(input, line)
	}
}

// A guest that answers without reading the request does not break later requests on the same
// connection.
func TestGuestLeavesARequestUnread(t *testing.T) {
	t.Parallel()
	srv := guestDoor(t, roundTripper(func(r *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: 404, Header: http.Header{}, Body: io.NopCloser(strings.NewReader("no"))}, nil
	}))
	var log lockedBuffer
	srv.Config.ErrorLog = stdlog.New(&log, "", 0)
	url := srv.URL + "/v1/containers/cntr_1/guest/files"
	for name, body := range map[string]func() io.Reader{
		"small":   func() io.Reader { return strings.NewReader("x") },
		"large":   func() io.Reader { return bytes.NewReader(make([]byte, 2*256<<10)) },
		"chunked": func() io.Reader { return io.MultiReader(strings.NewReader("x")) },
	} {
		for range 20 {
			resp, err := srv.Client().Post(url, "", body())
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if answer, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != 404 || string(answer) != "no" {
				t.Fatalf("%s: got %d %q, %v, want 404 no", name, resp.StatusCode, answer, err)
			}
		}
	}
	srv.Close()
	if text := log.String(); text != "" {
		t.Errorf("the server complained: %s", text)
	}
}

// A lockedBuffer may be written while it is read.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

func drain(t *testing.T, p *guest.Process) (string, int) {
	t.Helper()
	var out strings.Builder
	for ev, err := range p.Events() {
		if err != nil {
			t.Fatalf("Events: %v", err)
		}
		out.Write(ev.Stdout)
		if ev.Ended {
			return out.String(), ev.ExitCode
		}
	}
	t.Fatal("the process did not end")
	return "", 0
}

// roundTripper is a guest that may answer anything.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// The caller's key, cookies and addresses are not sent to the sandbox.
func TestGuestGetsNoSecrets(t *testing.T) {
	t.Parallel()
	var got *http.Request
	srv := guestDoor(t, roundTripper(func(r *http.Request) (*http.Response, error) {
		got = r
		return &http.Response{StatusCode: 200, Header: http.Header{}, Body: http.NoBody}, nil
	}))
	send := func(header http.Header) http.Header {
		t.Helper()
		req, _ := http.NewRequest("POST", srv.URL+"/v1/containers/cntr_1/guest/process.Process/Start?x=1",
			strings.NewReader("{}"))
		req.Header = header
		if _, err := srv.Client().Do(req); err != nil {
			t.Fatal(err)
		}
		if got.URL.String() != "http://guest/process.Process/Start" || got.Host != "guest" {
			t.Errorf("got URL %s, host %s, want the guest's", got.URL, got.Host)
		}
		return got.Header
	}
	for query, want := range map[string]string{"path=a&root=/etc&username=u&x=1": "path=a&username=u",
		"path=a&path=b;c": "path=a", "root=/etc": "", "path=%2Fa%26root%3D%2Fetc": "path=%2Fa%26root%3D%2Fetc"} {
		if _, err := srv.Client().Get(srv.URL + "/v1/containers/cntr_1/guest/files?" + query); err != nil {
			t.Fatal(err)
		}
		if got.URL.RawQuery != want {
			t.Errorf("%s: the guest got the query %q, want %q", query, got.URL.RawQuery, want)
		}
	}
	kept := http.Header{"Content-Type": {"application/json"}, "Connect-Protocol-Version": {"1"},
		"Connect-Timeout-Ms": {"5"}, "Accept-Encoding": {"gzip"}}
	in := kept.Clone()
	for _, name := range []string{"Authorization", "Cookie", "X-Api-Key", "Openai-Organization", "Upgrade",
		"Connection", "Te", "Proxy-Authorization", "X-Access-Token", guest.RootHeader} {
		in.Set(name, "Bearer sk-secret")
	}
	want := kept.Clone()
	want.Set("User-Agent", "berth")
	if diff := cmp.Diff(want, send(in)); diff != "" {
		t.Errorf("header at the guest (-want +got):\n%s", diff)
	}
	for name, header := range map[string]http.Header{
		"own header": {"Authorization": {"Bearer sk-secret"}, envd.UserHeader: {"root"}},
		"basic":      {"Authorization": {"Basic cm9vdDpzay1zZWNyZXQ="}}, // root:sk-secret
	} {
		r := &http.Request{Header: send(header)}
		if user, password, _ := r.BasicAuth(); user != "root" || password != "" {
			t.Errorf("%s: got user %q with password %q, want root alone", name, user, password)
		}
	}
}

// A hostile guest cannot set a cookie, run a script in the caller's browser, redirect it or
// hijack the connection.
func TestHostileGuest(t *testing.T) {
	t.Parallel()
	page := "<script>alert(1)</script>"
	answer := func(status int) roundTripper {
		return func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: status, Status: fmt.Sprint(status), ProtoMajor: 1, ProtoMinor: 1,
				Header: http.Header{
					"Content-Type": {"text/html"}, "Set-Cookie": {"a=b"}, "Location": {"http://evil.example"},
					"Upgrade":                     {"websocket"},
					"Access-Control-Allow-Origin": {"*"}, "X-Request-Id": {"req_forged"},
					"Content-Disposition": {"inline"}, "Refresh": {"0"},
					"Strict-Transport-Security": {"max-age=1"}, "Trailer": {"Set-Cookie"},
				}, Trailer: http.Header{"Set-Cookie": {"c=d"}}, Body: io.NopCloser(strings.NewReader(page))}, nil
		}
	}
	for _, status := range []int{200, 302, 404} {
		srv := guestDoor(t, answer(status))
		client := srv.Client()
		client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
		resp, err := client.Get(srv.URL + "/v1/containers/cntr_1/guest/files?path=/x")
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		if resp.StatusCode != status || string(body) != page {
			t.Errorf("got %d %q, want %d and the body", resp.StatusCode, body, status)
		}
		for _, name := range []string{"Set-Cookie", "Location", "Upgrade", "Access-Control-Allow-Origin", "Refresh",
			"Strict-Transport-Security"} {
			if v := resp.Header.Values(name); v != nil {
				t.Errorf("%d: got %s %v, want none", status, name, v)
			}
		}
		for name, want := range map[string]string{"Content-Type": "application/octet-stream",
			"Content-Disposition": "attachment", "X-Content-Type-Options": "nosniff"} {
			if got := resp.Header.Values(name); !slices.Equal(got, []string{want}) {
				t.Errorf("%d: got %s %q, want %q", status, name, got, want)
			}
		}
		if id := resp.Header.Values("X-Request-Id"); len(id) != 1 || id[0] == "req_forged" {
			t.Errorf("%d: got request id %v, want the server's own", status, id)
		}
		if len(resp.Trailer) > 0 {
			t.Errorf("%d: got trailer %v, want none", status, resp.Trailer)
		}
	}
	for _, status := range []int{101, 103} {
		resp, err := http.Get(guestDoor(t, answer(status)).URL + "/v1/containers/cntr_1/guest/files")
		if err != nil || resp.StatusCode != http.StatusServiceUnavailable {
			t.Errorf("%d: got %v, %v, want 503", status, resp, err)
		}
	}
}

func TestGuestPaths(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]bool{
		"health": true, "files": true, "files/compose": true, "process.Process/Start": true,
		"filesystem.Filesystem/ListDir": true,
		"":                              false, "init": false, "freeze": false, "metrics": false, "envs": false,
		"files/": false, "files/compose/x": false, "files/other": false,
		"berth.guest.v1.Shell/Run": false, "berth.guest.v1.Guest/Info": false, "process.Process/": false,
		"process.Process/Start/x": false,
		"process.Process/../init": false, "process.Process/Start?x": false, "xprocess.Process/Start": false,
		"process-Process/Start":   false,
		"process.Process/Start\n": false, "health\x00": false, "http://evil.example/files": false,
	} {
		if got := envd.Serves(path); got != want {
			t.Errorf("%q: got %v, want %v", path, got, want)
		}
	}
}

// Interim answers of a hostile guest do not reach the client.
func TestGuestHints(t *testing.T) {
	t.Parallel()
	srv := guestDoor(t, &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
		here, there := net.Pipe()
		go func() {
			defer there.Close()
			if _, err := http.ReadRequest(bufio.NewReader(there)); err == nil {
				io.WriteString(there,
					"HTTP/1.1 103 Early Hints\r\nSet-Cookie: a=b\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n")
			}
		}()
		return here, nil
	}})
	req, err := http.NewRequestWithContext(httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
		Got1xxResponse: func(code int, header textproto.MIMEHeader) error {
			t.Errorf("got %d with %v before the answer", code, header)
			return nil
		},
	}), http.MethodGet, srv.URL+"/v1/containers/cntr_1/guest/health", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := srv.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if id := resp.Header.Get("X-Request-Id"); resp.StatusCode != http.StatusNoContent || id == "" {
		t.Errorf("got %d, request id %q", resp.StatusCode, id)
	}
}
