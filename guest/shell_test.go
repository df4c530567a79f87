package guest_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-run/berth/guest"
)

func TestShell(t *testing.T) {
	c := newBox(t).client(t)
	got := run(t, c, 0, "echo out; echo err >&2; exit 3", "kill -9 $$", "syntax (", "printf '\\0\\377'", "cat")
	want := []result{{Stdout: "out\n", Stderr: "err\n", Exit: 3}, {Exit: 137}, {Stderr: got[2].Stderr, Exit: 2},
		{Stdout: "\x00\xff"}, {}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if !strings.Contains(got[2].Stderr, "line 1: syntax error") {
		t.Errorf("a syntax error is reported as %q", got[2].Stderr)
	}
}

// The directory and the environment carry over from call to call.
func TestState(t *testing.T) {
	b := newBox(t)
	c := b.client(t)
	if got := one(t, c, "pwd").Stdout; got != b.dir+"\n" {
		t.Errorf("first working directory: got %q, want %s", got, b.dir)
	}
	one(t, c, "mkdir -p 'a b' && cd 'a b' && export A=1 B='two words' MULTI=$'x\\ny' Q=\"it's \\\"q\\\" \\$x\" && LOCAL=no && unset HOME; exit 3")
	got := one(t, c, `printf '%s|' "$PWD" "$A" "$B" "$MULTI" "$Q" "${LOCAL-unset}" "${HOME-unset}"`)
	want := b.dir + `/a b|1|two words|x` + "\ny" + `|it's "q" $x|unset|unset|`
	if got.Stdout != want || got.Stderr != "" {
		t.Errorf("after an exit: got %q and %q, want %q", got.Stdout, got.Stderr, want)
	}
	for name, command := range map[string]string{
		"killed":            "export A=bad; kill -9 $$",
		"replaced":          "export A=bad; exec true",
		"set -e, set -u":    "set -eu; export C=3; false; export A=bad",
		"a subshell":        "(export A=bad; cd /)",
		"noclobber":         "set -C; export D=4",
		"closed descriptor": "exec 1>&- 2>&-; export E=5",
	} {
		one(t, c, command)
		if got := one(t, c, `echo "$A" "$PWD"`).Stdout; got != "1 "+b.dir+"/a b\n" {
			t.Errorf("%s: the next call sees %q", name, got)
		}
	}
	if got := one(t, c, `echo $C $D $E`).Stdout; got != "3 4 5\n" {
		t.Errorf("what was set before the end: got %q", got)
	}
	run(t, c, 0, "export P=1; cd /", "export Q=2; cd /tmp")
	if got := one(t, c, `echo $P $Q $PWD`).Stdout; got != "1 2 /tmp\n" {
		t.Errorf("commands of one call, merged in their order: got %q", got)
	}
	run(t, c, 0, "cd /; export Q=3; unset C", "sleep 0.1; export R=4; cd .", "true")
	if got := one(t, c, `echo $P $Q $R ${C-none} $PWD`).Stdout; got != "1 3 4 none /\n" {
		t.Errorf("what one command changed and the others left alone: got %q", got)
	}
	if got := one(t, c, "env | grep -c BERTH_CALL; export -p | grep -c 'declare -x BERTH'").Stdout; got != "1\n1\n" {
		t.Errorf("the marker: got %q", got)
	}
}

// The first commands start in a state that no shell has reported yet.
func TestStateOfFirstCommands(t *testing.T) {
	c := newBox(t).client(t)
	run(t, c, 0, "cd /tmp; unset HOME", "export A=1", "kill -9 $$")
	if got := one(t, c, `echo $PWD $A ${HOME-none}`).Stdout; got != "/tmp 1 none\n" {
		t.Errorf("got %q", got)
	}
}

// A command's own trap on EXIT runs, sees the shell's status, and the state is saved.
func TestStateBesideTrap(t *testing.T) {
	c := newBox(t).client(t)
	for n, test := range []struct {
		command, out string
		exit         int
	}{
		{"trap 'echo gone $?' EXIT; V=%; exit 3", "gone 3\n", 3},
		{"set -euo pipefail; trap 'rc=$?; echo \"rc $rc\"; exit 9' EXIT; V=%; false; echo no", "rc 1\n", 9},
		{"f() { echo f $?; }; trap f EXIT INT; V=%", "f 0\n", 0},
		{"trap 'echo a' EXIT; trap 'echo \"it'\\''s\" b' 0; V=%", "it's b\n", 0},
		{"trap 'echo a' EXIT; trap - EXIT; V=%", "", 0},
		{"trap '' EXIT; V=%", "", 0},
		{"V=%; (trap 'echo sub' EXIT; V=bad); trap -p INT", "sub\n", 0},
		{"V=%; bash -c 'trap \"echo child\" EXIT'; trap 'echo x' NOSUCH || echo refused", "child\nrefused\n", 0},
		{"set -u; trap 'echo h # comment' EXIT; V=%", "h\n", 0},
	} {
		value := fmt.Sprintf("v%d", n)
		got := one(t, c, strings.ReplaceAll(test.command, "V=%", "export V="+value))
		if got.Stdout != test.out || got.Exit != test.exit {
			t.Errorf("%s: got %+v, want %q and %d", test.command, got, test.out, test.exit)
		}
		if got := one(t, c, "echo $V").Stdout; got != value+"\n" {
			t.Errorf("%s: the next call sees %q", test.command, got)
		}
	}
}

func TestParallel(t *testing.T) {
	b := newBox(t)
	c := b.client(t)
	got := run(t, c, 30*time.Second, "mkfifo p 2>/dev/null; echo ping > p",
		"until [ -p p ]; do sleep 0.01; done; cat p")
	if got[1].Stdout != "ping\n" {
		t.Errorf("two commands that wait for each other: got %+v", got)
	}
}

// A timeout ends everything that the command started, however it hid.
func TestTimeoutEndsTree(t *testing.T) {
	b := newBox(t)
	c := b.client(t)
	mark := fmt.Sprintf("31%d", os.Getpid())
	got := run(t, c, time.Second,
		"echo before; sleep "+mark+".1 & setsid sleep "+mark+".2 & (setsid sh -c 'sleep "+mark+".3 & sleep "+mark+".4' &) ; nohup sleep "+mark+".5 & trap '' TERM; sleep "+mark+".6")
	if !got[0].Timeout || got[0].Stdout != "before\n" {
		t.Errorf("got %+v", got[0])
	}
	if left := one(t, c, "ps -eo args | grep '[s]leep "+mark+"' || true"); left.Stdout != "" {
		t.Errorf("these live on:\n%s", left.Stdout)
	}
}

// A background process neither holds the call nor dies of its output.
func TestBackground(t *testing.T) {
	b := newBox(t)
	c := b.client(t)
	got := one(t, c, "(while :; do echo noise; sleep 0.02; done) & echo $! >&2")
	pid := strings.TrimSpace(got.Stderr)
	defer one(t, c, "kill -9 "+pid)
	if got.Exit != 0 {
		t.Fatalf("got %+v", got)
	}
	if alive := one(t, c, "sleep 0.3; kill -0 "+pid+" && echo alive"); alive.Stdout != "alive\n" {
		t.Errorf("the background process has died: %+v", alive)
	}
}

// A flood of output is bounded: its start, its end, and the number of dropped bytes arrive.
func TestFlood(t *testing.T) {
	c := newBox(t).client(t)
	const lines = 3_000_000
	got := run(t, c, time.Minute, fmt.Sprintf("seq 1 %d; echo last", lines))[0]
	if !strings.HasPrefix(got.Stdout, "1\n2\n3\n") || !strings.HasSuffix(got.Stdout, "\n3000000\nlast\n") {
		t.Errorf("beginning %.20q, end %.20q", got.Stdout, got.Stdout[max(0, len(got.Stdout)-20):])
	}
	if len(got.Stdout) > 6<<20 || got.Skipped < 10<<20 {
		t.Errorf("%d bytes came, %d were left out", len(got.Stdout), got.Skipped)
	}
}

// Output that is longer than the caller passes on stays in files when the call is
// forgotten, for the next commands to read. Other output does not.
func TestKeptOutput(t *testing.T) {
	b := newBox(t)
	c := b.client(t)
	call := guest.ShellCall{CallID: "kept", Keep: 100_000, Commands: []string{
		"seq 1 20000; echo problem >&2", "echo short", "seq 1 9000", "head -c 70000000 /dev/zero",
	}}
	ends := make([]guest.ShellEvent, len(call.Commands))
	for ev, err := range c.Shell(t.Context(), call) {
		if err != nil {
			t.Fatal(err)
		}
		if ev.Kind == guest.ShellExit {
			ends[ev.CommandIndex] = ev
		}
	}
	if err := c.ForgetShell(t.Context(), "kept"); err != nil {
		t.Fatal(err)
	}
	for i, want := range [][2]int64{{108894, 8}, {}, {}, {64 << 20, 0}} {
		if got := [2]int64{ends[i].Stdout.Bytes, ends[i].Stderr.Bytes}; got != want {
			t.Errorf("%q: %v bytes stay, want %v", call.Commands[i], got, want)
		}
	}
	all := one(t, c,
		"wc -l < "+ends[0].Stdout.Path+"; tail -n1 "+ends[0].Stdout.Path+"; cat "+ends[0].Stderr.Path+"; wc -c < "+ends[3].Stdout.Path)
	if all.Stdout != "20000\n20000\nproblem\n67108864\n" {
		t.Errorf("the files have %q %q", all.Stdout, all.Stderr)
	}
	dir := filepath.Dir(ends[0].Stdout.Path)
	if names := files(t, dir); len(names) != 3 {
		t.Errorf("there are %q", names)
	}
	for range 5 { // the oldest files are removed, by number of bytes
		calls++
		collect(t, c, guest.ShellCall{CallID: fmt.Sprintf("kept-%d", calls), Keep: 1,
			Commands: []string{"head -c 60000000 /dev/zero"}})
	}
	if names := files(t, dir); len(names) != 4 {
		t.Errorf("then there are %q", names)
	}
}

func files(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// The file changes of a call are reported at its end.
func TestChanges(t *testing.T) {
	b := newBox(t)
	c := b.client(t)
	changes := func(commands ...string) (files []guest.FileChange, more int64) {
		t.Helper()
		calls++
		for ev, err := range c.Shell(t.Context(), guest.ShellCall{CallID: fmt.Sprintf("change-%d", calls),
			Commands: commands}) {
			if err != nil {
				t.Fatal(err)
			}
			if ev.Kind == guest.ShellChanges {
				for i, f := range ev.Files {
					if now := time.Now().Unix(); f.Kind == guest.FileDeleted && f.Modified != 0 ||
						f.Kind == guest.FileCreated && (f.Modified < now-60 || f.Modified > now) {
						t.Errorf("%+v was modified then?", f)
					}
					ev.Files[i].Modified = 0
				}
				return ev.Files, ev.MoreFiles
			}
		}
		return nil, -1
	}
	for _, test := range []struct {
		name     string
		commands []string
		want     []guest.FileChange
	}{
		{"created", []string{"mkdir -p d/e; printf abc > d/e/f", "printf 1 > a; ln -s a link; mkfifo p"},
			[]guest.FileChange{{"a", guest.FileCreated, 1, 0}, {"d/e/f", guest.FileCreated, 3, 0}}},
		{"nothing", []string{"cat a; touch /tmp/elsewhere; cd d; rm /tmp/elsewhere"}, nil},
		{"updated, and made and removed", []string{"printf 22 >> a; touch gone; rm gone"},
			[]guest.FileChange{{"a", guest.FileUpdated, 3, 0}}},
		{"replaced by one of the same size and time", []string{"cp -p a b; printf xyz > b; touch -r a b; mv b a"},
			[]guest.FileChange{{"a", guest.FileUpdated, 3, 0}}},
		{"changed by others before", nil, nil},
		{"moved", []string{"mv d/e d/g"},
			[]guest.FileChange{{"d/e/f", guest.FileDeleted, 3, 0}, {"d/g/f", guest.FileCreated, 3, 0}}},
		{"killed", []string{"printf x > k; kill -9 $$"}, []guest.FileChange{{"k", guest.FileCreated, 1, 0}}},
	} {
		if test.commands == nil {
			if err := os.WriteFile(filepath.Join(b.dir, "a"), []byte("other"), 0o644); err != nil {
				t.Fatal(err)
			}
			time.Sleep(20 * time.Millisecond) // the file system's clock ticks slower
			test.commands = []string{"cat a"}
		}
		// The working directory carries over.
		test.commands[0] = "cd " + b.dir + "; " + test.commands[0]
		for i := range test.commands[1:] {
			test.commands[i+1] = "cd " + b.dir + "; " + test.commands[i+1]
		}
		if files, _ := changes(test.commands...); !cmp.Equal(files, test.want) {
			t.Errorf("%s: got %v, want %v", test.name, files, test.want)
		}
	}
	if files, more := changes("cd " + b.dir + "; for i in $(seq 1 300); do : > many$i; done"); len(files) != 200 ||
		more != 100 {
		t.Errorf("of 300 files %d are reported, and %d are not", len(files), more)
	}
	if files, more := changes("cd " + b.dir + "; mkdir lots; cd lots; seq 1 11000 | xargs touch"); len(files) != 200 ||
		more != 10_800 {
		t.Errorf("of 11000 files %d are reported, and %d are not", len(files), more)
	}
}

// A call outlives its connection: another client, such as a restarted server, resumes it by
// its id without a gap, and it runs once.
func TestTakeUp(t *testing.T) {
	b := newBox(t)
	call := guest.ShellCall{CallID: "take-up",
		Commands: []string{"echo ran >> count; echo first; until [ -e go ]; do sleep 0.01; done; echo second"}}
	first := guest.NewClient(b.dial)
	for ev, err := range first.Shell(t.Context(), call) {
		if err != nil {
			t.Fatal(err)
		}
		if ev.Kind == guest.ShellStdout {
			break
		}
	}
	first.Close()
	second := b.client(t)
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			if got := collect(t, second, call)[0]; got.Stdout != "first\nsecond\n" {
				t.Errorf("got %+v", got)
			}
		})
	}
	if err := os.WriteFile(filepath.Join(b.dir, "go"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	if got := one(t, second, "cat count").Stdout; got != "ran\n" {
		t.Errorf("the command ran: %q", got)
	}
	if err := second.ForgetShell(t.Context(), "take-up"); err != nil {
		t.Error(err)
	}
}

// After a lost connection the client reconnects, and no output is repeated.
func TestReconnect(t *testing.T) {
	b := newBox(t)
	var mu sync.Mutex
	var last net.Conn
	c := guest.NewClient(func(ctx context.Context) (net.Conn, error) {
		conn, err := b.dial(ctx)
		mu.Lock()
		defer mu.Unlock()
		last = conn
		return conn, err
	})
	defer c.Close()
	var out bytes.Buffer
	for ev, err := range c.Shell(t.Context(), guest.ShellCall{CallID: "broken",
		Commands: []string{"for i in 1 2 3 4 5; do echo $i; sleep 0.05; done"}}) {
		if err != nil {
			t.Fatal(err)
		}
		if ev.Kind == guest.ShellStdout {
			out.Write(ev.Data)
			mu.Lock()
			last.Close()
			mu.Unlock()
		}
	}
	if out.String() != "1\n2\n3\n4\n5\n" {
		t.Errorf("got %q", out.String())
	}
}

func TestCancel(t *testing.T) {
	b := newBox(t)
	c := b.client(t)
	for ev, err := range c.Shell(t.Context(), guest.ShellCall{CallID: "cancel",
		Commands: []string{"echo on; sleep 300"}}) {
		switch {
		case err != nil:
			t.Fatal(err)
		case ev.Kind == guest.ShellStdout:
			if err := c.CancelShell(t.Context(), "cancel"); err != nil {
				t.Fatal(err)
			}
		case ev.Kind == guest.ShellExit && ev.ExitCode != 137:
			t.Errorf("exit code %d", ev.ExitCode)
		}
	}
	if err := c.CancelShell(t.Context(), "unknown"); err == nil {
		t.Error("an unknown call was cancelled")
	}
}
