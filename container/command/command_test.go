package command

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"testing"
	"testing/synctest"

	"connectrpc.com/connect"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/guest"
)

// A line is a container whose commands a test feeds with events.
type line struct {
	events    chan guest.ShellEvent
	calls     chan guest.ShellCall
	cancelled chan string
	err       error         // at the end of the events
	hold      chan struct{} // if not nil, commands are accepted when it is closed
}

func newLine() *line {
	return &line{events: make(chan guest.ShellEvent), calls: make(chan guest.ShellCall, 100),
		cancelled: make(chan string, 10)}
}

func (l *line) Shell(berth.Caller, berth.ContainerID) guest.Execer { return execer{l} }

func (l *line) Attached(berth.Caller, berth.ContainerID) {}

func (l *line) Guest(context.Context, berth.Caller, berth.ContainerID) (*guest.Client, func(), error) {
	return nil, nil, berth.NotFound("Container", "cntr_1")
}

type execer struct{ *line }

func (e execer) Prepare(guest.ShellCall) {}

func (e execer) Shell(_ context.Context, call guest.ShellCall) iter.Seq2[guest.ShellEvent, error] {
	return func(yield func(guest.ShellEvent, error) bool) {
		e.calls <- call
		if e.hold != nil {
			<-e.hold
		}
		call.Accepted()
		for ev := range e.events {
			if !yield(ev, nil) {
				return
			}
		}
		if e.err != nil {
			yield(guest.ShellEvent{}, e.err)
		}
	}
}

func (e execer) Cancel(_ context.Context, id string) error { e.cancelled <- id; return nil }
func (e execer) Forget(context.Context, string)            {}

var me = berth.Caller{Project: "proj_a"}

// Output is shown while it arrives, and the result has both streams and the exit code.
func TestCommand(t *testing.T) {
	t.Parallel()
	l := newLine()
	s := New(Options{Containers: l})
	c, err := s.Start(t.Context(), me, "cntr_1", Request{Text: "make"})
	if err != nil {
		t.Fatal(err)
	}
	if call := <-l.calls; call.CallID != c.ID || call.Commands[0] != "make" || call.Kernel != "" || call.Known {
		t.Errorf("called %+v", call)
	}
	if got := s.List(me.Project, "cntr_1"); len(got) != 1 || got[0] != c.ID || len(s.List("proj_b", "cntr_1")) != 0 {
		t.Errorf("running are %v", got)
	}
	shown := make(chan string, 10)
	result := make(chan Result, 1)
	go func() {
		r, err := c.Wait(t.Context(), func(text string) { shown <- text })
		if err != nil {
			t.Error(err)
		}
		result <- r
	}()
	l.events <- guest.ShellEvent{Kind: guest.ShellStdout, Data: []byte("one\n")}
	if got := <-shown; got != "one\n" {
		t.Errorf("shown is %q", got)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if r, err := c.Wait(over, nil); err != nil || r.Status != Running || r.Stdout != "one\n" || r.ExitCode != nil {
		t.Errorf("so far: %+v, %v", r, err)
	}
	l.events <- guest.ShellEvent{Kind: guest.ShellStderr, Data: []byte("two\n")}
	l.events <- guest.ShellEvent{Kind: guest.ShellExit, ExitCode: 3}
	close(l.events)
	if r := <-result; r.Status != Exited || *r.ExitCode != 3 || r.Stdout != "one\n" || r.Stderr != "two\n" || r.Truncated {
		t.Errorf("the result is %+v", r)
	}
	if err := c.Stop(t.Context()); err != nil || <-l.cancelled != c.ID {
		t.Errorf("stop: %v", err)
	}
}

// A command that the container does not have yet is stopped when it has it.
func TestStopBeforeStart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLine()
		l.hold = make(chan struct{})
		s := New(Options{Containers: l})
		gone, cancel := context.WithCancel(t.Context())
		cancel() // the client
		c, err := s.Start(gone, me, "cntr_1", Request{Text: "make"})
		if err != nil {
			t.Fatal(err)
		}
		stopped := make(chan error, 1)
		go func() { stopped <- c.Stop(t.Context()) }()
		synctest.Wait()
		if len(l.cancelled) > 0 {
			t.Error("the command was cancelled before the container had it")
		}
		close(l.hold)
		if err := <-stopped; err != nil || <-l.cancelled != c.ID {
			t.Errorf("stop: %v", err)
		}
		close(l.events)
		synctest.Wait()
	})
}

