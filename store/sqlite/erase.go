package sqlite

import (
	"context"
	"errors"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/store/sqlite/query"
)

// erase runs do in a transaction, which deletes rows and returns their keys. It then
// erases the keys.
func (d *core) erase(ctx context.Context, do func(context.Context, *query.Queries) ([]int64, error)) error {
	var gone []int64
	err := d.settle(ctx, func(ctx context.Context, q *query.Queries) error {
		all, err := do(ctx, q)
		gone = gone[:0]
		for _, n := range all {
			if n == 0 {
				continue // of an unsealed row
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

// doomed implements sealed.Doomed with a table.
type doomed struct{ *core }

func (d doomed) List(ctx context.Context) ([]int64, error) { return d.queries.Doomed(ctx) }

// Sync syncs the write-ahead log. SQLite holds no locks on that file, so opening and
// closing it is safe.
func (d doomed) Sync() error {
	f, err := os.Open(d.path + "-wal")
	if errors.Is(err, fs.ErrNotExist) {
		return nil // the log has been merged into the database
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
