package sqlite

import (
	"context"
	"database/sql"
)

// Erase does at once what the eraser does soon.
func (d *DB) Erase(ctx context.Context) (done bool, err error) { return d.eraser.erase(ctx) }

// Pragma sets something on the connection that writes.
func (d *DB) Pragma(text string) error {
	return d.writer.alone(func(c *sql.Conn) error {
		_, err := c.ExecContext(context.Background(), "PRAGMA "+text)
		return err
	})
}

// Exec runs a statement on the connection that writes.
func (d *DB) Exec(text string, args ...any) error {
	return d.writer.alone(func(c *sql.Conn) error {
		_, err := c.ExecContext(context.Background(), text, args...)
		return err
	})
}

// Hold keeps the database as it is now readable, as a long read does, until release
// is called.
func (d *DB) Hold(ctx context.Context) (release func() error, err error) {
	tx, err := d.read.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return nil, err
	}
	var n int
	if err := tx.QueryRowContext(ctx, "SELECT count(*) FROM responses").Scan(&n); err != nil {
		return nil, err
	}
	return tx.Rollback, nil
}

var ClearGap = clearGap

// QueryText returns the first value of the first row.
func (d *DB) QueryText(text string) (s string, err error) {
	return s, d.read.QueryRow(text).Scan(&s)
}

// Waiting is how many writes wait for the next transaction.
func (d *DB) Waiting() int { return len(d.writer.writes) }

// Plan says how a query finds its rows.
func (d *DB) Plan(text string) (steps []string, err error) {
	rows, err := d.read.Query("EXPLAIN QUERY PLAN " + text)
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
