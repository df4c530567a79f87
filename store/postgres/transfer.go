package postgres

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/jackc/pgx/v5"

	"github.com/berth-run/berth/store/transfer"
)

// Export calls f with a reader of the database as it is now. If it is to be alone, writes wait
// until f returns, and fail after 20 s.
func (d *DB) Export(ctx context.Context, alone bool, f func(transfer.Reader) error) (err error) {
	c, err := connectLong(ctx, d.core.writer.config)
	if err != nil {
		return prefixed(wrap(err))
	}
	defer func() { err = errors.Join(err, c.Close(context.WithoutCancel(ctx))) }()
	if alone {
		if _, err := c.Exec(ctx, "SELECT pg_advisory_lock($1)", int64(lockWrite)); err != nil {
			return fmt.Errorf("postgres: wait for writes: %w", wrap(err))
		}
	}
	err = pgx.BeginTxFunc(ctx, c, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly},
		func(tx pgx.Tx) error {
			return f(reader{tx, map[string]bool{}})
		})
	return wrap(err)
}

// Import writes a copy of a database to an empty one, whose tables it creates. It changes nothing
// if it fails. It returns ErrClaimed if a server uses the database.
func Import(ctx context.Context, at string, from transfer.Reader) (results []transfer.Result, err error) {
	config, err := parse(at, "import")
	if err != nil {
		return nil, prefixed(err)
	}
	if err := migrate(ctx, config.ConnConfig); err != nil {
		return nil, prefixed(wrap(err))
	}
	c, err := connectLong(ctx, config.ConnConfig)
	if err != nil {
		return nil, prefixed(wrap(err))
	}
	defer func() { err = errors.Join(err, c.Close(context.WithoutCancel(ctx))) }()
	if err := claim(ctx, c, claimOf(&Options{Claim: true})); err != nil {
		return nil, prefixed(wrap(err))
	}
	err = pgx.BeginFunc(ctx, c, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, lockStatement); err != nil {
			return fmt.Errorf("wait for writes: %w", err)
		}
		if err := empty(ctx, tx); err != nil {
			return err
		}
		if err := setTriggers(ctx, tx, "DISABLE"); err != nil {
			return err
		}
		if results, err = transfer.Copy(ctx, from, importer{reader{tx, map[string]bool{}}}); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx,
			"SELECT setval(pg_get_serial_sequence('objects', 'number'), (SELECT coalesce(max(number), 0) + 1 FROM objects), false)"); err != nil {
			return fmt.Errorf("set the next number of objects: %w", err)
		}
		return setTriggers(ctx, tx, "ENABLE")
	})
	if err != nil {
		return nil, fmt.Errorf("postgres: import: %w", wrap(err))
	}
	if _, err := c.Exec(ctx, "ANALYZE"); err != nil {
		return nil, fmt.Errorf("postgres: analyze: %w", wrap(err))
	}
	return results, nil
}

// connectLong opens a connection for a long transaction, in which the database may wait for the
// other side of the copy.
func connectLong(ctx context.Context, config *pgx.ConnConfig) (*pgx.Conn, error) {
	config = config.Copy()
	config.RuntimeParams["idle_in_transaction_session_timeout"] = "0"
	config.RuntimeParams["statement_timeout"] = "0"
	return connect(ctx, config)
}

// ErrNotEmpty means that the database to copy to has rows already.
var ErrNotEmpty = errors.New("the database is not empty; create a new one, or drop this one and create it again")

// empty returns ErrNotEmpty unless all tables are empty.
func empty(ctx context.Context, tx pgx.Tx) error {
	for _, table := range append([]string{"ring"}, transfer.Tables...) {
		var some bool
		if err := tx.QueryRow(ctx, "SELECT EXISTS (SELECT FROM "+table+")").Scan(&some); err != nil {
			return fmt.Errorf("look for rows: %w", err)
		}
		if some {
			return fmt.Errorf("%w (the table %s has rows)", ErrNotEmpty, table)
		}
	}
	return nil
}

// setTriggers enables or disables the triggers that count stored bytes: the counts are copied.
func setTriggers(ctx context.Context, tx pgx.Tx, how string) error {
	for _, table := range transfer.Tables {
		if _, err := tx.Exec(ctx, "ALTER TABLE "+table+" "+how+" TRIGGER USER"); err != nil {
			return fmt.Errorf("%s triggers of %s: %w", how, table, err)
		}
	}
	return nil
}

// A reader reads tables in a transaction. It implements transfer.Reader.
type reader struct {
	tx       pgx.Tx
	booleans map[string]bool // columns as TABLE.COLUMN; their values are 0 and 1 for others
}

