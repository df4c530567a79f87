package server

import (
	"context"
	"crypto/rand"
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
	"github.com/berth-run/berth/store/sqlite"
)

// OpenStore opens the store of a state directory with its key. It creates the directory if it is
// missing.
func OpenStore(ctx context.Context, state string, opts sqlite.Options) (_ *sqlite.DB, err error) {
	if err := os.MkdirAll(state, 0o700); err != nil {
		return nil, fmt.Errorf("create state directory: %w", err)
	}
	if opts.Key, err = sealKey(state); err != nil {
		return nil, err
	}
	db, err := sqlite.Open(ctx, filepath.Join(state, "berth.db"), &opts)
	if err != nil {
		return nil, fmt.Errorf("open database: %w", err)
	}
	return db, nil
}

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

// nodeID returns the server's name on leases. The first start creates it.
func nodeID(state string) (string, error) {
	path := filepath.Join(state, "node_id")
	text, err := statefile.ReadFile(path)
	if err == nil && len(text) > 0 {
		return strings.TrimSpace(string(text)), nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("read node id: %w", err)
	}
	id := "node_" + strings.ToLower(rand.Text())
	return id, os.WriteFile(path, []byte(id+"\n"), 0o600)
}

// isServed reports whether a process runs that has locked a state directory.
func isServed(state string) bool {
	text, err := statefile.ReadFile(filepath.Join(state, "lock"))
	pid := strings.TrimSpace(string(text))
	return err == nil && pid != "" && runs(pid)
}

// existing returns the state directory, or its nearest parent that exists.
func existing(state string) string {
	for dir := state; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(dir); err == nil || dir == "/" || dir == "." {
			return dir
		}
	}
}
