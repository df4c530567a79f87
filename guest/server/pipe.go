package server

import (
	"os"

	"golang.org/x/sys/unix"
)

// inputPipe makes a pipe into a command.
func inputPipe() (theirs, ours *os.File, err error) { return newPipe(1) }

// outputPipe makes a pipe out of a command.
func outputPipe() (ours, theirs *os.File, err error) { return newPipe(0) }

// newPipe makes a pipe of which the end with the index ours is the guest's, to be
// waited for without a thread. With os.Pipe both ends are, until the command's is made
// to block again: nine system calls more.
func newPipe(ours int) (r, w *os.File, err error) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		return nil, nil, os.NewSyscallError("pipe2", err)
	}
	if err := unix.SetNonblock(fds[ours], true); err != nil {
		unix.Close(fds[0])
		unix.Close(fds[1])
		return nil, nil, os.NewSyscallError("fcntl", err)
	}
	return os.NewFile(uintptr(fds[0]), "|0"), os.NewFile(uintptr(fds[1]), "|1"), nil
}
