// Package plainfile reads and creates small files with few system calls. Package os prepares each file
// that it opens for the runtime's poller, which takes five calls more, and they are slow in gVisor.
package plainfile

import (
	"os"

	"golang.org/x/sys/unix"
)

// Read returns up to limit bytes of a file. flags are added to those of open(2).
func Read(name string, flags, limit int) ([]byte, error) {
	fd, err := open(name, unix.O_RDONLY|flags, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	text := make([]byte, 0, min(limit, 4096))
	for {
		if len(text) == cap(text) {
			if len(text) >= limit {
				return text, nil
			}
			text = append(text, 0)[:len(text)]
		}
		n, err := unix.Read(fd, text[len(text):min(cap(text), limit)])
		switch {
		case err == unix.EINTR:
		case err != nil:
			return nil, &os.PathError{Op: "read", Path: name, Err: err}
		case n == 0:
			return text, nil
		}
		text = text[:len(text)+max(n, 0)]
	}
}

// Create creates an empty file, which must not exist, and gives it an owner unless uid is -1.
func Create(name string, mode uint32, uid, gid int) error {
	fd, err := open(name, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_NOFOLLOW, mode)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if uid < 0 {
		return nil
	}
	if err := unix.Fchown(fd, uid, gid); err != nil {
		return &os.PathError{Op: "chown", Path: name, Err: err}
	}
	return nil
}

func open(name string, flags int, mode uint32) (fd int, err error) {
	for {
		fd, err = unix.Open(name, flags|unix.O_CLOEXEC, mode)
		if err != unix.EINTR {
			break
		}
	}
	if err != nil {
		return -1, &os.PathError{Op: "open", Path: name, Err: err}
	}
	return fd, nil
}
