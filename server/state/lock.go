package state

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/statefile"
)

// lockPatience is how long Lock waits for the children of a server that was killed: until they
// execute their programs, they hold its lock.
const lockPatience = 2 * time.Second

// Lock locks the state directory for this process. It creates the directory if it is missing.
// If a running process holds the lock, or the directory is being restored, Lock returns an error at
// once.
func Lock(state string) (unlock func() error, err error) {
	if err := errRestoring(state); err != nil {
		return nil, err
	}
	return lockState(state)
}

func lockState(state string) (unlock func() error, err error) {
	if err := os.MkdirAll(state, 0o700); err != nil {
		return nil, fmt.Errorf("create state directory: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(state, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock state directory: %w", err)
	}
	for began := time.Now(); unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil; time.Sleep(
		10 * time.Millisecond) {
		text, _ := os.ReadFile(f.Name())
		holder := strings.TrimSpace(string(text))
		if runs(holder) || time.Since(began) > lockPatience {
			f.Close()
			return nil, fmt.Errorf("another server (process %s) uses %s", holder, state)
		}
	}
	if err := f.Truncate(0); err != nil {
		return nil, err
	}
	if _, err := fmt.Fprintln(f, os.Getpid()); err != nil && !errors.Is(err, unix.ENOSPC) { // the id is informational
		return nil, errors.Join(err, f.Close())
	}
	return f.Close, nil
}

// runs reports whether there is a process with that id. An empty id is one of a server that has
// just taken the lock.
func runs(pid string) bool {
	if pid == "" {
		return true
	}
	n, err := strconv.Atoi(pid)
	return err == nil && n > 0 && !errors.Is(unix.Kill(n, 0), unix.ESRCH)
}

// IsServed reports whether a process runs that has locked a state directory.
func IsServed(state string) bool {
	text, err := statefile.ReadFile(filepath.Join(state, "lock"))
	pid := strings.TrimSpace(string(text))
	return err == nil && pid != "" && runs(pid)
}

// restoreFile is the file of a state directory whose restore is not complete. Servers and commands
// refuse such a directory.
const restoreFile = "restore.incomplete"

// errRestoring returns an error if the restore of a state directory is not complete.
func errRestoring(state string) error {
	_, err := os.Lstat(filepath.Join(state, restoreFile))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
		return nil
	}
	return errors.Join(err, fmt.Errorf("the restore of %s is incomplete; run berth restore again", state))
}
