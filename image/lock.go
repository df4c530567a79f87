package image

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// The library's two locks. They are files, so that processes respect each other.
const (
	buildLock = "lock"       // held while a build runs: a minute; shared by those who add images
	indexLock = "index.lock" // held while names and templates change: a moment
)

// lock takes one of the locks, for which it waits. Closing the file releases it.
func (l *Store) lock(ctx context.Context, name string) (*os.File, error) {
	return l.waitLock(ctx, name, unix.LOCK_EX)
}

// shareLock takes a lock that others may share, but nobody may have alone.
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

// flock takes the lock of an open file, or fails with EWOULDBLOCK.
func flock(f *os.File) error { return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) }