// A flood is bounded, in memory and in the output shown.
func TestFlood(t *testing.T) {
	t.Parallel()
	l := newLine()
	s := New(Options{Containers: l, Output: 1000})
	c, err := s.Start(t.Context(), me, "cntr_1", Request{Text: "yes"})
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for i := range 10_000 {
			l.events <- guest.ShellEvent{Kind: guest.ShellStdout, Data: fmt.Appendf(nil, "%08d\n", i)}
		}
		l.events <- guest.ShellEvent{Kind: guest.ShellStdout, Skipped: 500, Data: []byte("é")}
		l.events <- guest.ShellEvent{Kind: guest.ShellExit, Stdout: guest.OutputFile{Path: "/tmp/out", Bytes: 90_000}}
		close(l.events)
	}()
	shown := 0
	r, err := c.Wait(t.Context(), func(text string) { shown += len(text) })
	if err != nil || !r.Truncated || len(r.Stdout) > 1100 || shown > 1000 || len(r.Files) != 1 ||
		!strings.HasPrefix(r.Stdout, "00000000\n") || !strings.HasSuffix(r.Stdout, "00009999\né") ||
		!strings.Contains(r.Stdout, "bytes left out") {
		t.Errorf("shown %d bytes; %+v, %v", shown, r, err)
	}
}

// The images of code are bounded, and only real ones count.
func TestImages(t *testing.T) {
	t.Parallel()
	l := newLine()
	s := New(Options{Containers: l})
	c, err := s.Start(t.Context(), me, "cntr_1", Request{Text: "plot()", Kernel: "python3"})
	if err != nil {
		t.Fatal(err)
	}
	const png = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
	go func() {
		for range maxImages + 2 {
			l.events <- guest.ShellEvent{Kind: guest.ShellStdout,
				Data: []byte(`{"type":"display","data":{"image/png":"` + png + `","text/plain":"<Figure>"}}` + "\n")}
		}
		l.events <- guest.ShellEvent{Kind: guest.ShellStdout,
			Data: []byte(`{"type":"display","data":{"image/png":"PHNjcmlwdD4=","text/plain":"forged"}}` + "\n")}
		l.events <- guest.ShellEvent{Kind: guest.ShellExit}
		close(l.events)
	}()
	r, err := c.Wait(t.Context(), nil)
	if err != nil || len(r.Images) != maxImages || r.Images[0].MediaType != "image/png" ||
		!strings.Contains(r.Stdout, "forged") {
		t.Errorf("%d images, %q, %v", len(r.Images), r.Stdout, err)
	}
}

// Commands of a container are bounded, and unknown ids are not found.
func TestTooMany(t *testing.T) {
	t.Parallel()
	l := newLine()
	s := New(Options{Containers: l, Running: 2})
	for range 2 {
		if _, err := s.Start(t.Context(), me, "cntr_1", Request{Text: "sleep 1"}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Start(t.Context(), me, "cntr_1", Request{Text: "x"}); berth.ErrorCode(err) != berth.CodeRateLimited {
		t.Errorf("a third command: %v", err)
	}
	if _, err := s.Start(t.Context(), me, "cntr_2", Request{Text: "x"}); err != nil {
		t.Errorf("in another container: %v", err)
	}
	for _, id := range []string{"cmd_1", "sh_1", "", "cmd_../x", strings.Repeat("x", 1000)} {
		if _, _, err := s.Find(t.Context(), me, "cntr_1", id); berth.ErrorCode(err) != berth.CodeNotFound {
			t.Errorf("find %.20q: %v", id, err)
		}
	}
	close(l.events)
}

// A command whose events end too early has an error, which says how far it came.
func TestLost(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err  error
		want berth.Code
	}{
		{errors.New("gone"), berth.CodeUnavailable},
		{berth.Errorf(berth.CodeNotFound, "The container has expired."), berth.CodeNotFound},
		{connect.NewError(connect.CodeNotFound, errors.New("no call")), berth.CodeNotFound},
		{nil, berth.CodeUnavailable},
	} {
		l := newLine()
		l.err = c.err
		close(l.events)
		started, err := New(Options{Containers: l}).Start(t.Context(), me, "cntr_1", Request{Text: "x"})
		if err != nil {
			t.Fatal(err)
		}
		if r, err := started.Wait(t.Context(), nil); berth.ErrorCode(err) != c.want || r.Status != Running {
			t.Errorf("%v: %+v, %v", c.err, r, err)
		}
	}
}

// FuzzExcerpt writes pieces: the excerpt is bounded and has the start and the end.
func FuzzExcerpt(f *testing.F) {
	f.Add([]byte("ahoy"), 3, 2)
	f.Add(bytes.Repeat([]byte("é"), 100), 10, 7)
	f.Fuzz(func(t *testing.T, data []byte, limit, piece int) {
		limit, piece = max(1, limit%1000), max(1, piece%1000)
		e := excerpt{limit: limit}
		for rest := data; len(rest) > 0; {
			n := min(piece, len(rest))
			e.write(rest[:n])
			rest = rest[n:]
		}
		if len(e.head) > limit || len(e.end()) > limit || len(e.tail) > 2*limit+2 {
			t.Fatalf("%d and %d bytes with a limit of %d", len(e.head), len(e.end()), limit)
		}
		if !bytes.HasPrefix(data, e.head) || !bytes.HasSuffix(data, e.end()) {
			t.Fatalf("%q is not an excerpt of %q", e.text(), data)
		}
		if int64(len(data)) != e.dropped()+int64(len(e.head)+len(e.end())) || e.dropped() < 0 {
			t.Fatalf("%d bytes dropped of %d", e.dropped(), len(data))
		}
	})
}
