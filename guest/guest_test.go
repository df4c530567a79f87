package guest_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-run/berth/guest"
	"github.com/berth-run/berth/guest/server"

	"connectrpc.com/connect"
)

// A box is a guest on a socket, with a directory of its own, that runs as the user of the
// tests.
type box struct {
	socket, dir, state string
}

func newBox(t testing.TB) *box {
	t.Helper()
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	tmp, err := os.MkdirTemp("", "guest-*") // t.TempDir may be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	b := &box{socket: filepath.Join(tmp, "s"), dir: filepath.Join(tmp, "work"), state: filepath.Join(tmp, "state")}
	s, err := server.New(server.Options{User: me.Username, WorkDir: b.dir, StateDir: b.state, Version: "test"})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", b.socket)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-served; err != nil {
			t.Errorf("Serve: %v", err)
		}
		os.RemoveAll(tmp)
	})
	return b
}

func (b *box) dial(ctx context.Context) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, "unix", b.socket)
}

func (b *box) client(t testing.TB) *guest.Client {
	c := guest.NewClient(b.dial)
	t.Cleanup(func() { c.Close() })
	return c
}

// A result is the outcome of one command of a call, by its events.
type result struct {
	Stdout, Stderr string
	Exit           int
	Timeout        bool
	Skipped        int64
}

var calls int

// run runs the commands of one call to their end.
func run(t testing.TB, c *guest.Client, timeout time.Duration, commands ...string) []result {
	t.Helper()
	calls++
	return collect(t, c, guest.ShellCall{CallID: fmt.Sprintf("call-%d", calls), Commands: commands, Timeout: timeout})
}

func collect(t testing.TB, c *guest.Client, call guest.ShellCall) []result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	out := make([]result, len(call.Commands))
	ended := 0
	for ev, err := range c.Shell(ctx, call) {
		if err != nil {
			t.Fatalf("Shell: %v", err)
		}
		r := &out[ev.CommandIndex]
		r.Skipped += ev.Skipped
		switch ev.Kind {
		case guest.ShellStdout:
			r.Stdout += string(ev.Data)
		case guest.ShellStderr:
			r.Stderr += string(ev.Data)
		case guest.ShellExit:
			r.Exit = ev.ExitCode
			ended++
		case guest.ShellTimeout:
			r.Timeout = true
			ended++
		}
	}
	if ended != len(call.Commands) {
		t.Fatalf("%d of %d commands ended", ended, len(call.Commands))
	}
	return out
}

func one(t testing.TB, c *guest.Client, command string) result {
	t.Helper()
	return run(t, c, 0, command)[0]
}

