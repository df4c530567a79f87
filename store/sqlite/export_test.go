package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"strconv"

	"github.com/berth-run/berth/store"
)

// Pragma runs a pragma on the writer's connection.
func (d *DB) Pragma(text string) error {
	return d.core.writer.alone(func(c *sql.Conn) error {
		_, err := c.ExecContext(context.Background(), "PRAGMA "+text)
		return err
	})
}

// Exec runs a statement on the writer's connection.
func (d *DB) Exec(text string, args ...any) error {
	return d.core.writer.alone(func(c *sql.Conn) error {
		_, err := c.ExecContext(context.Background(), text, args...)
		return err
	})
}

// Hold starts a long read, which holds the current state until release is called.
func (d *DB) Hold(ctx context.Context) (release func() error, err error) {
	tx, err := d.core.read.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return nil, err
	}
	var n int
	if err := tx.QueryRowContext(ctx, "SELECT count(*) FROM responses").Scan(&n); err != nil {
		return nil, err
	}
	return tx.Rollback, nil
}

// Doom adds a row's key to the list of keys to erase, like a deletion interrupted by a
// crash.
func (d *DB) Doom(table, id string) error {
	return d.Exec("INSERT INTO doomed SELECT seal FROM "+table+" WHERE id = ?", id)
}

// QueryText returns the first value of the first row.
func (d *DB) QueryText(text string) (s string, err error) {
	return s, d.core.read.QueryRow(text).Scan(&s)
}

// HasKey reports whether the ring has a key.
func (d *DB) HasKey(number string) (bool, error) {
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil {
		return false, err
	}
	_, err = d.core.keys.Get(context.Background(), n)
	if errors.Is(err, store.ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}

// Waiting returns the number of writes that wait for the next transaction.
func (d *DB) Waiting() int { return d.core.writer.Waiting() }

// Statements returns the texts of all statements that were prepared so far: as package sql has them, and as SQLite
// reads them.
func (d *DB) Statements() map[string]string {
	texts := map[string]string{}
	for _, s := range []*statements{d.core.statements, d.core.writer.prepared} {
		s.mu.RLock()
		for text, one := range s.byText {
			texts[text] = one.text
		}
		s.mu.RUnlock()
	}
	return texts
}

// Plan returns the query plan.
func (d *DB) Plan(text string) (steps []string, err error) {
	rows, err := d.core.read.Query("EXPLAIN QUERY PLAN " + text)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var id, parent, unused int
		var step string
		if err := rows.Scan(&id, &parent, &unused, &step); err != nil {
			return nil, err
		}
		steps = append(steps, step)
	}
	return steps, rows.Err()
}

// Shrink returns free pages to the file system, like the shrinker.
func (d *DB) Shrink(ctx context.Context, slack, step int64) (more bool, err error) {
	return d.core.shrink(ctx, slack, step)
}

// Spare returns how many free pages of a file are returned.
func Spare(pages, free, slack int64) int64 { return spare(pages, free, slack) }
