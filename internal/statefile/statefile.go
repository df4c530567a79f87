// Package statefile opens files that the server made. What somebody has put in the place
// of one, such as a FIFO, a device, a directory or a link, is an error and does not hold
// the reader.
package statefile

import (
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// Open opens a regular file for reading. A link in its place is not followed.
func Open(path string) (*os.File, error) { return OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW) }

// OpenFile opens a regular file that exists, with flags as os.OpenFile takes them.
func OpenFile(path string, flags int) (*os.File, error) {
	f, err := os.OpenFile(path, flags|unix.O_NONBLOCK, 0) // does not wait for a FIFO's writer
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
		return &os.PathError{Op: "open", Path: f.Name(), Err: fmt.Errorf("it is not a regular file but %s", info.Mode().Type())}
	}
	return nil
}

// ReadFile returns the content of a regular file. A link in its place is not followed.
func ReadFile(path string) ([]byte, error) { return read(Open(path)) }

// ReadLinked is ReadFile for a file that an operator may have put elsewhere, with a link to
// it in its place, as secrets are mounted.
func ReadLinked(path string) ([]byte, error) { return read(OpenFile(path, os.O_RDONLY)) }

func read(f *os.File, err error) ([]byte, error) {
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(f)
}
