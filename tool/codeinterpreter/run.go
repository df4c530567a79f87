package codeinterpreter

import (
	"context"
	"errors"
	"path"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/guest"
	"github.com/berth-run/berth/guest/jupyter"
	"github.com/berth-run/berth/tool"
)

// The outcomes of a call that did not end well; see berth.CodeInterpreterBerth.
const (
	outcomeError   = "error"
	outcomeTimeout = "timeout"
	outcomeDied    = "died"
	outcomeFailed  = "failed"
)

// restartedText is what the model reads of a call before which the kernel was started again.
const restartedText = "[The kernel had ended and was started again: variables and imports of earlier calls are gone. Files are kept.]\n"

// cancelGrace bounds the time to interrupt the code of a cancelled call.
const cancelGrace = 5 * time.Second

// Mark implements tool.Markable.
func (c *call) Mark(mark berth.CallBerth) {
	c.mark = mark
	c.item.Berth = &berth.CodeInterpreterBerth{CallBerth: mark}
}

// Run implements tool.Call. The guest identifies the call by the item's id, and runs the
// code of an id once.
func (c *call) Run(ctx context.Context, out tool.Emitter) error {
	if !c.began {
		if err := out.Emit(ctx, out.Call(), c.event(berth.Event{Type: berth.EventCodeInterpreting})); err != nil {
			return err
		}
	}
	o := newOutputs(c.tool.limits.Output)
	switch {
	case c.invalid != "":
		o.fail(outcomeFailed, c.invalid)
	default:
		if err := c.exec(ctx, o); err != nil {
			return err
		}
	}
	if err := c.done(ctx, out, o, berth.StatusCompleted); err != nil {
		return err
	}
	c.tool.exec.Forget(ctx, c.item.ID)
	return nil
}

// exec runs the code and collects its outputs. It returns an error only if the call has
// no result, because the server stops or the call was cancelled.
func (c *call) exec(ctx context.Context, o *outputs) error {
	kernel, code := split(c.item.Code)
	run := guest.ShellCall{CallID: c.item.ID, Commands: []string{code}, Timeout: c.tool.limits.Timeout, Kernel: kernel}
	var lines jupyter.Decoder
	ended := false
	for ev, err := range c.tool.exec.Shell(ctx, run) {
		if err != nil {
			return c.broken(ctx, o, err)
		}
		switch ev.Kind {
		case guest.ShellStdout:
			for _, e := range lines.Write(ev.Data, ev.Skipped) {
				o.add(e)
			}
		case guest.ShellExit, guest.ShellTimeout:
			ended = true
			o.end(ev)
		case guest.ShellChanges:
			o.changed(ev)
		}
	}
	if !ended {
		return c.broken(ctx, o, errors.New("the container stopped answering"))
	}
	return nil
}

// broken ends a call whose events ended too early. If ctx has ended, it interrupts the
// code, unless another process will resume the call. Any other failure of the container is
// output, so that the model can react to it.
func (c *call) broken(ctx context.Context, o *outputs, err error) error {
	if ctx.Err() == nil {
		o.fail(outcomeFailed, "The call was interrupted. "+reason(err))
		return nil
	}
	cause := context.Cause(ctx)
	if errors.Is(cause, tool.ErrDetached) {
		return cause
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cancelGrace)
	defer cancel()
	return errors.Join(cause, c.tool.exec.Cancel(ctx, c.item.ID))
}

// reason returns the part of an error that the model may see.
func reason(err error) string {
	if e, ok := errors.AsType[*berth.Error](err); ok {
		return e.Message
	}
	return "The container stopped answering."
}

// done closes the item with its outputs.
func (c *call) done(ctx context.Context, out tool.Emitter, o *outputs, status berth.Status) error {
	o.finish()
	c.item.Status, c.item.Outputs = status, o.list
	if extra := o.extra(c.mark); extra != nil {
		c.item.Berth = extra
	}
	if !c.completed {
		if err := out.Emit(ctx, out.Call(), c.event(berth.Event{Type: berth.EventCodeCompleted})); err != nil {
			return err
		}
	}
	return out.Done(ctx, out.Call(), berth.NewItem(c.item))
}

var changeTypes = map[guest.FileChangeKind]string{guest.FileCreated: "created", guest.FileUpdated: "updated",
	guest.FileDeleted: "deleted"}

// changed records the files that changed during the call.
func (o *outputs) changed(ev guest.ShellEvent) {
	for _, f := range ev.Files {
		o.files = append(o.files, berth.FileChange{Path: path.Join(berth.WorkDir, f.Path), Type: changeTypes[f.Kind],
			Bytes: f.Bytes})
	}
	o.moreFiles = int(ev.MoreFiles)
}
