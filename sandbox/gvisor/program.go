package gvisor

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// loadProgram copies a program into sealed memory, and returns a file to execute it from.
//
// Otherwise a sandbox at its memory limit would drop pages of its sentry's code and read them
// again, hundreds of megabytes a second, instead of being killed: filling /dev in a sandbox of
// 256 MiB took 58 s of CPU before, 0.3 s after. Pages of the returned file cannot be dropped.
// They belong to this process's memory and not to any sandbox's, and all sandboxes share them.
func loadProgram(path string) (*os.File, error) {
	src, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer src.Close()
	flags := unix.MFD_CLOEXEC | unix.MFD_ALLOW_SEALING
	fd, err := unix.MemfdCreate("berth-runsc", flags|unix.MFD_EXEC)
	if errors.Is(err, unix.EINVAL) { // before Linux 6.3 all are executable
		fd, err = unix.MemfdCreate("berth-runsc", flags)
	}
	if err != nil {
		return nil, fmt.Errorf("memfd_create: %w", err)
	}
	dst := os.NewFile(uintptr(fd), "berth-runsc")
	if _, err := io.Copy(dst, src); err != nil {
		dst.Close()
		return nil, err
	}
	if err := seal(dst); err != nil {
		dst.Close()
		return nil, fmt.Errorf("seal: %w", err)
	}
	// A file that is open for writing cannot be executed.
	defer dst.Close()
	return os.Open(procFD(dst))
}

// seal lets nobody change a file in memory. The kernel refuses it with EBUSY while it uses pages of the file itself, as
// it does when it looks for memory to give back; it waits a sixth of a second in each call.
func seal(f *os.File) error {
	const seals = unix.F_SEAL_WRITE | unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL
	const tries = 60
	for n := 1; ; n++ {
		_, err := unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, seals)
		if n == tries || !errors.Is(err, unix.EBUSY) {
			return os.NewSyscallError("fcntl", err)
		}
	}
}

// procFD returns a path of f for other processes. It is valid while this process has f open.
func procFD(f *os.File) string {
	return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), f.Fd())
}
