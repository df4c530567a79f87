package guest

import (
	"context"
	"iter"
)

// An Execer runs the calls of a tool in one container: commands, code for a kernel, or actions on the desktop.
type Execer interface {
	// Prepare starts the kernel or the desktop that a call names, so that the first call need not wait for it. It does
	// not block, and reports no error: the call that needs it does.
	Prepare(call ShellCall)
	// Shell runs the call, or continues the call with its id. It yields the events of the commands until all have
	// ended.
	Shell(ctx context.Context, call ShellCall) iter.Seq2[ShellEvent, error]
	// Cancel ends the commands of a call and all processes that they started. It interrupts code in a kernel.
	Cancel(ctx context.Context, callID string) error
	// Forget lets the container drop the output of a call that is stored.
	Forget(ctx context.Context, callID string)
}

// A Command is a running process of a container; see Process.
type Command interface {
	// Events yields the output until the process has ended. The caller must read it.
	Events() iter.Seq2[ProcessEvent, error]
	Write(ctx context.Context, input []byte) error
	Kill(ctx context.Context) error
}
