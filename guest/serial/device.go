package serial

import (
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// Open returns the serial devices that the process has open, n of them from
// descriptor first on.
func Open(first, n int) ([]Line, error) {
	var lines []Line
	for fd := first; fd < first+n; fd++ {
		unix.CloseOnExec(fd)
		if err := unix.SetNonblock(fd, true); err != nil {
			return nil, fmt.Errorf("serial line %d: %w", fd, err)
		}
		f := os.NewFile(uintptr(fd), fmt.Sprintf("serial line %d", fd))
		raw, err := f.SyscallConn()
		if err != nil {
			return nil, err
		}
		lines = append(lines, &device{File: f, raw: raw})
	}
	return lines, nil
}

// A device is a Line that is a virtio serial port.
type device struct {
	*os.File // for Write
	raw      syscall.RawConn
	hungUp   bool
}

// Read waits for the next change if the port has nothing to read, with or without another
// end: reads of a port that is hung up return immediately.
func (d *device) Read(p []byte) (n int, err error) {
	rerr := d.raw.Read(func(fd uintptr) bool {
		for {
			n, err = unix.Read(int(fd), p)
			switch {
			case err == unix.EINTR:
				continue
			case err == unix.EAGAIN:
				d.hungUp = false
				return false
			case n == 0 && err == nil && d.hungUp:
				return false
			}
			return true
		}
	})
	if rerr != nil {
		return 0, fmt.Errorf("wait for input: %w", rerr)
	}
	if err != nil {
		return 0, os.NewSyscallError("read", err)
	}
	d.hungUp = n == 0
	return n, nil
}
