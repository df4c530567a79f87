// Package drivertest is the contract of sandbox drivers as a test suite.
//
// A driver is tested for the features that it declares. If it lacks one, the suite checks that
// it returns the documented error. The attacks run with every driver that isolates.
package drivertest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/berth-run/berth/guest"
	"github.com/berth-run/berth/internal/longtest"
	"github.com/berth-run/berth/internal/testsuite"
	"github.com/berth-run/berth/sandbox"
)

// A Harness creates drivers of one kind for the suite.
type Harness struct {
	// Open opens the driver on a state directory, which may contain sandboxes of a driver that
	// was opened before.
	Open func(tb testing.TB, stateDir string) sandbox.Driver

	// Template is the template of the sandboxes; see the function Template.
	Template sandbox.Template

	// Socket is the path of the guest's socket in the sandbox, if it has one.
	Socket string

	// OwnersRun means that a setuid program in a mount may run as its owner, because the driver
	// cannot prevent it.
	OwnersRun bool

	// Interfaces are the network interfaces of a sandbox beside lo, which reach nothing.
	Interfaces []string

	// Unfiltered means that the driver cannot filter system calls beyond what the machine does.
	Unfiltered bool

	// BootID means that sandboxes see the machine's boot id.
	BootID bool

	// Leftovers returns what the driver left on the machine for a state directory whose
	// sandboxes are all destroyed. It may be nil.
	Leftovers func(stateDir string) []string
}

// patience is the factor by which timeouts for a slow driver's sandboxes are longer. Most
// waiting is not for computation.
func patience(d sandbox.Driver) time.Duration {
	return time.Duration(min(max(d.Features().Slowness, 1), 4))
}

// A suite is one run. Its tests are methods of types that embed it, one for each topic.
type suite struct {
	Harness
	features sandbox.Features
}

// isolates reports whether the driver isolates sandboxes from the host.
func (s *suite) isolates() bool { return s.features.Isolation != "none" }

// users returns the prefixes of commands that run as each user of a sandbox.
func (s *suite) users() []string {
	if s.features.NoRoot {
		return []string{""}
	}
	return []string{"", "sudo "}
}

// asRoot returns a script that uses sudo, or the same for the user if no program can become root.
func (s *suite) asRoot(script string) string {
	if s.features.NoRoot {
		return strings.ReplaceAll(script, "sudo ", "")
	}
	return script
}

// open returns a driver on a directory of its own, and checks at the end that nothing of its
// sandboxes is left.
func (s *suite) open(t *testing.T) sandbox.Driver {
	t.Helper()
	dir := StateDir(t)
	d := s.Open(t, dir)
	t.Cleanup(func() { s.destroyAll(t, d, dir) })
	return d
}

// destroyAll destroys every sandbox and checks that nothing is left.
func (s *suite) destroyAll(t *testing.T, d sandbox.Driver, stateDir string) {
	ctx := context.Background() // the test's is done
	ids, err := d.List(ctx)
	if err != nil {
		t.Errorf("List: %v", err)
	}
	for _, id := range ids {
		if err := d.Destroy(ctx, id); err != nil {
			t.Errorf("Destroy: %v", err)
		}
	}
	if s.Leftovers != nil {
		for _, l := range s.Leftovers(stateDir) {
			t.Errorf("left behind: %s", l)
		}
	}
}

// A Box is a running sandbox with a client, for tests.
type Box struct {
	Driver sandbox.Driver
	ID     string
	Client *guest.Client

	tb       testing.TB
	calls    atomic.Int64
	patience time.Duration // a factor
}

// Start creates and starts a sandbox, which ends with the test.
func Start(tb testing.TB, d sandbox.Driver, spec sandbox.Spec) *Box {
	tb.Helper()
	if err := d.Create(tb.Context(), spec); err != nil {
		tb.Fatalf("Create: %v", err)
	}
	tb.Cleanup(func() {
		if err := d.Destroy(context.Background(), spec.ID); err != nil {
			tb.Errorf("Destroy: %v", err)
		}
	})
	if err := d.Start(tb.Context(), spec.ID); err != nil {
		tb.Fatalf("Start: %v", err)
	}
	return Attach(tb, d, spec.ID)
}

// Attach returns a Box for a sandbox that runs already.
func Attach(tb testing.TB, d sandbox.Driver, id string) *Box {
	b := &Box{Driver: d, ID: id, tb: tb, patience: patience(d)}
	b.Client = guest.NewClient(func(ctx context.Context) (net.Conn, error) { return d.Dial(ctx, id) })
	tb.Cleanup(func() { b.Client.Close() })
	return b
}

// A Result is the result of a command.
type Result struct {
	Stdout, Stderr string // up to maxOutput of each
	Code           int
	Timeout        bool
	Bytes          int64 // printed on stdout, including those beyond maxOutput
	Files          []guest.FileChange
	MoreFiles      int64 // changed files beyond Files; -1 if unknown to the guest
	Err            error // the connection to the guest failed
}

// maxOutput bounds the recorded output of a command.
const maxOutput = 1 << 20

// Sh runs a command in the sandbox's shell.
func (b *Box) Sh(script string) Result { return b.ShTimeout(script, b.patience*3*time.Minute) }

