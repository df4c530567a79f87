package drivertest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/berth-run/berth/sandbox"
)

// lifecycle tests creating, using and ending harmless sandboxes.
type lifecycle struct{ *suite }

func (s lifecycle) all(t *testing.T) {
	s.run(t, "FromCreateToDestroy", s.fromCreateToDestroy)
	s.run(t, "Refusals", s.refusals)
	s.run(t, "Exec", s.exec)
	s.run(t, "Files", s.files)
	s.run(t, "Editor", s.editor)
	s.run(t, "PauseResume", s.pauseResume)
	s.run(t, "Freeze", s.freeze)
	s.run(t, "Reopen", s.reopen)
	s.run(t, "ServerKilled", s.serverKilled)
	s.run(t, "GuestEnded", s.guestEnded)
	s.run(t, "NoDescriptors", s.noDescriptors)
	s.run(t, "CopiedState", s.copiedState)
	s.run(t, "TenAtOnce", s.tenAtOnce)
	contents(s).all(t)
}

func (s lifecycle) fromCreateToDestroy(t *testing.T) {
	ctx := t.Context()
	d := s.open(t)
	list := func(want ...string) {
		t.Helper()
		if got, err := d.List(ctx); err != nil || !slices.Equal(got, want) {
			t.Errorf("List: got %q, %v, want %q", got, err, want)
		}
	}
	state := func(want sandbox.State) {
		t.Helper()
		if got, err := d.Stats(ctx, "cntr_1"); err != nil || got.State != want || got.Reason != "" {
			t.Errorf("Stats: got %+v, %v, want state %q", got, err, want)
		}
	}
	list()
	if err := d.Create(ctx, sandbox.Spec{ID: "cntr_1", Template: s.Template}); err != nil {
		t.Fatalf("Create: %v", err)
	}
	list("cntr_1")
	state(sandbox.StateCreated)
	if err := d.Start(ctx, "cntr_1"); err != nil {
		t.Fatalf("Start: %v", err)
	}
	state(sandbox.StateRunning)
	for range 2 { // each Dial is a new connection
		if err := Attach(t, d, "cntr_1").Client.Ping(ctx); err != nil {
			t.Errorf("Ping: %v", err)
		}
	}
	for range 2 { // Destroy is idempotent
		if err := d.Destroy(ctx, "cntr_1"); err != nil {
			t.Errorf("Destroy: %v", err)
		}
	}
	list()

	_, err := d.Stats(ctx, "cntr_1")
	notFound(t, "Stats", err)
	_, err = d.Dial(ctx, "cntr_1")
	notFound(t, "Dial", err)
	notFound(t, "Start", d.Start(ctx, "cntr_1"))

	// The id may be used again, and a created sandbox destroyed.
	if err := d.Create(ctx, sandbox.Spec{ID: "cntr_1", Template: s.Template}); err != nil {
		t.Errorf("Create again: %v", err)
	}
	if err := d.Destroy(ctx, "cntr_1"); err != nil {
		t.Errorf("Destroy of a created sandbox: %v", err)
	}
}

func (s lifecycle) refusals(t *testing.T) {
	ctx := t.Context()
	d := s.open(t)
	for _, id := range []string{"", "../x", "A", strings.Repeat("a", 65)} {
		if err := d.Create(ctx, sandbox.Spec{ID: id, Template: s.Template}); err == nil {
			t.Errorf("Create(%q): got no error", id)
		}
		if err := d.Destroy(ctx, id); err == nil {
			t.Errorf("Destroy(%q): got no error", id)
		}
	}
	if s.isolates() {
		if err := d.Create(ctx, sandbox.Spec{ID: "rootless",
			Template: sandbox.Template{Path: "/nonexistent"}}); err == nil {
			t.Error("Create without a root file system: got no error")
		}
	}
	b := Start(t, d, sandbox.Spec{ID: "twice", Template: s.Template})
	if err := d.Create(ctx, sandbox.Spec{ID: "twice", Template: s.Template}); !errors.Is(err, fs.ErrExist) {
		t.Errorf("Create twice: got %v, want %v", err, fs.ErrExist)
	}
	b.Answers()
	if got, err := d.List(ctx); err != nil || !slices.Equal(got, []string{"twice"}) {
		t.Errorf("List: got %q, %v, want only %q", got, err, "twice")
	}
}

