package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// unfinished marks a directory that Create is filling. No id begins so.
const unfinished = ".new-"

// A Dir keeps one directory for each sandbox of a driver. Its presence is what
// List goes by: it is the first thing that a sandbox has and the last that it
// loses, so a crash leaves nothing that nobody knows of.
type Dir struct {
	path string // absolute, without symbolic links
}

// OpenDir opens the directory at path, which it creates if need be. It clears
// what a crash in the middle of Create left.
func OpenDir(path string) (Dir, error) {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return Dir{}, err
	}
	path, err := filepath.EvalSymlinks(path)
	if err != nil {
		return Dir{}, err
	}
	if path, err = filepath.Abs(path); err != nil {
		return Dir{}, err
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return Dir{}, err
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), unfinished) {
			if err := os.RemoveAll(filepath.Join(path, e.Name())); err != nil {
				return Dir{}, err
			}
		}
	}
	return Dir{path: path}, nil
}

// Create makes the sandbox's directory appear with all that fill puts into it at
// once, or not at all. An id that exists is fs.ErrExist.
func (d Dir) Create(id string, fill func(dir string) error) error {
	final, err := d.Path(id)
	if err != nil {
		return err
	}
	if _, err := os.Lstat(final); err == nil {
		return &os.PathError{Op: "create", Path: final, Err: fs.ErrExist}
	}
	tmp := filepath.Join(d.path, unfinished+id)
	if err := os.Mkdir(tmp, 0o700); err != nil {
		return err
	}
	if err := fill(tmp); err != nil {
		return errors.Join(err, os.RemoveAll(tmp))
	}
	if err := os.Rename(tmp, final); err != nil {
		return errors.Join(err, os.RemoveAll(tmp))
	}
	return nil
}

// Path returns the path of the sandbox's directory, be there one or not. The
// error is CheckID's.
func (d Dir) Path(id string) (string, error) {
	if err := CheckID(id); err != nil {
		return "", err
	}
	return filepath.Join(d.path, id), nil
}

// Find is Path for a sandbox that exists, and ErrNotFound for others.
func (d Dir) Find(id string) (string, error) {
	path, err := d.Path(id)
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("%s: %w", id, ErrNotFound)
	} else if err != nil {
		return "", err
	}
	return path, nil
}

// List returns the ids of the sandboxes that exist, in order.
func (d Dir) List() ([]string, error) {
	entries, err := os.ReadDir(d.path)
	if err != nil {
		return nil, err
	}
	var ids []string
	for _, e := range entries {
		if e.IsDir() && CheckID(e.Name()) == nil {
			ids = append(ids, e.Name())
		}
	}
	return ids, nil
}

// BootID returns what distinguishes this boot of the machine from others. A
// sandbox made under another one is dead with ReasonHost.
func BootID() (string, error) {
	raw, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(raw)), err
}
