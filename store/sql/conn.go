package sql

import (
	"context"

	"github.com/berth-run/berth/store"
)

// A Reader runs queries.
type Reader interface {
	// Query runs a statement and returns its rows, which must be closed.
	Query(ctx context.Context, text string, args ...any) (Rows, error)
}

// A Conn runs statements in a transaction.
type Conn interface {
	Reader
	// Exec runs a statement and returns the number of rows that it changed.
	Exec(ctx context.Context, text string, args ...any) (changed int64, err error)
}

// Rows are the rows of a result. A NULL is scanned into a nil pointer.
type Rows interface {
	Next() bool
	Scan(into ...any) error
	Err() error
	Close() error
}

// A Tx is what a write sees of the database.
type Tx struct {
	Conn
	Touched []string // ids of changed rows, for store.Watcher
}

// touch records the ids of rows that a write changes.
func (t *Tx) touch(ids ...string) { t.Touched = append(t.Touched, ids...) }

// Run runs a statement whose number of changed rows does not matter.
func (t *Tx) Run(ctx context.Context, text string, args ...any) error {
	_, err := t.Exec(ctx, text, args...)
	return err
}

// Change runs a statement that must change a row. If it changes none, it returns ErrNotFound.
func (t *Tx) Change(ctx context.Context, text string, args ...any) error {
	n, err := t.Exec(ctx, text, args...)
	if err == nil && n == 0 {
		return store.ErrNotFound
	}
	return err
}

// In are the arguments of a statement.
type in []any

// Read reads the only row of a result. If there is none, it returns ErrNotFound.
func Read(ctx context.Context, r Reader, text string, args []any, into ...any) error {
	rows, err := r.Query(ctx, text, args...)
	if err != nil {
		return err
	}
	found := rows.Next()
	if found {
		err = rows.Scan(into...)
	}
	if closing := rows.Close(); err == nil {
		err = closing
	}
	if err == nil {
		err = rows.Err()
	}
	if err == nil && !found {
		err = store.ErrNotFound
	}
	return err
}

// List reads all rows of a result. into returns pointers to the fields that the columns of a row are
// scanned into.
func List[T any](ctx context.Context, r Reader, text string, args []any, into func(*T) []any) ([]T, error) {
	rows, err := r.Query(ctx, text, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	all := []T{}
	for rows.Next() {
		var none T
		all = append(all, none)
		if err := rows.Scan(into(&all[len(all)-1])...); err != nil {
			return nil, err
		}
	}
	if err := rows.Err(); err != nil {
		return nil, err
	}
	return all, nil
}

// Column reads a result of one column.
func Column[T any](ctx context.Context, r Reader, text string, args ...any) ([]T, error) {
	return List(ctx, r, text, args, func(v *T) []any { return []any{v} })
}
