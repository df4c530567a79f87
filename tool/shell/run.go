package shell

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/guest"
	"github.com/berth-run/berth/tool"
)

// exitKilled is the exit code of a command that Berth has killed, as a shell reports
// SIGKILL.
const exitKilled = 128 + 9

// cancelGrace bounds the time to end the commands of a cancelled call.
const cancelGrace = 5 * time.Second

// A resumedOutput is the output of a call as an earlier process stored it.
type resumedOutput struct {
	outputID string
	events   []berth.Event
}

// Run runs the commands and emits their output as they print it. The guest identifies the
// call by the item's id, because models choose call_id. A call that is sent twice runs its
// commands once.
func (c *shellCall) Run(ctx context.Context, out tool.Emitter) error {
	r, err := c.openRun(ctx, out)
	if err != nil {
		return err
	}
	switch {
	case !r.unfinished():
	case c.invalid != "":
		err = r.end(ctx, 0, c.invalid, 2)
	default:
		err = r.exec(ctx, c)
	}
	if err != nil {
		return err
	}
	if err := r.done(ctx, berth.StatusCompleted); err != nil {
		return err
	}
	if r.printed > forgetAbove {
		c.tool.exec.Forget(ctx, c.item.ID)
	}
	return nil
}

// forgetAbove is the output of a call in bytes above which the container drops it immediately. Less is not worth a
// request: containers drop the oldest calls by themselves.
const forgetAbove = 64 << 10

// openRun adds the output item, or continues the one that an earlier process added.
func (c *shellCall) openRun(ctx context.Context, out tool.Emitter) (*shellRun, error) {
	r := &shellRun{out: out, item: berth.ShellCallOutput{
		ID: berth.NewID(berth.PrefixShellCallOutput), Type: berth.ItemShellCallOutput, Status: berth.StatusInProgress,
		CallID: c.item.CallID, MaxOutputLength: c.item.Action.MaxOutputLength, Output: []berth.ShellContent{},
	}}
	for range c.item.Action.Commands {
		r.commands = append(r.commands, &commandRun{clip: newClip(c.outputLimit())})
	}
	if c.invalid != "" {
		r.commands = []*commandRun{{clip: newClip(len(c.invalid))}} // its output is the error
	}
	if c.resumed != nil {
		r.item.ID = c.resumed.outputID
		return r, r.restore(c.resumed.events)
	}
	var err error
	r.index, err = out.Add(ctx, berth.NewItem(r.item))
	return r, err
}

// A shellRun is the output item of a call while its commands run.
type shellRun struct {
	out      tool.Emitter
	index    int // of the output item
	item     berth.ShellCallOutput
	commands []*commandRun
	printed  int64 // bytes that the guest sent or skipped
}

type commandRun struct {
	clip    *clip
	sent    [2]strings.Builder // the emitted part of each stream
	skip    [2]int             // characters of sent that an earlier process emitted
	files   [2]guest.OutputFile
	outcome *berth.ShellOutcome
}

// restore reads the events that an earlier process stored. They contain the outcome of
// finished commands, and the emitted output of the others.
func (r *shellRun) restore(events []berth.Event) error {
	for _, ev := range events {
		if ev.OutputIndex != nil {
			r.index = *ev.OutputIndex
		}
		if ev.CommandIndex == nil || *ev.CommandIndex < 0 || *ev.CommandIndex >= len(r.commands) {
			continue
		}
		cmd := r.commands[*ev.CommandIndex]
		switch ev.Type {
		case berth.EventShellOutputDelta:
			var delta berth.ShellDelta
			if err := json.Unmarshal(ev.Delta, &delta); err != nil {
				return fmt.Errorf("event %d: %w", ev.SequenceNumber, err)
			}
			for stream, text := range [2]string{delta.Stdout, delta.Stderr} {
				cmd.sent[stream].WriteString(text)
				cmd.skip[stream] += utf8.RuneCountInString(text)
			}
		case berth.EventShellOutputDone:
			if len(ev.Output) == 1 {
				cmd.outcome = &ev.Output[0].Outcome
			}
		}
	}
	return nil
}

func (r *shellRun) unfinished() bool {
	return slices.ContainsFunc(r.commands, func(c *commandRun) bool { return c.outcome == nil })
}

// exec runs the call in the guest until every command has an outcome.
func (r *shellRun) exec(ctx context.Context, c *shellCall) error {
	call := guest.ShellCall{CallID: c.item.ID, Commands: c.item.Action.Commands, Timeout: c.timeout(),
		Keep: int64(max(1, c.outputLimit()))}
	for ev, err := range c.tool.exec.Shell(ctx, call) {
		if err != nil {
			return r.broken(ctx, c, err)
		}
		// Output is emitted also when ctx has just ended.
		if err := r.emit(context.WithoutCancel(ctx), ev); err != nil {
			return err
		}
	}
	if r.unfinished() {
		return r.broken(ctx, c, errors.New("the container stopped answering"))
	}
	return nil
}

