package server

import (
	"fmt"
	"os/exec"
	"runtime"

	"golang.org/x/sys/unix"
)

// A starter starts programs from a thread of its own, which has taken CAP_NET_ADMIN
// out of its bounding set. The guest makes the route for addresses with that
// capability; no program that it starts can get it, not even root's. (To take it
// out of the set of every thread costs a sandbox 3 MB.)
type starter chan func()

// newStarter returns a starter; one that is nil starts programs as they are.
func newStarter() (starter, error) {
	s, ready := make(starter), make(chan error)
	go func() {
		runtime.LockOSThread()
		err := dropCapability()
		ready <- err
		if err != nil {
			return
		}
		for start := range s {
			start()
		}
	}()
	return s, <-ready
}

func (s starter) start(cmd *exec.Cmd) error {
	if s == nil {
		return cmd.Start()
	}
	started := make(chan error)
	s <- func() { started <- cmd.Start() }
	return <-started
}

// dropCapability changes the calling thread, if it has the capability to give.
func dropCapability() error {
	held, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, unix.CAP_NET_ADMIN, 0, 0, 0)
	if err != nil || held == 0 {
		return err
	}
	if err := unix.Prctl(unix.PR_CAPBSET_DROP, unix.CAP_NET_ADMIN, 0, 0, 0); err != nil {
		return fmt.Errorf("keep CAP_NET_ADMIN from commands: %w", err)
	}
	return nil
}
