package gvisor

import (
	"context"

	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/sandbox"
	"github.com/berth-run/berth/sandbox/host"
)

// A wall is what the host puts around a sandbox besides gVisor: group, if this process
// is root, else warden. Its methods work on what is there, which after a crash may be
// anything.
type wall interface {
	// raise makes what is to be there before start, besides the directory.
	raise(sandbox.Limits) error

	// start runs runsc, and returns when that has started the sandbox. One that sleeps,
	// in a checkpoint, is to wake.
	start(ctx context.Context, args []string, rec record, sleeps bool) error

	// control runs a command of runsc's on the running sandbox and returns its output.
	control(ctx context.Context, args ...string) (string, error)

	// alive reports whether the sandbox runs, or is paused. An error means that it is
	// not known; only false without one is a proof of its end.
	alive() (bool, error)

	// oom reports whether the memory limit was reached in a sandbox that has ended.
	oom() (bool, error)

	usage() usage  // what it uses; of a dead one, what is known
	run() string   // the path of run/, while it is alive
	words() string // what a dead one left of its logs, if run() does not show them

	// signal sends SIGSTOP or SIGCONT to the processes that write to the disk, and returns
	// them. It does nothing if the sandbox does not run.
	signal(unix.Signal) (pids []int, err error)

	// kill ends all of its processes, and remove what raise has made.
	kill(context.Context) error
	remove(context.Context) error
}

// usage is one reading of a sandbox.
type usage struct {
	host.Usage
	disk int64 // bytes; of a dead one 0
}
