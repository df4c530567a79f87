package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// unfinished is the prefix of directories that Create is filling. No id starts with it.
const unfinished = ".new-"

// A Dir holds one directory for each sandbox of a driver. List lists these directories: a
// sandbox's directory is created first and removed last, so that List finds all that a
// crash leaves.
type Dir struct {
	path string // absolute, without symbolic links
}

// OpenDir opens the directory at path and creates it if it does not exist. It removes
// unfinished directories that a crash during Create left.
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

// FindDir opens the directory at path and changes nothing in it. It returns fs.ErrNotExist if
// there is none.
func FindDir(path string) (Dir, error) {
	path, err := filepath.EvalSymlinks(path)
	if err != nil {
		return Dir{}, err
	}
	path, err = filepath.Abs(path)
	return Dir{path: path}, err
}

// Create creates the sandbox's directory atomically with the files that fill writes into
// it. It returns fs.ErrExist if the sandbox exists.
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

// Path returns the path of the sandbox's directory, which need not exist. It returns
// CheckID's error.
func (d Dir) Path(id string) (string, error) {
	if err := CheckID(id); err != nil {
		return "", err
	}
	return filepath.Join(d.path, id), nil
}

// Find returns the path of an existing sandbox's directory, and ErrNotFound for others.
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

// BootID returns the id of this boot of the machine. A sandbox of an earlier boot is dead
// with ReasonHost.
func BootID() (string, error) {
	raw, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(raw)), err
}
