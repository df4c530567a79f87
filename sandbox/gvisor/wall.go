package gvisor

import (
	"context"

	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/sandbox"
	"github.com/berth-run/berth/sandbox/host"
)

// A wall is the host's confinement of a sandbox beside gVisor: group if this process is root,
// else warden. Its methods work on the existing files, which after a crash may be in any state.
type wall interface {
	// raise creates what start needs, beside the directory.
	raise(sandbox.Limits) error

	// start runs runsc, and returns when runsc has started the sandbox. sleeps means that the
	// sandbox sleeps in a checkpoint and is to wake.
	start(ctx context.Context, args []string, rec record, sleeps bool) error

	// control runs a runsc command on the running sandbox and returns its output.
	control(ctx context.Context, args ...string) (string, error)

	// alive reports whether the sandbox runs or is paused. An error means unknown: only false
	// with a nil error proves its end.
	alive() (bool, error)

	// oom reports whether an ended sandbox reached its memory limit.
	oom() (bool, error)

	usage() usage  // current use; of a dead sandbox the known part
	run() string   // path of run/ while it is alive
	words() string // the log of a dead sandbox, if it is not in run()

	// signal sends SIGSTOP or SIGCONT to the processes that write to the disk, and returns
	// their ids. It does nothing if the sandbox does not run.
	signal(unix.Signal) (pids []int, err error)

	// kill ends all processes of the sandbox; remove removes what raise created.
	kill(context.Context) error
	remove(context.Context) error
}

// usage is one reading of a sandbox's resource use.
type usage struct {
	host.Usage
	disk int64 // bytes; 0 if it is dead
}
