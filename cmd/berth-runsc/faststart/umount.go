package faststart

import (
	"bytes"
	"syscall"

	"golang.org/x/sys/unix"
)

// umountCommand is how the sentry and the gofer each start the program once more, to have /proc
// unmounted after they have given up their capabilities.
var umountCommand = []byte("umount\x00--sync-fd=3\x00/proc\x00")

// syncFD is the descriptor of umountCommand.
const syncFD = 3

// init performs umountCommand and ends the process, before the packages of gVisor are initialised: that
// takes most of the time of such a process. Their parents check the result, and that /proc is gone.
func init() {
	_, arguments, _ := bytes.Cut(commandLine(), []byte{0})
	if !bytes.Equal(arguments, umountCommand) {
		return
	}
	var one [1]byte
	if n, err := unix.Read(syncFD, one[:]); n != 1 || err != nil {
		syscall.Exit(1)
	}
	if err := unix.Unmount("/proc", unix.MNT_DETACH); err != nil {
		syscall.Exit(1)
	}
	syscall.Exit(0)
}

// commandLine returns the start of the process's command line. Package os is not initialised yet.
func commandLine() []byte {
	fd, err := unix.Open("/proc/self/cmdline", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	defer unix.Close(fd)
	buf := make([]byte, 128)
	n, _ := unix.Read(fd, buf)
	return buf[:max(n, 0)]
}
