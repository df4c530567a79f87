package process

import (
	"context"
	"iter"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/guest"
	"github.com/berth-run/berth/internal/clock"
)

// A fake is a process whose output the test sends.
type fake struct {
	events   chan guest.ProcessEvent
	released chan struct{}
	stubborn bool // it ignores SIGTERM
}

func newFake() *fake {
	return &fake{events: make(chan guest.ProcessEvent), released: make(chan struct{}, 9)}
}

func (f *fake) Events() iter.Seq2[guest.ProcessEvent, error] {
	return func(yield func(guest.ProcessEvent, error) bool) {
		for ev := range f.events {
			if !yield(ev, nil) || ev.Ended {
				return
			}
		}
	}
}

func (f *fake) Write(context.Context, []byte) error      { return nil }
func (f *fake) Resize(context.Context, guest.Size) error { return nil }
func (f *fake) Release()                                 { f.released <- struct{}{} }
func (f *fake) end(status string) {
	f.events <- guest.ProcessEvent{Ended: true, ExitCode: -1, Status: status}
}
func (f *fake) Kill(context.Context) error { f.end("signal: killed"); return nil }
func (f *fake) Terminate(context.Context) error {
	if !f.stubborn {
		f.end("signal: terminated")
	}
	return nil
}

func newTestService(now clock.Clock, f *fake) *Service {
	return New(Options{Log: slog.New(slog.DiscardHandler), Clock: now, Output: 4096, Running: 2,
		Start: func(context.Context, berth.Caller, berth.ContainerID, guest.ProcessRequest) (Handle, error) {
			return f, nil
		}})
}

func start(t *testing.T, s *Service, owner Owner) *Process {
	t.Helper()
	p, err := s.Start(t.Context(), berth.Caller{}, owner, Spec{Command: "x"})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// Entries count from the start of the process, also those that were dropped, and characters stay whole.
func TestOutput(t *testing.T) {
	f := newFake()
	s := newTestService(clock.NewManual(time.Unix(0, 0)), f)
	p := start(t, s, Owner{Container: "c"})
	f.events <- guest.ProcessEvent{Stdout: []byte("a\xc3")}
	f.events <- guest.ProcessEvent{Stdout: []byte("\xa9b")}
	for range 100 {
		f.events <- guest.ProcessEvent{Stdout: []byte(strings.Repeat("x", 100))}
	}
	f.events <- guest.ProcessEvent{Stdout: []byte("end\xff")}
	f.end("signal: killed")
	<-p.Done()
	all := p.Read(0, 0)
	if all.Next != 103 || !all.Truncated || len(all.Output) == 0 || len(strings.Join(all.Output, "")) > 4096 {
		t.Errorf("%d entries up to %d, truncated %v", len(all.Output), all.Next, all.Truncated)
	}
	if last := p.Read(0, 1); len(last.Output) != 1 || last.Output[0] != "end\ufffd" || !last.Truncated {
		t.Errorf("the last entry: %+v", last)
	}
	if none := p.Read(all.Next, 0); len(none.Output) != 0 || none.Truncated || *none.ExitCode != -9 {
		t.Errorf("from the end on: %+v", none)
	}
	whole := &Process{service: s}
	whole.add([]byte("a\xc3"))
	whole.add([]byte("\xa9b"))
	if got := strings.Join(whole.output, "|"); got != "a|éb" {
		t.Errorf("a character that was cut: %q", got)
	}
}

// A process that nobody asks about lets its container sleep, and is forgotten a while after its end.
func TestInterest(t *testing.T) {
	f, now := newFake(), clock.NewManual(time.Unix(0, 0))
	s := newTestService(now, f)
	owner := Owner{Container: "c", User: "u", Session: "s"}
	p := start(t, s, owner)
	now.Advance(59 * time.Minute)
	if _, ok := s.Find(owner, p.ID, false); !ok {
		t.Fatal("the process was not found")
	}
	now.Advance(59 * time.Minute)
	select {
	case <-f.released:
		t.Fatal("released although somebody has asked")
	default:
	}
	now.Advance(time.Minute)
	<-f.released
	for _, other := range []Owner{{}, {Container: "c", User: "u"}, {Container: "d", User: "u", Session: "s"}} {
		if _, ok := s.Find(other, p.ID, false); ok || len(s.List(other, false)) > 0 {
			t.Errorf("%+v finds the process", other)
		}
	}
	f.end("exit status 0")
	<-p.Done()
	if err := now.Await(t.Context(), 5*time.Minute); err != nil {
		t.Fatal(err)
	}
	now.Advance(5 * time.Minute)
	if _, ok := s.Lookup(p.ID); ok {
		t.Error("the process was not forgotten")
	}
}

// A process that ignores SIGTERM is killed after a while.
func TestKill(t *testing.T) {
	f, now := newFake(), clock.NewManual(time.Unix(0, 0))
	f.stubborn = true
	s := newTestService(now, f)
	p := start(t, s, Owner{Container: "c"})
	killed := make(chan error, 1)
	go func() { killed <- p.Kill(t.Context(), false) }()
	if err := now.Await(t.Context(), stopGrace); err != nil {
		t.Fatal(err)
	}
	now.Advance(stopGrace)
	if err := <-killed; err != nil {
		t.Fatal(err)
	}
	if got := p.Read(0, 0); got.Status != Killed || *got.ExitCode != -9 {
		t.Errorf("got %+v", got)
	}
	start(t, s, Owner{Container: "d"})
	start(t, s, Owner{Container: "d", User: "other"})
	_, err := s.Start(t.Context(), berth.Caller{}, Owner{Container: "d"}, Spec{})
	if berth.ErrorCode(err) != berth.CodeRateLimited {
		t.Errorf("a third command: %v", err)
	}
}
