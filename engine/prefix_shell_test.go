package engine_test

import (
	"context"
	"iter"
	"strings"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/guest"
)

func (p *playhouse) Template(context.Context, berth.ProjectID, berth.ContainerID) (string, error) {
	return "sha256:template", nil
}

func (p *playhouse) Files(context.Context, berth.ProjectID, berth.ContainerID) ([]*berth.ContainerFile, error) {
	return nil, nil
}

func (p *playhouse) Provide(context.Context, berth.Caller, berth.ShellToolEnvironment,
	berth.ContainerID) (berth.ContainerID, error) {
	return "cntr_1", nil
}

func (*playhouse) Reserve(context.Context, berth.Caller, berth.ContainerID) error  { return nil }
func (*playhouse) Begin(context.Context, berth.ProjectID, berth.ContainerID) error { return nil }
func (*playhouse) Release(berth.ProjectID, berth.ContainerID)                      {}

func (*playhouse) Contents(berth.ProjectID, berth.ContainerID) *berth.TemplateContents { return nil }

func (p *playhouse) Skills(berth.ProjectID, berth.ContainerID) []berth.ContainerSkill { return nil }

func (p *playhouse) Shell(berth.Caller, berth.ContainerID) guest.Execer { return tape{p} }

// A tape is a container with the behaviour of the guest: it runs a call once, and replays
// its events from the start on each request until the call is forgotten.
type tape struct{ *playhouse }

func (tape) Prepare(guest.ShellCall) {}

func (p tape) Shell(ctx context.Context, call guest.ShellCall) iter.Seq2[guest.ShellEvent, error] {
	return func(yield func(guest.ShellEvent, error) bool) {
		p.mu.Lock()
		if !p.calls[call.CallID] {
			p.calls[call.CallID] = true
			p.ran = append(p.ran, call.Commands...)
		}
		checks := 0
		for _, c := range p.ran {
			if c == "check" {
				checks++
			}
		}
		p.mu.Unlock()
		for _, ev := range printed(call.Commands, checks) {
			if ctx.Err() != nil {
				yield(guest.ShellEvent{}, context.Cause(ctx))
				return
			}
			if !yield(ev, nil) {
				return
			}
		}
	}
}

// printed is what commands print: pieces of both streams, cut within characters, and
// of several commands by turns.
func printed(commands []string, checks int) []guest.ShellEvent {
	var all []guest.ShellEvent
	out := func(i int, kind guest.ShellEventKind, data string) {
		all = append(all, guest.ShellEvent{CommandIndex: i, Kind: kind, Data: []byte(data)})
	}
	for i, c := range commands {
		out(i, guest.ShellStdout, c+" önc\xc3")
		out(i, guest.ShellStderr, "wärning")
	}
	for i, c := range commands {
		out(i, guest.ShellStdout, "\xa9, twice")
		if strings.HasPrefix(c, "long") {
			for range 5 {
				out(i, guest.ShellStderr, strings.Repeat("é", 20))
			}
		}
	}
	for i, c := range commands {
		code := 0
		if c == "check" && checks == 1 {
			code = 1
		}
		all = append(all, guest.ShellEvent{CommandIndex: i, Kind: guest.ShellExit, ExitCode: code})
	}
	return all
}

func (p tape) Cancel(context.Context, string) error { return nil }

func (p tape) Forget(_ context.Context, id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.calls, id)
}
