package image

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// ErrInUse is returned for a template that is held or referred to.
var ErrInUse = errors.New("the template is in use")

// useLock is a file beside a template on which each process that uses it holds a shared
// lock. Its modification time is the time of the last use.
const useLock = "in-use"

// Hold prevents any process from removing a template until the returned Closer is closed or
// this process ends. It returns ErrNotFound if the template is gone.
func (l *Store) Hold(digest string) (io.Closer, error) {
	if !digestPattern.MatchString(digest) {
		return nil, fmt.Errorf("%w: %q", ErrNotFound, digest)
	}
	f, err := l.lockUse(digest, unix.LOCK_SH)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil, fmt.Errorf("%w: %s is being removed", ErrNotFound, digest)
	}
	return f, err
}

// lockUse locks a template's useLock. The caller closes the file.
func (l *Store) lockUse(digest string, how int) (*os.File, error) {
	path := filepath.Join(l.path(digest), useLock)
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: %s", ErrNotFound, digest)
	}
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), how|unix.LOCK_NB); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	// The file may have been removed before it was locked.
	mine, err := f.Stat()
	if err == nil {
		var there os.FileInfo
		if there, err = os.Stat(path); err == nil && !os.SameFile(mine, there) {
			err = fs.ErrNotExist
		}
	}
	if err == nil && how == unix.LOCK_SH {
		now := time.Now()
		err = os.Chtimes(path, now, now)
	}
	if err != nil {
		f.Close()
		if errors.Is(err, fs.ErrNotExist) {
			err = fmt.Errorf("%w: %s", ErrNotFound, digest)
		}
		return nil, err
	}
	return f, nil
}

// discard removes an unnamed template. It returns ErrInUse if the template is held. The
// caller holds the index lock.
func (l *Store) discard(digest string) error {
	lock, err := l.lockUse(digest, unix.LOCK_EX)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return fmt.Errorf("%w: %s", ErrInUse, digest)
	}
	if err != nil {
		return err
	}
	defer lock.Close()
	// The rename hides the template immediately. Open completes an interrupted removal.
	dir, err := os.MkdirTemp(l.dir, "building-*")
	if err != nil {
		return err
	}
	if err := os.Rename(l.path(digest), filepath.Join(dir, "removed")); err != nil {
		return err
	}
	return os.RemoveAll(dir)
}

// touch resets a template's age.
func (l *Store) touch(digest string) {
	now := time.Now()
	_ = os.Chtimes(filepath.Join(l.path(digest), "template.json"), now, now) // it may be gone
}

// LastUsed returns when a template was last held, made, or lost a name.
func (l *Store) LastUsed(digest string) time.Time {
	var last time.Time
	for _, file := range []string{useLock, "template.json"} {
		if info, err := os.Stat(filepath.Join(l.path(digest), file)); err == nil && info.ModTime().After(last) {
			last = info.ModTime()
		}
	}
	return last
}

// Pruned summarizes what Prune removed.
type Pruned struct {
	Templates []string // digests
	Blobs     int
	Bytes     int64 // total size of both
}

// Prune removes unnamed templates that are not in use, and blobs that no template was made
// from, unless they were used within grace. It waits for running builds and Adds. inUse
// holds the digests that containers or snapshots refer to. Held templates stay.
func (l *Store) Prune(ctx context.Context, inUse map[string]bool, grace time.Duration) (Pruned, error) {
	var done Pruned
	building, err := l.lock(ctx, buildLock)
	if err != nil {
		return done, err
	}
	defer building.Close()
	index, err := l.lock(ctx, indexLock)
	if err != nil {
		return done, err
	}
	defer index.Close()
	before := time.Now().Add(-grace)
	all, err := l.List()
	if err != nil {
		return done, err
	}
	for _, t := range all {
		if t.Name != "" || inUse[t.Digest] || l.LastUsed(t.Digest).After(before) {
			continue
		}
		err := l.discard(t.Digest)
		if errors.Is(err, ErrInUse) || errors.Is(err, ErrNotFound) {
			continue
		}
		if err != nil {
			return done, err
		}
		done.Templates = append(done.Templates, t.Digest)
		done.Bytes += t.Bytes
	}
	return done, l.pruneBlobs(before, &done)
}

// pruneBlobs removes blobs that no template was made from. The caller holds the build lock.
func (l *Store) pruneBlobs(before time.Time, done *Pruned) error {
	used := map[string]bool{}
	all, err := l.List()
	if err != nil {
		return err
	}
	dirs, err := os.ReadDir(filepath.Join(l.dir, "templates"))
	if err != nil {
		return err
	}
	listed := map[string]bool{}
	for _, t := range all {
		listed[strings.TrimPrefix(t.Digest, "sha256:")] = true
		if t.Image != nil {
			for _, b := range append(t.Image.Blobs, t.Image.Manifest) {
				used[strings.TrimPrefix(b.Digest, "sha256:")] = true
			}
		}
	}
	for _, d := range dirs {
		if !listed[d.Name()] {
			return nil // a damaged template may need any of the blobs
		}
	}
	blobs, err := os.ReadDir(filepath.Join(l.dir, "blobs"))
	if err != nil {
		return err
	}
	for _, b := range blobs {
		info, err := b.Info()
		if err != nil || used[b.Name()] || info.ModTime().After(before) {
			continue
		}
		if err := os.Remove(filepath.Join(l.dir, "blobs", b.Name())); err != nil {
			return err
		}
		done.Blobs++
		done.Bytes += info.Size()
	}
	return nil
}
