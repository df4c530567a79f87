package server

import (
	"os"

	"golang.org/x/sys/unix"
)

// inputPipe returns a pipe into a command.
func inputPipe() (theirs, ours *os.File, err error) { return newPipe(1) }

// outputPipe returns a pipe out of a command.
func outputPipe() (ours, theirs *os.File, err error) { return newPipe(0) }

// newPipe returns a pipe whose end with the index ours is the guest's and non-blocking.
// os.Pipe makes both ends non-blocking, and the command's must then be made blocking
// again: ten system calls more.
func newPipe(ours int) (r, w *os.File, err error) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		return nil, nil, os.NewSyscallError("pipe2", err)
	}
	// a new pipe has no other flags
	if _, err := unix.FcntlInt(uintptr(fds[ours]), unix.F_SETFL, unix.O_NONBLOCK); err != nil {
		unix.Close(fds[0])
		unix.Close(fds[1])
		return nil, nil, os.NewSyscallError("fcntl", err)
	}
	return os.NewFile(uintptr(fds[0]), "|0"), os.NewFile(uintptr(fds[1]), "|1"), nil
}