// A process is killed at its deadline, also if its client has gone.
func TestProcessDeadline(t *testing.T) {
	c := newBox(t).client(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	p, err := c.Start(ctx, guest.ProcessRequest{Cmd: "sleep", Args: []string{"600"}})
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if got := one(t, c, fmt.Sprintf("timeout 20 sh -c 'while kill -0 %d; do sleep 0.1; done' 2>/dev/null; echo $?",
		p.PID)); got.Stdout != "0\n" {
		t.Errorf("the process lives on: %+v", got)
	}
}

func TestProcess(t *testing.T) {
	c := newBox(t).client(t)
	p, err := c.Start(t.Context(), guest.ProcessRequest{Cmd: "sh",
		Args: []string{"-c", "read x; echo $X-$x; echo e >&2; exit 4"}, Env: map[string]string{"X": "env"}, In: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Write(t.Context(), []byte("input\n")); err != nil {
		t.Fatal(err)
	}
	stdout, stderr, end := events(t, p)
	if stdout != "env-input\n" || stderr != "e\n" || end.ExitCode != 4 || end.Status != "exit status 4" {
		t.Errorf("got %q, %q, %+v", stdout, stderr, end)
	}
	if _, err := c.Start(t.Context(), guest.ProcessRequest{Cmd: "no-such-program"}); err == nil {
		t.Error("a missing program was started")
	}
	if _, err := c.Start(t.Context(), guest.ProcessRequest{Cmd: "true", Dir: "/no/such"}); err == nil ||
		!strings.Contains(err.Error(), "cwd '/no/such' does not exist") {
		t.Errorf("a missing directory: got %v", err)
	}
}

// The answer to a kill is that the process has ended, so a second kill finds none.
func TestKillEnds(t *testing.T) {
	c := newBox(t).client(t)
	for range 20 {
		p, err := c.Start(t.Context(), guest.ProcessRequest{Cmd: "sleep", Args: []string{"600"}})
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Kill(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := p.Kill(t.Context()); connect.CodeOf(err) != connect.CodeNotFound {
			t.Fatalf("a second kill: got %v, want that the process is not found", err)
		}
	}
}

// A bare name is searched in the PATH of the process: that of its request, of the container, or the
// default one, in this order.
func TestProcessPath(t *testing.T) {
	b := newBox(t)
	c := b.client(t)
	folder := func(name string) string {
		dir := filepath.Join(t.TempDir(), name)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "berth-probe"), []byte("#!/bin/sh\necho "+name+"\n"),
			0o755); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	run := func(env map[string]string) string {
		p, err := c.Start(t.Context(), guest.ProcessRequest{Cmd: "berth-probe", Env: env})
		if err != nil {
			return err.Error()
		}
		stdout, stderr, _ := events(t, p)
		return stdout + stderr
	}
	if got := run(nil); !strings.Contains(got, "executable file not found") {
		t.Errorf("in no PATH: got %q", got)
	}
	if err := c.SetEnvironment(t.Context(), []string{"PATH=" + folder("image") + ":/usr/bin:/bin"}); err != nil {
		t.Fatal(err)
	}
	if got := run(nil); got != "image\n" {
		t.Errorf("in the PATH of the container: got %q", got)
	}
	if got := run(map[string]string{"PATH": folder("request") + ":/usr/bin:/bin"}); got != "request\n" {
		t.Errorf("in the PATH of the request: got %q", got)
	}
	if err := os.WriteFile(filepath.Join(b.dir, "relative-probe"), []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Start(t.Context(), guest.ProcessRequest{Cmd: "relative-probe", Env: map[string]string{"PATH": ".:" +
		filepath.Base(b.dir)}}); err == nil {
		t.Error("a relative PATH was searched")
	}
}

func TestTerminal(t *testing.T) {
	c := newBox(t).client(t)
	p, err := c.Start(t.Context(), guest.ProcessRequest{Cmd: "bash", Args: []string{"--norc", "-i"},
		TTY: &guest.Size{Cols: 91, Rows: 17}, In: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Write(t.Context(), []byte("stty size\n")); err != nil {
		t.Fatal(err)
	}
	var seen strings.Builder
	resized := false
	for ev, err := range p.Events() {
		if err != nil {
			t.Fatal(err)
		}
		if ev.Ended {
			break
		}
		seen.Write(ev.Stdout)
		if !resized && strings.Contains(seen.String(), "17 91") {
			resized = true
			if err := p.Resize(t.Context(), guest.Size{Cols: 60, Rows: 20}); err != nil {
				t.Fatal(err)
			}
			if err := p.Write(t.Context(), []byte("stty size; exit\n")); err != nil {
				t.Fatal(err)
			}
		}
	}
	if !strings.Contains(seen.String(), "20 60") {
		t.Errorf("after the resize: %q", seen.String())
	}
}

func events(t *testing.T, p *guest.Process) (stdout, stderr string, end guest.ProcessEvent) {
	t.Helper()
	for ev, err := range p.Events() {
		if err != nil {
			t.Fatal(err)
		}
		stdout += string(ev.Stdout)
		stderr += string(ev.Stderr)
		end = ev
	}
	return stdout, stderr, end
}

func TestFiles(t *testing.T) {
	b := newBox(t)
	c := b.client(t)
	if err := c.WriteFile(t.Context(), b.dir, "sub/dir/a.txt", "", strings.NewReader("hello")); err != nil {
		t.Fatal(err)
	}
	r, size, err := c.ReadFile(t.Context(), b.dir, "sub/dir/a.txt", "")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if text, err := io.ReadAll(r); string(text) != "hello" || size != 5 || err != nil {
		t.Errorf("got %q, size %d, %v", text, size, err)
	}
	entries, err := c.List(t.Context(), b.dir, 10)
	var paths []string
	for _, e := range entries {
		if e.Regular {
			paths = append(paths, strings.TrimPrefix(e.Path, b.dir))
		}
	}
	if diff := cmp.Diff([]string{"/sub/dir/a.txt"}, paths); diff != "" || err != nil {
		t.Errorf("files (-want +got), %v:\n%s", err, diff)
	}
	if _, _, err := c.ReadFile(t.Context(), b.dir, "none", ""); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing file: got %v", err)
	}
	if _, err := c.List(t.Context(), "/no/such", 1); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing directory: got %v", err)
	}
}

// Below a root, neither .. nor a link leads out, and a FIFO does not hang.
func TestFilesStayBelowRoot(t *testing.T) {
	b := newBox(t)
	c := b.client(t)
	outside := filepath.Join(filepath.Dir(b.dir), "outside")
	if err := os.WriteFile(outside, []byte("secret"), 0o644); err != nil {
		t.Fatal(err)
	}
	one(t, c, "ln -s ../outside link; ln -s .. up; ln -s /etc etc; mkfifo fifo; mkdir dir")
	for _, path := range []string{"../outside", "link", "up/outside", "/etc/passwd", "etc/passwd", "fifo", "dir"} {
		r, _, err := c.ReadFile(t.Context(), b.dir, path, "")
		if err == nil {
			text, _ := io.ReadAll(r)
			t.Errorf("reading %s gave %q", path, text)
			r.Close()
		}
		if path == "fifo" || path == "link" {
			continue // writing replaces these
		}
		if err := c.WriteFile(t.Context(), b.dir, path, "", strings.NewReader("evil")); err == nil {
			t.Errorf("writing %s was allowed", path)
		}
	}
	if err := c.WriteFile(t.Context(), b.dir, "link", "", strings.NewReader("new")); err != nil {
		t.Error(err)
	}
	if text, _ := os.ReadFile(outside); string(text) != "secret" {
		t.Errorf("the file outside is now %q", text)
	}
}

// Clients can send a query, but not the header with the root.
func TestFilesHaveNoRootInQuery(t *testing.T) {
	b := newBox(t)
	c := http.Client{Transport: b.client(t).Transport()}
	if err := os.WriteFile(filepath.Join(b.dir, "only-below-the-root"), []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	for header, want := range map[string]int{"": http.StatusNotFound, b.dir: http.StatusOK} {
		r, err := http.NewRequestWithContext(t.Context(), "GET",
			"http://guest/files?path=only-below-the-root&root="+url.QueryEscape(b.dir), nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set(guest.RootHeader, header)
		resp, err := c.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("with the header %q: got %d, want %d", header, resp.StatusCode, want)
		}
	}
}

func TestBelow(t *testing.T) {
	for path, want := range map[string]bool{"/d/a": true, "/d/a/b": true, "/d": false, "/d/": false, "/d/../e": false,
		"/d/a/../../e": false,
		"/e/a":         false, "/da": false, "d/a": false, "/d/a\n": false, "/d/\x00": false, "/d/\xff": false,
		"/d//a": false, "/d/ü": true} {
		if got := guest.Below("/d", path); got != want {
			t.Errorf("Below(/d, %q): got %v", path, got)
		}
	}
}

func TestBigFile(t *testing.T) {
	b := newBox(t)
	c := b.client(t)
	const size = 100 << 20
	sum := sha256.New()
	if err := c.WriteFile(t.Context(), b.dir, "big", "", io.TeeReader(io.LimitReader(rand.Reader, size),
		sum)); err != nil {
		t.Fatal(err)
	}
	r, _, err := c.ReadFile(t.Context(), b.dir, "big", "")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	back := sha256.New()
	if n, err := io.Copy(back, r); n != size || err != nil {
		t.Fatalf("%d bytes came back, %v", n, err)
	}
	if !bytes.Equal(sum.Sum(nil), back.Sum(nil)) {
		t.Error("the content that came back differs")
	}
	// An upload that breaks off leaves nothing.
	broken := io.MultiReader(strings.NewReader("half"), errReader{})
	if err := c.WriteFile(t.Context(), b.dir, "half", "", broken); err == nil {
		t.Error("a broken upload was accepted")
	}
	if left := one(t, c, "ls -A").Stdout; left != "big\n" {
		t.Errorf("left behind: %q", left)
	}
}

type errReader struct{}

func (errReader) Read([]byte) (int, error) { return 0, errors.New("broken") }

func TestDialPort(t *testing.T) {
	c := newBox(t).client(t)
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, "inside")
	}))
	defer web.Close()
	port := web.Listener.Addr().(*net.TCPAddr).Port
	hc := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _,
		_ string) (net.Conn, error) {
		return c.DialPort(ctx, port)
	}}}
	resp, err := hc.Get("http://sandbox/")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if text, _ := io.ReadAll(resp.Body); string(text) != "inside" {
		t.Errorf("got %q", text)
	}
	web.Close()
	if _, err := c.DialPort(t.Context(), port); !errors.Is(err, guest.ErrPortClosed) {
		t.Errorf("a closed port: got %v", err)
	}
}

func TestInfo(t *testing.T) {
	b := newBox(t)
	info, err := b.client(t).Info(t.Context())
	if err != nil || info.WorkDir != b.dir || info.Version != "test" {
		t.Errorf("got %+v, %v", info, err)
	}
}

func BenchmarkPing(b *testing.B) {
	c := newBox(b).client(b)
	for b.Loop() {
		if err := c.Ping(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkTrue(b *testing.B) {
	c := newBox(b).client(b)
	for b.Loop() {
		one(b, c, "true")
	}
}
