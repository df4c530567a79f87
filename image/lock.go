package image

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// The store's two locks. They are files, so that they also exclude other processes.
const (
	buildLock = "lock"       // held for a minute while a build runs; shared by Add and Load
	indexLock = "index.lock" // held for a moment while names and templates change
)

// lock waits for a lock and acquires it exclusively. Closing the file releases it.
func (l *Store) lock(ctx context.Context, name string) (*os.File, error) {
	return l.waitLock(ctx, name, unix.LOCK_EX)
}

// shareLock waits for a lock and acquires it shared. Closing the file releases it.
func (l *Store) shareLock(ctx context.Context, name string) (*os.File, error) {
	return l.waitLock(ctx, name, unix.LOCK_SH)
}

func (l *Store) waitLock(ctx context.Context, name string, how int) (*os.File, error) {
	f, err := l.openLock(name)
	if err != nil {
		return nil, err
	}
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		err := unix.Flock(int(f.Fd()), how|unix.LOCK_NB)
		if err == nil {
			return f, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return nil, errors.Join(err, f.Close())
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(context.Cause(ctx), f.Close())
		case <-tick.C:
		}
	}
}

func (l *Store) openLock(name string) (*os.File, error) {
	return os.OpenFile(filepath.Join(l.dir, name), os.O_CREATE|os.O_RDWR, 0o600)
}

// flock locks an open file exclusively. It returns EWOULDBLOCK if the file is locked.
func flock(f *os.File) error {
	return os.NewSyscallError("flock", unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB))
}