func (r reader) Mark(ctx context.Context) (mark []byte, err error) {
	if err := r.tx.QueryRow(ctx, "SELECT mark FROM ring").Scan(&mark); err != nil {
		return nil, fmt.Errorf("read mark: %w", err)
	}
	return mark, nil
}

func (r reader) Columns(ctx context.Context, table string) ([]transfer.Column, error) {
	rows, err := r.tx.Query(ctx,
		"SELECT column_name, data_type FROM information_schema.columns WHERE table_schema = current_schema() AND table_name = $1 ORDER BY column_name COLLATE \"C\"",
		table)
	if err != nil {
		return nil, fmt.Errorf("list columns: %w", err)
	}
	columns, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (c transfer.Column, err error) {
		var declared string
		if err := row.Scan(&c.Name, &declared); err != nil {
			return c, fmt.Errorf("scan: %w", err)
		}
		switch declared {
		case "bigint":
			c.Kind = transfer.Integer
		case "boolean":
			c.Kind = transfer.Integer
			r.booleans[table+"."+c.Name] = true
		case "text":
			c.Kind = transfer.Text
		case "bytea":
			c.Kind = transfer.Bytes
		default:
			return c, fmt.Errorf("column %s has the type %s", c.Name, declared)
		}
		return c, nil
	})
	if err != nil {
		return nil, fmt.Errorf("list columns: %w", err)
	}
	return columns, nil
}

func (r reader) Rows(ctx context.Context, table string, columns []transfer.Column) iter.Seq2[transfer.Row, error] {
	return func(yield func(transfer.Row, error) bool) {
		rows, err := r.tx.Query(ctx, "SELECT "+quoted(columns)+" FROM "+table)
		if err != nil {
			yield(nil, err)
			return
		}
		defer rows.Close()
		for rows.Next() {
			row, err := rows.Values()
			for i, v := range row {
				if truth, ok := v.(bool); ok {
					row[i] = int64(0)
					if truth {
						row[i] = int64(1)
					}
				}
			}
			if !yield(row, err) || err != nil {
				return
			}
		}
		if err := rows.Err(); err != nil {
			yield(nil, err)
		}
	}
}

func quoted(columns []transfer.Column) string {
	text := ""
	for i, c := range columns {
		if i > 0 {
			text += ", "
		}
		text += pgx.Identifier{c.Name}.Sanitize()
	}
	return text
}

// An importer inserts rows into an empty database. It implements transfer.Target.
type importer struct{ reader }

func (m importer) SetMark(ctx context.Context, mark []byte) error {
	if _, err := m.tx.Exec(ctx, "INSERT INTO ring (mark) VALUES ($1)", mark); err != nil {
		return fmt.Errorf("insert mark: %w", err)
	}
	return nil
}

func (m importer) Insert(ctx context.Context, table string, columns []transfer.Column, rows iter.Seq2[transfer.Row,
	error]) error {
	next, stop := iter.Pull2(rows)
	defer stop()
	names := make([]string, len(columns))
	booleans := make([]bool, len(columns))
	for i, c := range columns {
		names[i], booleans[i] = c.Name, m.booleans[table+"."+c.Name]
	}
	var failed error // of the source; CopyFrom does not wrap it
	_, err := m.tx.CopyFrom(ctx, pgx.Identifier{table}, names, pgx.CopyFromFunc(func() ([]any, error) {
		row, err, ok := next()
		if err != nil || !ok {
			failed = err
			return nil, err
		}
		values := make([]any, len(row))
		for i, v := range row {
			if values[i] = v; booleans[i] && v != nil {
				values[i] = v != int64(0)
			}
		}
		return values, nil
	}))
	if failed != nil {
		return failed
	}
	if err != nil {
		return fmt.Errorf("insert: %w", err)
	}
	return nil
}

// ExportKeys writes the keys of all rows to a file, which replaces one that exists; see
// sealed.Keys.Export.
func (d *DB) ExportKeys(ctx context.Context, path string) error {
	return d.core.keys.Export(ctx, path, func(yield func(int64, error) bool) {
		rows, err := d.core.pool.Query(ctx,
			"SELECT seal FROM responses UNION SELECT seal FROM files UNION SELECT seal FROM containers UNION SELECT seal FROM objects ORDER BY 1")
		if err != nil {
			yield(0, wrap(err))
			return
		}
		defer rows.Close()
		for rows.Next() {
			var number int64
			if err := rows.Scan(&number); !yield(number, wrap(err)) || err != nil {
				return
			}
		}
		if err := rows.Err(); err != nil {
			yield(0, wrap(err))
		}
	})
}