// ShTimeout is Sh with a time limit of the command.
func (b *Box) ShTimeout(script string, timeout time.Duration) Result {
	b.tb.Helper()
	// The guest ends the command. If the guest itself is gone, the context ends the call.
	ctx, cancel := context.WithTimeout(b.tb.Context(), timeout+b.patience*time.Minute)
	defer cancel()
	call := guest.ShellCall{
		CallID:   fmt.Sprintf("call_%d_%d", time.Now().UnixNano(), b.calls.Add(1)),
		Commands: []string{script},
		Timeout:  timeout,
	}
	r := Result{MoreFiles: -1}
	var stdout, stderr bytes.Buffer
	for ev, err := range b.Client.Shell(ctx, call) {
		if err != nil {
			r.Err = err
			break
		}
		switch ev.Kind {
		case guest.ShellStdout:
			r.Bytes += int64(len(ev.Data)) + ev.Skipped
			stdout.Write(ev.Data[:min(len(ev.Data), maxOutput-stdout.Len())])
		case guest.ShellStderr:
			stderr.Write(ev.Data[:min(len(ev.Data), maxOutput-stderr.Len())])
		case guest.ShellExit:
			r.Code = ev.ExitCode
		case guest.ShellTimeout:
			r.Timeout = true
		case guest.ShellChanges:
			r.Files, r.MoreFiles = ev.Files, ev.MoreFiles
			for i := range r.Files {
				r.Files[i].Modified = 0 // it varies
			}
		}
	}
	r.Stdout, r.Stderr = stdout.String(), stderr.String()
	return r
}

// Must runs a command that must succeed and returns its output, trimmed.
func (b *Box) Must(script string) string {
	b.tb.Helper()
	r := b.Sh(script)
	if r.Err != nil || r.Code != 0 || r.Timeout {
		b.tb.Fatalf("%s: got exit code %d, timeout %v, error %v, stderr %q", script, r.Code, r.Timeout, r.Err, r.Stderr)
	}
	return strings.TrimSpace(r.Stdout)
}

// Last runs a command that may end the guest. Its result is ignored, and so is a guest that is
// gone. Last returns the output received so far.
func (b *Box) Last(script string) string {
	b.tb.Helper()
	ctx, cancel := context.WithTimeout(b.tb.Context(), b.patience*2*time.Minute)
	defer cancel()
	p, err := b.Client.Start(ctx, guest.ProcessRequest{Cmd: "/bin/sh", Args: []string{"-c", script}})
	if err != nil {
		return "" // the guest ended before it reported the start
	}
	var heard strings.Builder
	for ev, err := range p.Events() {
		if err != nil || ev.Ended {
			break
		}
		heard.Write(ev.Stdout[:min(len(ev.Stdout), maxOutput-heard.Len())])
	}
	return heard.String()
}

// Stats returns the sandbox's stats, which must exist.
func (b *Box) Stats() sandbox.Stats {
	b.tb.Helper()
	st, err := b.Driver.Stats(b.tb.Context(), b.ID)
	if err != nil {
		b.tb.Fatalf("Stats: %v", err)
	}
	return st
}

// Await waits until ok returns true for the sandbox's stats. It fails the test if that takes
// too long.
func (b *Box) Await(what string, ok func(sandbox.Stats) bool) sandbox.Stats {
	b.tb.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(b.patience * 2 * time.Minute); ; <-tick.C {
		st := b.Stats()
		if ok(st) {
			return st
		}
		if time.Now().After(end) {
			b.tb.Fatalf("waiting for %s: got %+v", what, st)
		}
	}
}

// Answers checks that the guest answers within a few seconds.
func (b *Box) Answers() {
	b.tb.Helper()
	if r := b.ShTimeout("echo here", b.patience*time.Minute); r.Stdout != "here\n" {
		b.tb.Errorf("%s does not answer any more: got %+v, state %+v", b.ID, r, b.Stats())
	}
}

// notFound checks that an error is ErrNotFound.
func notFound(t *testing.T, what string, err error) {
	t.Helper()
	if !errors.Is(err, sandbox.ErrNotFound) {
		t.Errorf("%s: got %v, want %v", what, err, sandbox.ErrNotFound)
	}
}

// core are the tests that run for every driver in `make test-system`, however slow its sandboxes are. `make test`
// runs them, too, but only coreOfSlow for sandboxes that take seconds to start.
var core = []string{"FromCreateToDestroy", "Exec", "Editor", "NoDescriptors", "PauseResume", "ServerKilled",
	"MemoryHogIsRefused", "Mounts", "ReachHost", "TakePowers", "WriteTemplate"}

var coreOfSlow = []string{"FromCreateToDestroy", "Exec", "ServerKilled", "ReachHost"}

// networkAttacks are attacks that are no part of Attacks.
var networkAttacks = []string{"Egress", "Addresses", "QUIC"}

// run runs a test. It runs tests outside core in `make test-system`, and those of slow sandboxes in
// `make test-long`.
func (s *suite) run(t *testing.T, name string, f func(*testing.T)) {
	t.Run(name, func(t *testing.T) {
		attack := strings.Contains(t.Name(), "/Attacks/") || slices.Contains(networkAttacks, name)
		slow := s.features.Slowness > 1
		switch {
		case attack && testsuite.HasAttacks():
		case slow && testsuite.IsCore() && !slices.Contains(coreOfSlow, name):
			testsuite.SkipInCore(t)
		case slices.Contains(core, name):
		default:
			testsuite.SkipInCore(t)
			if slow {
				longtest.Skip(t)
			}
		}
		f(t)
	})
}

// contents tests archives read out of sandboxes and restored into others: changes, archives, layers
// and memory. Its tests run as part of lifecycle.
type contents struct{ *suite }