func (s lifecycle) exec(t *testing.T) {
	signal.Ignore(syscall.SIGHUP) // as nohup does
	defer signal.Reset(syscall.SIGHUP)
	b := Start(t, s.open(t), sandbox.Spec{ID: "exec", Template: s.Template, Env: []string{"COLOUR=blue"}})
	r := b.Sh("echo out; echo err >&2; exit 3")
	if r.Stdout != "out\n" || r.Stderr != "err\n" || r.Code != 3 || r.Err != nil {
		t.Errorf("got %+v, want out, err and 3", r)
	}
	if got := b.Must("echo $COLOUR"); got != "blue" {
		t.Errorf("Spec.Env: got %q, want %q", got, "blue")
	}
	if r := b.ShTimeout("sleep 600", 50*time.Millisecond); !r.Timeout {
		t.Errorf("sleep 600: got %+v, want a timeout", r)
	}
	// The guest ignores signals; its commands must not.
	for _, sig := range []string{"HUP", "INT", "PIPE", "TERM"} {
		if got := b.Must("sh -c 'kill -" + sig + " $$; echo lives' || echo ended"); got != "ended" {
			t.Errorf("a process after SIG%s: got %q, want %q", sig, got, "ended")
		}
	}
	if !s.isolates() {
		return
	}
	for _, tt := range []struct{ script, want string }{
		{"id -u", "1000"},
		{"pwd", "/mnt/data"},
		{"touch x && stat -c %U x", "user"},
		{"touch /tmp/y && stat -c %a /tmp", "1777"},
	} {
		if got := b.Must(tt.script); got != tt.want {
			t.Errorf("%s: got %q, want %q", tt.script, got, tt.want)
		}
	}
	if r := b.Sh("sudo id -u"); s.features.NoRoot != (r.Stdout != "0\n") {
		t.Errorf("sudo id -u: got %+v, but NoRoot is %v", r, s.features.NoRoot)
	}
}

func (s lifecycle) files(t *testing.T) {
	ctx := t.Context()
	b := Start(t, s.open(t), sandbox.Spec{ID: "files", Template: s.Template})
	info, err := b.Client.Info(ctx)
	if err != nil {
		t.Fatal(err)
	}
	want := strings.Repeat("0123456789abcdef", 1<<16)
	if err := b.Client.WriteFile(ctx, info.WorkDir, "in/file", "", strings.NewReader(want)); err != nil {
		t.Fatal(err)
	}
	b.Must("tac -r -s . in/file >out || cp in/file out")
	for name, ok := range map[string]func(string) bool{
		"in/file": func(got string) bool { return got == want },
		"out":     func(got string) bool { return len(got) == len(want) },
	} {
		r, _, err := b.Client.ReadFile(ctx, info.WorkDir, name, "")
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(r)
		r.Close()
		if err != nil || !ok(string(got)) {
			t.Errorf("%s: got %d bytes, %v, want %d", name, len(got), err, len(want))
		}
	}
}

func (s lifecycle) pauseResume(t *testing.T) {
	ctx := t.Context()
	d := s.open(t)
	b := Start(t, d, sandbox.Spec{ID: "pause", Template: s.Template})
	if !s.features.Pause {
		if err := d.Pause(ctx, b.ID); !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("Pause: got %v, want %v", err, errors.ErrUnsupported)
		}
		if err := d.Resume(ctx, b.ID); !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("Resume: got %v, want %v", err, errors.ErrUnsupported)
		}
		return
	}
	b.Must("(while :; do :; done) >/dev/null 2>&1 &")
	if err := d.Pause(ctx, b.ID); err != nil {
		t.Fatalf("Pause: %v", err)
	}
	before := b.Stats()
	if before.State != sandbox.StatePaused {
		t.Errorf("state: got %q, want %q", before.State, sandbox.StatePaused)
	}
	short, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
	defer cancel()
	if err := b.Client.Ping(short); err == nil {
		t.Error("Ping of a paused sandbox: got an answer")
	}
	// Without the pause, the loop would have used all of the time.
	if after := b.Stats(); s.features.CPULimit && after.CPU-before.CPU > 50*time.Millisecond {
		t.Errorf("in 200 ms the paused sandbox used %v of CPU", after.CPU-before.CPU)
	}
	if err := d.Resume(ctx, b.ID); err != nil {
		t.Fatalf("Resume: %v", err)
	}
	b.Answers()
	if st := b.Stats(); st.State != sandbox.StateRunning {
		t.Errorf("state: got %q, want %q", st.State, sandbox.StateRunning)
	}
	// A paused sandbox can be destroyed.
	if err := d.Pause(ctx, b.ID); err != nil {
		t.Fatalf("Pause: %v", err)
	}
	if err := d.Destroy(ctx, b.ID); err != nil {
		t.Errorf("Destroy of a paused sandbox: %v", err)
	}
}

