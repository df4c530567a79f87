// Package statefile opens and copies files of the state directory. A FIFO, a device, a directory or a
// link in the place of a file is an error and does not block the reader.
package statefile

import (
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// Open opens a regular file for reading. It does not follow a link at path.
func Open(path string) (*os.File, error) { return OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW) }

// OpenFile opens a regular file that exists, with flags as os.OpenFile takes them.
func OpenFile(path string, flags int) (*os.File, error) {
	f, err := os.OpenFile(path, flags|unix.O_NONBLOCK, 0) // do not block on a FIFO
	if err != nil {
		return nil, err
	}
	if err := regular(f); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

func regular(f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return &os.PathError{Op: "open", Path: f.Name(), Err: fmt.Errorf("not a regular file but %s",
			info.Mode().Type())}
	}
	return nil
}

// ReadFile returns the content of a regular file. It does not follow a link at path.
func ReadFile(path string) ([]byte, error) { return read(Open(path)) }

// ReadLinked is like ReadFile, but follows a link at path: an operator may have moved the file
// elsewhere, as with mounted secrets.
func ReadLinked(path string) ([]byte, error) { return read(OpenFile(path, os.O_RDONLY)) }

func read(f *os.File, err error) ([]byte, error) {
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(f)
}
