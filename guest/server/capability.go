package server

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"runtime"

	"golang.org/x/sys/unix"
)

// withheld are the capabilities that no program in a sandbox gets, not even root's.
// The guest creates the route for addresses with the first and sets the clock of a machine
// with the second. With the third, root could open devices by number that the sandbox's /dev
// does not have, such as the disks of a machine.
var withheld = []uintptr{unix.CAP_NET_ADMIN, unix.CAP_SYS_TIME, unix.CAP_MKNOD}

// A starter starts programs from a thread of its own, which has dropped the withheld
// capabilities from its bounding set. (Dropping them in every thread costs a sandbox 3 MB.)
// To end the thread, close the starter.
type starter chan func()

// newStarter returns a starter. A nil starter starts programs without dropping anything.
func newStarter() (starter, error) {
	s, ready := make(starter), make(chan error)
	go s.serve(ready)
	return s, <-ready
}

// serve runs the thread. It sends to ready once, when the thread has dropped the capabilities.
func (s starter) serve(ready chan<- error) {
	runtime.LockOSThread()
	if unix.Gettid() == unix.Getpid() {
		// The kernel shows the main thread's capabilities as those of the process.
		// While this goroutine holds that thread, the next one gets another.
		defer runtime.UnlockOSThread()
		other := make(chan error)
		go s.serve(other)
		ready <- <-other
		return
	}
	err := dropCapabilities()
	ready <- err
	if err != nil {
		return
	}
	for start := range s {
		start()
	}
}

func (s starter) start(cmd *exec.Cmd) error {
	if s == nil {
		return cmd.Start()
	}
	started := make(chan error)
	s <- func() { started <- cmd.Start() }
	return <-started
}

// dropCapabilities changes the calling thread, if it has the capabilities to give.
func dropCapabilities() error {
	for _, capability := range withheld {
		held, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, capability, 0, 0, 0)
		if err != nil {
			return fmt.Errorf("read the bounding set: %w", err)
		}
		if held == 0 {
			continue
		}
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, capability, 0, 0, 0); err != nil {
			return fmt.Errorf("drop capability %d from the bounding set: %w", capability, err)
		}
	}
	return nil
}

// hideDevices hides devices that a driver puts into a sandbox and that no command needs:
// FUSE file systems cannot be mounted, and only the guest reads packets.
func hideDevices(dir string) error {
	if err := os.Remove(dir + "/fuse"); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Chmod(dir+"/net/tun", 0o600); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
