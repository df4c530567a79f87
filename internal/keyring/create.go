package keyring

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// A Copy is a new file with some keys of a ring. Commit gives it its name, in place of a file that
// has it. A Copy is not safe for concurrent use.
type Copy struct {
	file *os.File
	path string
}

// Create starts a file with keys of the ring with that id, and with a tag unless it is zero. If path is a
// link to a file, that file is replaced, because an operator may have put it on another volume.
func Create(path string, id [16]byte, tag Tag) (*Copy, error) {
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target
	}
	return create(path, id, tag)
}

func create(path string, id [16]byte, tag Tag) (*Copy, error) {
	f, err := os.OpenFile(path+".incomplete", os.O_CREATE|os.O_TRUNC|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	c := &Copy{f, path}
	header := headerOf(id, tag)
	if _, err := f.WriteAt(header[:], 0); err != nil {
		return nil, errors.Join(err, c.Abort())
	}
	return c, nil
}

// Put writes a key at its number, which is above 0.
func (c *Copy) Put(number int64, key Key) error {
	if number < 1 {
		return fmt.Errorf("keyring: no key has the number %d", number)
	}
	_, err := c.file.WriteAt(key[:], place(number))
	return err
}

// Commit makes the file durable and gives it its name.
func (c *Copy) Commit() error {
	if err := c.file.Sync(); err != nil {
		return errors.Join(err, c.Abort())
	}
	return errors.Join(c.file.Close(), os.Rename(c.file.Name(), c.path), SyncDir(filepath.Dir(c.path)))
}

// Abort removes the file.
func (c *Copy) Abort() error { return errors.Join(c.file.Close(), os.Remove(c.file.Name())) }
