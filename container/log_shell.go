package container

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/guest"
	"github.com/berth-run/berth/guest/jupyter"
)

// A shellLog logs the commands of one shell call. Its rows are saved beside the call's own events,
// which the engine saves: the call waits for them once, at its end. A crash loses none that matters,
// because the response is resumed, and calls startLog again.
type shellLog struct {
	commands []*command
	saves    *sync.WaitGroup
}

// startLog starts the logs of a call's commands. A resumed call has the same ids and is
// logged once. The caller calls wait.
func (sh shell) startLog(ctx context.Context, s *instance, call guest.ShellCall) shellLog {
	entries := make([]berth.ContainerLog, len(call.Commands))
	for i, text := range call.Commands {
		entries[i] = berth.ContainerLog{ID: shellLogID(call.CallID, i), Source: berth.LogShell, CallID: call.CallID,
			Command:    text,
			ResponseID: sh.caller.Response, KeyID: sh.caller.Key, RequestID: sh.caller.RequestID}
	}
	l := shellLog{sh.access.logs.register(ctx, s, entries), &sync.WaitGroup{}}
	l.saves.Go(func() { sh.access.logs.saveStart(ctx, s) })
	return l
}

// wait returns when all rows are saved.
func (l shellLog) wait() { l.saves.Wait() }

// end saves the outcome of a command.
func (l shellLog) end(c *command, outcome berth.ShellOutcome) {
	if !c.ended {
		c.close(outcome)
		l.saves.Go(c.save)
	}
}

// shellLogID returns the id of the log of a call's i-th command.
func shellLogID(call string, i int) berth.LogID {
	_, id, found := strings.Cut(call, "_")
	if !found {
		id = call
	}
	return berth.LogID(berth.PrefixContainerLog + id + "_" + strconv.Itoa(i))
}

// record records an event of the call.
func (l shellLog) record(ev guest.ShellEvent) {
	if ev.CommandIndex < 0 || ev.CommandIndex >= len(l.commands) {
		return
	}
	c := l.commands[ev.CommandIndex]
	switch ev.Kind {
	case guest.ShellStdout:
		c.write(0, ev.Data, ev.Skipped)
	case guest.ShellStderr:
		c.write(1, ev.Data, ev.Skipped)
	case guest.ShellExit:
		l.end(c, berth.ShellOutcome{Type: "exit", ExitCode: &ev.ExitCode})
	case guest.ShellTimeout:
		l.end(c, berth.ShellOutcome{Type: "timeout"})
	}
}

// detach ends the caller's part in a call. Commands that have not ended continue without a
// caller, and are followed in the background for the log.
func (sh shell) detach(s *instance, call guest.ShellCall, log shellLog) {
	if !slices.ContainsFunc(log.commands, func(c *command) bool { return !c.ended }) {
		return
	}
	sh.access.work.spawn(func() {
		ctx, cancel := sh.access.work.untilClosing(s.life) // the next start resumes the call
		defer cancel()
		defer log.wait()
		for _, c := range log.commands {
			c.out = [2]excerpt{} // the guest sends all output again
		}
		logged := loggedEvents(call)
		for ev, err := range s.client.Shell(ctx, guest.ShellCall{CallID: call.CallID, Commands: call.Commands,
			Kernel: call.Kernel, Desktop: call.Desktop, Known: true}) {
			if err == nil {
				log.record(logged(ev))
			}
		}
		if cause := context.Cause(s.life); ctx.Err() != nil && (cause == nil || cause == errStopping) {
			return
		}
		for _, c := range log.commands {
			c.end(berth.ShellOutcome{Type: berth.OutcomeUnknown})
		}
	})
}

// endAbandoned ends the calls of a container that no response resumes. The clients that followed them were
// connected to a former process of this server, and are gone. The calls are logged to their ends. Commands of package
// command continue instead: their clients come back with the ids.
func (a *Access) endAbandoned(s *instance) {
	calls := map[string][]berth.ContainerLog{}
	s.log.mu.Lock()
	for _, e := range s.log.running {
		if e.Source == berth.LogShell && e.ResponseID == "" {
			calls[e.CallID] = append(calls[e.CallID], e)
		}
	}
	s.log.mu.Unlock()
	sh := shell{access: a, caller: berth.Caller{Project: s.project}, id: s.id}
	for id, entries := range calls {
		slices.SortFunc(entries, func(a, b berth.ContainerLog) int {
			return cmp.Or(cmp.Compare(len(a.ID), len(b.ID)), cmp.Compare(a.ID, b.ID))
		})
		// All other calls without a response are code. The guest knows its kernel; here it says what the output is.
		call := guest.ShellCall{CallID: id, Kernel: "python3"}
		for _, e := range entries {
			call.Commands = append(call.Commands, e.Command)
		}
		shellCommand := strings.HasPrefix(id, berth.PrefixCommand)
		if shellCommand {
			call.Kernel = ""
		}
		if shellCommand || strings.HasPrefix(id, berth.PrefixCodeCommand) {
			call.Known = true
			a.work.spawn(func() {
				ctx, cancel := a.work.untilClosing(s.life)
				defer cancel()
				for range sh.Shell(ctx, call) { // the container does not expire while it runs
				}
			})
			continue
		}
		a.work.spawn(func() {
			ctx, cancel := a.work.untilClosing(s.life)
			defer cancel()
			if err := sh.Cancel(ctx, id); err != nil {
				if ctx.Err() == nil {
					a.opts.Log.Error("failed to end a call whose client is gone", "container", s.id, "call", id, "err",
						err)
				}
				return
			}
			sh.detach(s, call, shellLog{a.logs.register(ctx, s, entries), &sync.WaitGroup{}})
		})
	}
}

// loggedEvents returns a function that returns the events of a call as its log has them:
// with the text of a kernel's output, and without the screenshots of a desktop.
func loggedEvents(call guest.ShellCall) func(guest.ShellEvent) guest.ShellEvent {
	if call.Desktop != nil { // its output is an image
		return func(ev guest.ShellEvent) guest.ShellEvent {
			if ev.Kind == guest.ShellStdout {
				ev.Data = nil
			}
			return ev
		}
	}
	if call.Kernel == "" {
		return func(ev guest.ShellEvent) guest.ShellEvent { return ev }
	}
	lines := &jupyter.Decoder{}
	return func(ev guest.ShellEvent) guest.ShellEvent {
		if ev.Kind == guest.ShellStdout {
			var text strings.Builder
			for _, e := range lines.Write(ev.Data, ev.Skipped) {
				text.WriteString(e.Plain())
			}
			ev.Data = []byte(text.String())
		}
		return ev
	}
}