func (s lifecycle) reopen(t *testing.T) {
	dir := StateDir(t)
	d := s.Open(t, dir)
	b := Start(t, d, sandbox.Spec{ID: "stays", Template: s.Template})
	b.Must("echo kept >file")
	if err := d.Create(t.Context(), sandbox.Spec{ID: "created", Template: s.Template}); err != nil {
		t.Fatal(err)
	}

	again := s.Open(t, dir)
	t.Cleanup(func() { s.destroyAll(t, again, dir) })
	if got, err := again.List(t.Context()); err != nil || !slices.Equal(got, []string{"created", "stays"}) {
		t.Errorf("List: got %q, %v, want created and stays", got, err)
	}
	if got := Attach(t, again, "stays").Must("cat file"); got != "kept" {
		t.Errorf("file: got %q, want %q", got, "kept")
	}
	// Another driver can start a sandbox that the first created.
	if err := again.Start(t.Context(), "created"); err != nil {
		t.Fatalf("Start: %v", err)
	}
	Attach(t, again, "created").Answers()
}

// childEnv makes the test program a server on the state directory that is its value.
const childEnv = "BERTH_DRIVERTEST_CHILD"

// runChild creates a sandbox with a running process, and dies of SIGKILL.
func (h Harness) runChild(t *testing.T, dir string) {
	d := h.Open(t, dir)
	ctx := t.Context()
	if err := errors.Join(
		d.Create(ctx, sandbox.Spec{ID: "survivor", Template: h.Template}),
		d.Start(ctx, "survivor"),
	); err != nil {
		t.Fatal(err)
	}
	b := Attach(t, d, "survivor")
	b.Must("(while :; do echo x >>log; sleep 0.01; done) >/dev/null 2>&1 &")
	syscall.Kill(os.Getpid(), syscall.SIGKILL)
}

func (s lifecycle) serverKilled(t *testing.T) {
	dir := StateDir(t)
	top, _, _ := strings.Cut(t.Name(), "/")
	cmd := exec.Command(os.Args[0], "-test.run=^"+top+"$")
	cmd.Env = append(os.Environ(), childEnv+"="+dir)
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Fatalf("the killed server: got %v\n%s", err, out)
	}

	d := s.Open(t, dir)
	t.Cleanup(func() { s.destroyAll(t, d, dir) })
	b := Attach(t, d, "survivor")
	if st := b.Stats(); st.State != sandbox.StateRunning {
		t.Fatalf("after the server's death: got %+v, want it running", st)
	}
	b.Must("n=$(wc -l <log); while [ $(wc -l <log) -eq $n ]; do :; done")
}

func (s lifecycle) guestEnded(t *testing.T) {
	b := Start(t, s.open(t), sandbox.Spec{ID: "ended", Template: s.Template})
	if s.isolates() {
		b.Last("sudo kill -9 1; sudo kill -TERM 1")
	} else {
		b.Last("kill -9 $PPID")
	}
	ctx, cancel := context.WithTimeout(t.Context(), b.patience*10*time.Second)
	defer cancel()
	if b.Client.Ping(ctx) == nil {
		b.Answers() // an init that cannot be killed from inside
		return
	}
	st := b.Await("the guest's end", func(st sandbox.Stats) bool { return st.State == sandbox.StateDead })
	if st.Reason != sandbox.ReasonKilled {
		t.Errorf("after the guest's end: got %+v, want reason %q", st, sandbox.ReasonKilled)
	}
}

func (s lifecycle) tenAtOnce(t *testing.T) {
	d, n, want := s.open(t), 10, []string{"many-1", "many-3", "many-5", "many-7", "many-9"}
	if s.features.Slowness > 1 {
		n, want = 4, want[:2]
	}
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			id := fmt.Sprintf("many-%d", i)
			ctx := t.Context()
			if err := errors.Join(d.Create(ctx, sandbox.Spec{ID: id, Template: s.Template}),
				d.Start(ctx, id)); err != nil {
				t.Error(err)
				return
			}
			b := Attach(t, d, id)
			if r := b.Sh("echo " + id); r.Stdout != id+"\n" {
				t.Errorf("%s: got %+v", id, r)
			}
			if i%2 == 0 { // the others stay until the end
				if err := d.Destroy(ctx, id); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	got, err := d.List(t.Context())
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("List: got %q, %v, want %q", got, err, want)
	}
}