// emit emits one event of the guest.
func (r *shellRun) emit(ctx context.Context, ev guest.ShellEvent) error {
	if ev.Kind == guest.ShellChanges {
		r.changed(ev)
		return nil
	}
	if ev.CommandIndex < 0 || ev.CommandIndex >= len(r.commands) || r.commands[ev.CommandIndex].outcome != nil {
		return nil
	}
	cmd := r.commands[ev.CommandIndex]
	switch ev.Kind {
	case guest.ShellStdout, guest.ShellStderr:
		stream := stdout
		if ev.Kind == guest.ShellStderr {
			stream = stderr
		}
		if ev.Skipped > 0 {
			cmd.clip.skip(stream, ev.Skipped)
		}
		r.printed += int64(len(ev.Data)) + ev.Skipped
		text := cmd.unsent(stream, cmd.clip.write(stream, ev.Data))
		return r.out.Emit(ctx, r.index, r.deltas(ev.CommandIndex, stream, text)...)
	case guest.ShellExit:
		cmd.files = [2]guest.OutputFile{ev.Stdout, ev.Stderr}
		return r.end(ctx, ev.CommandIndex, "", ev.ExitCode)
	case guest.ShellTimeout:
		cmd.files = [2]guest.OutputFile{ev.Stdout, ev.Stderr}
		return r.finish(ctx, ev.CommandIndex, "", berth.ShellOutcome{Type: "timeout"})
	}
	return nil
}

var changeTypes = map[guest.FileChangeKind]string{guest.FileCreated: "created", guest.FileUpdated: "updated",
	guest.FileDeleted: "deleted"}

// changed records the files that changed during the call.
func (r *shellRun) changed(ev guest.ShellEvent) {
	if len(ev.Files) == 0 {
		return
	}
	all := &berth.ShellBerth{MoreFiles: int(ev.MoreFiles)}
	for _, f := range ev.Files {
		all.Files = append(all.Files, berth.FileChange{Path: path.Join(berth.WorkDir, f.Path),
			Type: changeTypes[f.Kind], Bytes: f.Bytes})
	}
	r.item.Berth = all
}

// unsent returns text without the part that an earlier process has emitted.
func (c *commandRun) unsent(stream int, text string) string {
	for c.skip[stream] > 0 && text != "" {
		_, n := utf8.DecodeRuneInString(text)
		text = text[n:]
		c.skip[stream]--
	}
	c.sent[stream].WriteString(text)
	return text
}

func (r *shellRun) deltas(command, stream int, text string) []berth.Event {
	if text == "" {
		return nil
	}
	delta := berth.ShellDelta{Stdout: text}
	if stream == stderr {
		delta = berth.ShellDelta{Stderr: text}
	}
	raw, _ := json.Marshal(delta) // two strings always marshal
	return []berth.Event{{Type: berth.EventShellOutputDelta, CommandIndex: &command, ItemID: r.item.ID, Delta: raw}}
}

// end ends a command with a message on its stderr, which may be empty, and an exit code.
func (r *shellRun) end(ctx context.Context, command int, message string, code int) error {
	return r.finish(ctx, command, message, berth.ShellOutcome{Type: "exit", ExitCode: &code})
}

// finish emits the rest of a command's output, a last message on its stderr and its
// outcome. It emits them together, so that a process that resumes the call finds all or
// none of them.
func (r *shellRun) finish(ctx context.Context, command int, message string, outcome berth.ShellOutcome) error {
	cmd := r.commands[command]
	cmd.outcome = &outcome
	rest := cmd.clip.finish(cmd.files)
	rest[stdout] = cmd.unsent(stdout, rest[stdout])
	rest[stderr] = cmd.unsent(stderr, rest[stderr]) + message
	cmd.sent[stderr].WriteString(message)
	events := append(r.deltas(command, stdout, rest[stdout]), r.deltas(command, stderr, rest[stderr])...)
	events = append(events, berth.Event{Type: berth.EventShellOutputDone, CommandIndex: &command,
		ItemID: r.item.ID, Output: []berth.ShellContent{cmd.content()}})
	return r.out.Emit(ctx, r.index, events...)
}

func (c *commandRun) content() berth.ShellContent {
	return berth.ShellContent{Outcome: *c.outcome, Stdout: c.sent[stdout].String(), Stderr: c.sent[stderr].String()}
}

// broken ends a call whose events ended too early. If ctx has ended, it stops the commands,
// unless another process will resume the call. Any other failure of the container is
// output, so that the model can react to it.
func (r *shellRun) broken(ctx context.Context, c *shellCall, err error) error {
	message, status := "The call was interrupted. "+reason(err), berth.StatusCompleted
	if ctx.Err() != nil {
		if errors.Is(context.Cause(ctx), tool.ErrDetached) {
			return context.Cause(ctx)
		}
		message, status = "The call was cancelled.", berth.StatusIncomplete
		cause := context.Cause(ctx)
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), cancelGrace)
		defer cancel()
		err = errors.Join(cause, c.tool.exec.Cancel(ctx, c.item.ID))
	}
	for i, cmd := range r.commands {
		if cmd.outcome == nil {
			if err := r.end(ctx, i, message, exitKilled); err != nil {
				return err
			}
		}
	}
	if status == berth.StatusCompleted {
		return nil
	}
	return errors.Join(r.done(ctx, status), err)
}

// reason returns the part of an error that the model may see.
func reason(err error) string {
	if e, ok := errors.AsType[*berth.Error](err); ok {
		return e.Message
	}
	return "The container stopped answering."
}

func (r *shellRun) done(ctx context.Context, status berth.Status) error {
	r.item.Status = status
	for _, cmd := range r.commands {
		r.item.Output = append(r.item.Output, cmd.content())
	}
	return r.out.Done(ctx, r.index, berth.NewItem(r.item))
}
