package postgres

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/berth-run/berth/internal/keyring"
	"github.com/berth-run/berth/store"
	base "github.com/berth-run/berth/store/sql"
)

// moveChunk is the number of keys that are moved with one statement.
const moveChunk = 4096

// A ringFile is the file in which former versions stored the keys of rows. Today it has
// no keys: its id names the database that its directory belongs to.
type ringFile struct {
	path   string
	exists bool
	id     [16]byte
}

func openRingFile(path string) (f ringFile, err error) {
	f.path = path
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return f, nil
	}
	ring, err := keyring.Open(path)
	if err != nil {
		return f, fmt.Errorf("open keys: %w", err)
	}
	f.exists, f.id = true, ring.ID()
	return f, ring.Close()
}

// move moves the keys of a file into the database. It refuses while a server of a former
// version may add keys to the file.
func (r *tableRing) move(ctx context.Context, tx *base.Tx, f ringFile) error {
	var idle bool
	if err := base.Read(ctx, tx, `SELECT pg_try_advisory_xact_lock($1)`, []any{int64(lockClaim)}, &idle); err != nil {
		return err
	}
	if !idle {
		return fmt.Errorf("%w: %w, of a former version; stop it first", store.ErrUnavailable, ErrClaimed)
	}
	ring, err := keyring.Open(f.path)
	if err != nil {
		return fmt.Errorf("open keys: %w", err)
	}
	defer ring.Close()
	last, err := ring.Last()
	if err != nil {
		return fmt.Errorf("read keys: %w", err)
	}
	var chunk []rowKey
	for n := int64(1); n <= last; n++ {
		key, err := ring.Get(n)
		if err != nil && !errors.Is(err, keyring.ErrErased) {
			return fmt.Errorf("read keys: %w", err)
		}
		if err == nil {
			chunk = append(chunk, rowKey{n, key})
		}
		if len(chunk) == moveChunk || n == last {
			if err := r.save(ctx, tx, chunk); err != nil {
				return err
			}
			chunk = chunk[:0]
		}
	}
	if last > 0 {
		if err := tx.Run(ctx, `SELECT setval('row_key_numbers', $1)`, last); err != nil {
			return err
		}
	}
	r.log.Info("moved the keys of rows from a file into the database", "file", f.path)
	return tx.Run(ctx, `UPDATE ring SET id = $1`, r.id[:])
}

// settle erases the keys that were moved, and creates a missing file.
func (f ringFile) settle(id [16]byte) error {
	if f.path == "" {
		return nil
	}
	ring, err := keyring.OpenAs(f.path, id)
	if err != nil {
		return fmt.Errorf("record the database's id: %w", err)
	}
	err = ring.EraseAll()
	return errors.Join(err, ring.Close())
}
