package state

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/berth-run/berth/internal/statefile"
	"github.com/berth-run/berth/server/config"
	"github.com/berth-run/berth/store"
	"github.com/berth-run/berth/store/postgres"
	"github.com/berth-run/berth/store/sqlite"
)

// StoreVariable is the environment variable with the URL of the database, also for commands
// without --config.
const StoreVariable = "BERTH_STORE"

// A Database is an open store: a file of the state directory, or a PostgreSQL database.
type Database interface {
	store.Store
	// CheckWrite returns an error unless a write succeeds now.
	CheckWrite(ctx context.Context) error
}

// A Use says who opens a database and for what.
type Use struct {
	sqlite.Options
	URL    string // of the configuration; "" if it has none
	Serve  bool   // refuse a PostgreSQL database that another server serves
	Shared bool   // with serve: accept the other servers of a cluster

	restoring bool // open the database of a state directory that is being restored

	Lock *SealLock // held by the caller; nil makes OpenDatabase hold one until the database is closed
}

// storeFile is the file of a state directory with the URL of its PostgreSQL database, so that
// commands find it. It may have a password, as the directory's other files have keys.
const storeFile = "store_url"

// OpenDatabase opens the database of a state directory. It creates the directory and the
// database if they are missing. A state directory that has a database of its own is not used
// with another one, because the server would seem to have lost everything.
func OpenDatabase(ctx context.Context, state string, use Use) (Database, error) {
	if !use.restoring {
		if err := errRestoring(state); err != nil {
			return nil, err
		}
	}
	at, err := StoreURL(state, use.URL)
	if err != nil {
		return nil, err
	}
	if use.Lock == nil {
		lock, err := LockSealKey(ctx, state)
		if err != nil {
			return nil, err
		}
		use.Options.Opened = lock
		db, err := openLocked(ctx, state, at, use)
		if err != nil {
			return nil, errors.Join(err, lock.Close())
		}
		return db, nil
	}
	return openLocked(ctx, state, at, use)
}

// openLocked opens the database at a URL, or that of the state directory. The caller has the lock of its key.
func openLocked(ctx context.Context, state, at string, use Use) (Database, error) {
	if err := use.endRotation(ctx, state, at); err != nil {
		return nil, err
	}
	keys, err := ReadSealKeys(state)
	if err != nil {
		return nil, err
	}
	return use.open(ctx, state, at, keys.current)
}

// open opens the database at a URL, or that of the state directory, with a key.
func (use *Use) open(ctx context.Context, state, at string, key [32]byte) (Database, error) {
	if at == "" {
		opts := use.Options
		opts.Key = key
		db, err := sqlite.Open(ctx, filepath.Join(state, "berth.db"), &opts)
		if err != nil {
			return nil, fmt.Errorf("open database: %w", err)
		}
		return db, nil
	}
	host, _ := os.Hostname()
	db, err := postgres.Open(ctx, at, &postgres.Options{Keys: sqlite.KeysPath(filepath.Join(state, "berth.db")),
		Key:   key,
		Claim: use.Serve, Shared: use.Serve && use.Shared, Name: fmt.Sprintf("%s pid %d", host, os.Getpid()),
		Log: use.Log, Opened: use.Options.Opened})
	if err != nil {
		return nil, fmt.Errorf("open database %s: %w", config.Masked("store.url", at), err)
	}
	if err := recordStore(state, at); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return db, nil
}

// OpenStore opens the store of a state directory with its key. It creates the directory if it is
// missing.
func OpenStore(ctx context.Context, state string, opts sqlite.Options) (_ *sqlite.DB, err error) {
	if err := os.MkdirAll(state, 0o700); err != nil {
		return nil, fmt.Errorf("create state directory: %w", err)
	}
	keys, err := ReadSealKeys(state)
	if err != nil {
		return nil, err
	}
	opts.Key = keys.current
	db, err := sqlite.Open(ctx, filepath.Join(state, "berth.db"), &opts)
	if err != nil {
		return nil, fmt.Errorf("open database: %w", err)
	}
	return db, nil
}

// StoreURL returns the URL of a state directory's PostgreSQL database, or "" if its database is a
// file.
func StoreURL(state, configured string) (string, error) {
	recorded, err := recordedStore(state)
	if err != nil {
		return "", err
	}
	if configured == "" {
		return recorded, nil
	}
	if recorded != "" {
		return configured, nil
	}
	_, err = os.Stat(filepath.Join(state, "berth.db"))
	if err == nil {
		return "", fmt.Errorf(
			"the state directory %s has a database of its own, berth.db; use a new state directory with store", state)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	return configured, nil
}

// recordedStore returns the URL in the file storeFile, or "" if there is none.
func recordedStore(state string) (string, error) {
	text, err := statefile.ReadFile(filepath.Join(state, storeFile))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read the address of the database: %w", err)
	}
	return strings.TrimSpace(string(text)), nil
}

// recordStore writes the URL for commands. It replaces the file as a whole.
func recordStore(state, at string) error {
	if recorded, err := recordedStore(state); err != nil || recorded == at {
		return err
	}
	f, err := os.CreateTemp(state, storeFile+".*") // with mode 0600
	if err != nil {
		return fmt.Errorf("record the address of the database: %w", err)
	}
	_, err = f.WriteString(at + "\n")
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), filepath.Join(state, storeFile))
	}
	if err != nil {
		return errors.Join(fmt.Errorf("record the address of the database: %w", err), os.Remove(f.Name()))
	}
	return nil
}

// HasDatabase reports whether a state directory has a database, or the address of one, or is being
// restored.
func HasDatabase(state string) bool {
	for _, name := range []string{"berth.db", storeFile, restoreFile} {
		if _, err := os.Stat(filepath.Join(state, name)); err == nil {
			return true
		}
	}
	return false
}
