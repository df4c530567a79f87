package gvisor

import (
	"context"

	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/sandbox"
	"github.com/berth-run/berth/sandbox/host"
)

// A wall is the host's confinement of a sandbox beside gVisor: group if this process is root,
// else warden. With the methods of instance it is a host.Sandbox.
type wall interface {
	// raise creates what start needs, beside the directory.
	raise(sandbox.Limits) error

	// start runs runsc, and returns when runsc has started the sandbox. sleeps means that the
	// sandbox sleeps in a checkpoint and is to wake.
	start(ctx context.Context, args []string, rec record, sleeps bool) error

	// control runs a runsc command on the running sandbox and returns its output.
	control(ctx context.Context, args ...string) (string, error)

	run() string   // path of run/ while it is alive
	words() string // the log of a dead sandbox, if it is not in run()

	// See host.Sandbox. Remove removes what raise created.
	Alive() (bool, error)
	OOM() (bool, error)
	Usage() host.Usage
	Signal(unix.Signal) (pids []int, err error)
	Kill(context.Context) error
	Remove(context.Context) error
}
