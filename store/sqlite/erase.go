package sqlite

import (
	"context"
	"errors"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/store/sqlite/query"
)

// erase runs do, which deletes rows and returns their keys, in a transaction, and
// erases the keys.
func (d *core) erase(ctx context.Context, do func(context.Context, *query.Queries) ([]int64, error)) error {
	var gone []int64
	err := d.settle(ctx, func(ctx context.Context, q *query.Queries) error {
		all, err := do(ctx, q)
		gone = gone[:0]
		for _, n := range all {
			if n == 0 {
				continue // of a row in the clear
			}
			gone = append(gone, n)
			if err := q.Doom(ctx, n); err != nil {
				return err
			}
		}
		return err
	})
	if err != nil || len(gone) == 0 {
		return err
	}
	return d.eraser.Erase(gone)
}

// doomed is the table of keys that are to be erased, as sealed.Eraser needs it.
type doomed struct{ *core }

func (d doomed) List(ctx context.Context) ([]int64, error) { return d.queries.Doomed(ctx) }

// Sync syncs the write-ahead log. Its file may be opened and closed beside SQLite: the
// locks of SQLite are not on that.
func (d doomed) Sync() error {
	f, err := os.Open(d.path + "-wal")
	if errors.Is(err, fs.ErrNotExist) {
		return nil // all is in the database
	}
	if err != nil {
		return err
	}
	return errors.Join(unix.Fdatasync(int(f.Fd())), f.Close())
}

func (d doomed) Remove(ctx context.Context, keys []int64) error {
	return d.writer.update(ctx, func(ctx context.Context, q *query.Queries) error {
		for _, n := range keys {
			if err := q.Done(ctx, n); err != nil {
				return err
			}
		}
		return nil
	})
}
