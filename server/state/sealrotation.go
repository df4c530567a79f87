package state

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/audit"
	"github.com/berth-run/berth/internal/keyring"
	"github.com/berth-run/berth/internal/seal"
	"github.com/berth-run/berth/store"
	"github.com/berth-run/berth/store/sealed"
)

// A rotation of the server's key takes these steps:
//
//  1. write the new key, with the former ones, to a file beside seal.key;
//  2. let the database seal the keys of its rows with it, which it commits to as a whole;
//  3. give the file its name.
//
// After a crash between the steps, the next process that opens the database finds the key that opens it.
const nextSealFile = sealFile + ".next"

// A SealLock is held for reading by each process that uses the key of a state directory, and for writing by the
// one that rotates it.
type SealLock struct{ file *os.File }

// LockSealKey waits while the key is rotated. It creates the directory if it is missing.
func LockSealKey(ctx context.Context, state string) (*SealLock, error) {
	if err := os.MkdirAll(state, 0o700); err != nil {
		return nil, fmt.Errorf("create state directory: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(state, "seal.lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock seal key: %w", err)
	}
	l := &SealLock{f}
	if err := l.acquire(ctx, unix.LOCK_SH); err != nil {
		return nil, errors.Join(fmt.Errorf("wait for the rotation of the seal key: %w", err), f.Close())
	}
	return l, nil
}

// acquire tries to get the lock until ctx ends.
func (l *SealLock) acquire(ctx context.Context, how int) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := unix.Flock(int(l.file.Fd()), how|unix.LOCK_NB)
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return os.NewSyscallError("flock", err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Close releases the lock.
func (l *SealLock) Close() error { return l.file.Close() }

// alone runs f while no other process uses the key. It reports false if another one does until ctx ends.
func (l *SealLock) alone(ctx context.Context, f func() error) (bool, error) {
	if err := l.acquire(ctx, unix.LOCK_EX); err != nil {
		// To convert a lock may lose it, until the other process has ended its rotation.
		again := l.acquire(context.WithoutCancel(ctx), unix.LOCK_SH)
		return false, again
	}
	return true, errors.Join(f(), l.acquire(context.WithoutCancel(ctx), unix.LOCK_SH))
}

// endRotation ends a rotation that a crash interrupted.
func (use *Use) endRotation(ctx context.Context, state, at string) error {
	lock := use.Lock
	if lock == nil {
		lock = use.Options.Opened.(*SealLock)
	}
	next := filepath.Join(sealDir(state), nextSealFile)
	if _, err := os.Lstat(next); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	soon, cancel := context.WithTimeout(ctx, rotationPatience)
	defer cancel()
	alone, err := lock.alone(soon, func() error {
		keys, err := readSealFile(next)
		if errors.Is(err, fs.ErrNotExist) {
			return nil // another process was faster
		}
		if err != nil {
			return errors.Join(err, os.Remove(next)) // it was not written whole
		}
		probe := Use{restoring: use.restoring}
		db, err := probe.open(ctx, state, at, keys.current)
		switch {
		case errors.Is(err, sealed.ErrOtherKeys):
			return os.Remove(next)
		case err != nil:
			return err
		}
		return errors.Join(db.Close(), takeSealKey(state))
	})
	if err != nil {
		return fmt.Errorf("end the rotation of the seal key: %w", err)
	}
	if !alone {
		return errors.New("a rotation of the seal key was interrupted; stop the server and all commands that use " + state +
			", and start the server again")
	}
	return nil
}

// sealDir returns the directory of the file seal.key, which may be a link to it.
func sealDir(state string) string {
	if path, err := filepath.EvalSymlinks(filepath.Join(state, sealFile)); err == nil {
		return filepath.Dir(path)
	}
	return state
}

// takeSealKey makes the next key the key.
func takeSealKey(state string) error {
	dir := sealDir(state)
	path := filepath.Join(state, sealFile)
	if to, err := filepath.EvalSymlinks(path); err == nil {
		path = to
	}
	if err := os.Rename(filepath.Join(dir, nextSealFile), path); err != nil {
		return fmt.Errorf("replace the seal key: %w", err)
	}
	return keyring.SyncDir(dir)
}

// rotationPatience is how long a rotation waits for commands that use the state directory.
const rotationPatience = 10 * time.Second

// A KeyRotation rotates the key of a state directory.
type KeyRotation struct {
	State    string
	Database Database
	Lock     *SealLock
	Keys     *seal.Keychain // that the process seals with
	Audit    AuditWriter
}

// A rotatable is a database whose key can be rotated.
type rotatable interface {
	RotateKey(ctx context.Context, key [32]byte, after func(step string) error) error
}

// An AuditWriter writes entries to an audit record.
type AuditWriter interface {
	Commit(ctx context.Context, entries ...audit.Entry) error
}

// Run rotates the key. after, if not nil, is called after each step.
func (r *KeyRotation) Run(ctx context.Context, after func(step string) error) error {
	if after == nil {
		after = func(string) error { return nil }
	}
	ctx = context.WithoutCancel(ctx)
	soon, cancel := context.WithTimeout(ctx, rotationPatience)
	defer cancel()
	alone, err := r.Lock.alone(soon, func() error { return r.rotate(ctx, after) })
	if err != nil {
		return fmt.Errorf("rotate the seal key: %w", err)
	}
	if !alone {
		return fmt.Errorf("other commands use %s, such as berth backup; rotate the key when they have ended", r.State)
	}
	return r.Audit.Commit(ctx, audit.Entry{Action: audit.SealKeyRotated})
}

func (r *KeyRotation) rotate(ctx context.Context, after func(step string) error) error {
	db, ok := r.Database.(rotatable)
	if !ok {
		return errors.New("the key of this database cannot be rotated")
	}
	now, err := ReadSealKeys(r.State)
	if err != nil {
		return err
	}
	if now.current != r.Keys.Current() {
		return errors.New("seal.key is not the key that the server started with")
	}
	next := &SealKeys{former: append([][32]byte{now.current}, now.former...)}
	rand.Read(next.current[:]) // never fails
	path := filepath.Join(sealDir(r.State), nextSealFile)
	if err := writeSecret(path, next.text()); errors.Is(err, fs.ErrExist) {
		return errors.New("an earlier rotation was interrupted; restart the server, which ends it")
	} else if err != nil {
		return fmt.Errorf("write the next key: %w", err)
	}
	err = after("next key written")
	if err == nil {
		err = db.RotateKey(ctx, next.current, after)
	}
	if errors.Is(err, store.ErrUnavailable) {
		return fmt.Errorf("the database did not say whether it has the new key; restart the server: %w", err)
	}
	if err != nil {
		return errors.Join(err, os.Remove(path))
	}
	r.Keys.Replace(next.current)
	return errors.Join(takeSealKey(r.State), after("key replaced"))
}

// ErrClustered says how the key of a cluster is rotated.
var ErrClustered = errors.New("servers of a cluster cannot change their key while they run: stop all of them, run " +
	"berth key rotate-seal on one, copy its seal.key to the others, and start them")
