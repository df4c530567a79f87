package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
	"github.com/berth-run/berth/store/sealed"
	"github.com/berth-run/berth/store/transfer"
)

// Export calls f with a reader of the database. Writes wait until f returns, also writes of other
// processes, and fail after 10 s.
func (d *DB) Export(ctx context.Context, f func(transfer.Reader) error) error {
	dsn, err := dataSource(d.core.path, "")
	if err != nil {
		return err
	}
	db, err := sql.Open("sqlite", dsn+"&_txlock=immediate")
	if err != nil {
		return fmt.Errorf("sqlite: open for reading: %w", err)
	}
	defer db.Close()
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return d.core.Convert(err)
	}
	defer tx.Rollback() // nothing was written
	return d.core.Convert(f(exporter{reader{tx}, d.core.keys}))
}

// Import writes a copy of a database to a new file. It leaves no file if it fails. If the process
// ends during the import, it leaves one with another name, which the next Import replaces.
func Import(ctx context.Context, path string, from transfer.Reader) ([]transfer.Result, error) {
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		return nil, errors.Join(err, fmt.Errorf("sqlite: %s exists", path))
	}
	// A log that was left of another file would be applied to this one.
	for _, left := range []string{path + "-wal", path + "-shm"} {
		if err := os.Remove(left); err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
	}
	next := path + ".incomplete"
	results, err := importFile(ctx, next, from)
	if err == nil {
		err = errors.Join(syncFile(next), os.Rename(next, path), syncFile(filepath.Dir(path)))
	}
	if err != nil {
		_ = os.Remove(next) // if it exists
		return nil, fmt.Errorf("sqlite: import %s: %w", path, explain(err))
	}
	return results, nil
}

func importFile(ctx context.Context, path string, from transfer.Reader) (results []transfer.Result, err error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	if err := create(path); err != nil {
		return nil, err
	}
	dsn, err := dataSource(path, "")
	if err != nil {
		return nil, err
	}
	// A failure discards the file, so that it needs no journal.
	db, err := sql.Open("sqlite", strings.Replace(dsn, "journal_mode%28WAL%29", "journal_mode%28OFF%29", 1))
	if err != nil {
		return nil, fmt.Errorf("open: %w", err)
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	db.SetMaxOpenConns(1)
	if err := migrate(ctx, db); err != nil {
		return nil, err
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return nil, fmt.Errorf("begin: %w", err)
	}
	defer tx.Rollback() // after Commit without effect
	// A response may be inserted before the one that it continues.
	if _, err := tx.ExecContext(ctx, "PRAGMA defer_foreign_keys = ON"); err != nil {
		return nil, fmt.Errorf("defer foreign keys: %w", err)
	}
	if results, err = transfer.Copy(ctx, from, importer{reader{tx}}); err != nil {
		return nil, err
	}
	if err := tx.Commit(); err != nil {
		return nil, fmt.Errorf("commit: %w", err)
	}
	verdict, err := integrity(ctx, path)
	if err == nil && verdict != "ok" {
		err = fmt.Errorf("the new file is damaged: %s", verdict)
	}
	return results, err
}

// A reader reads tables in a transaction. It implements transfer.Reader.
type reader struct{ tx *sql.Tx }

// typeColumn is the column of events with the type of rows from before version 66edd30; it is
// empty in others. No other kind of database has it.
const typeColumn = "type"

var kinds = map[string]transfer.Kind{"INTEGER": transfer.Integer, "TEXT": transfer.Text, "BLOB": transfer.Bytes}

func (r reader) Mark(ctx context.Context) (mark []byte, err error) {
	if err := r.tx.QueryRowContext(ctx, "SELECT mark FROM ring").Scan(&mark); err != nil {
		return nil, fmt.Errorf("read mark: %w", err)
	}
	return mark, nil
}

func (r reader) Columns(ctx context.Context, table string) (columns []transfer.Column, err error) {
	rows, err := r.tx.QueryContext(ctx, "SELECT name, type FROM pragma_table_info(?) ORDER BY name", table)
	if err != nil {
		return nil, fmt.Errorf("list columns: %w", err)
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var name, declared string
		if err := rows.Scan(&name, &declared); err != nil {
			return nil, fmt.Errorf("list columns: %w", err)
		}
		if table == "events" && name == typeColumn {
			continue
		}
		kind, known := kinds[declared]
		if !known {
			return nil, fmt.Errorf("column %s has the type %s", name, declared)
		}
		columns = append(columns, transfer.Column{Name: name, Kind: kind})
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("list columns: %w", err)
	}
	return columns, nil
}

func (r reader) Rows(ctx context.Context, table string, columns []transfer.Column) iter.Seq2[transfer.Row, error] {
	return r.rows(ctx, "SELECT "+names(columns)+" FROM "+table, columns)
}

// rows returns the rows of a query, whose columns are at least those.
func (r reader) rows(ctx context.Context, text string, columns []transfer.Column) iter.Seq2[transfer.Row, error] {
	return func(yield func(transfer.Row, error) bool) {
		rows, err := r.tx.QueryContext(ctx, text)
		if err != nil {
			yield(nil, err)
			return
		}
		defer rows.Close()
		row, into := make(transfer.Row, len(columns)), make([]any, len(columns))
		for i := range row {
			into[i] = &row[i]
		}
		for rows.Next() {
			err := rows.Scan(into...)
			for i := 0; i < len(row) && err == nil; i++ {
				row[i], err = convert(columns[i], row[i])
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

// convert returns a value with the type of its column. SQLite stores values of any type in any
// column.
func convert(c transfer.Column, v any) (any, error) {
	switch v := v.(type) {
	case nil:
		return nil, nil
	case int64:
		if c.Kind == transfer.Integer {
			return v, nil
		}
	case string:
		switch c.Kind {
		case transfer.Text:
			return v, nil
		case transfer.Bytes:
			return append([]byte{}, v...), nil
		}
	case []byte:
		switch c.Kind {
		case transfer.Text:
			return string(v), nil
		case transfer.Bytes:
			if v == nil {
				return []byte{}, nil
			}
			return v, nil
		}
	}
	return nil, fmt.Errorf("column %s has a value of type %T, want %s", c.Name, v, c.Kind)
}

// names returns the names of columns for a statement.
func names(columns []transfer.Column) string {
	quoted := make([]string, len(columns))
	for i, c := range columns {
		quoted[i] = `"` + c.Name + `"`
	}
	return strings.Join(quoted, ", ")
}

// An exporter reads a database, and converts the rows of earlier versions, which no other kind
// of database has.
type exporter struct {
	reader
	keys *sealed.Keys
}

func (e exporter) Rows(ctx context.Context, table string, columns []transfer.Column) iter.Seq2[transfer.Row, error] {
	at := func(name string) int {
		return slices.IndexFunc(columns, func(c transfer.Column) bool { return c.Name == name })
	}
	switch table {
	case "events":
		all := append(slices.Clone(columns), transfer.Column{Name: typeColumn, Kind: transfer.Text})
		number, data, size, span := at("sequence_number"), at("data"), at("size"), at("span")
		return changed(e.reader.Rows(ctx, table, all), func(row transfer.Row) (transfer.Row, error) {
			if kind := row[len(columns)].(string); kind != "" {
				packed, err := e.pack(ctx, row[number].(int64), kind, row[data].([]byte))
				if errors.Is(err, store.ErrNotFound) {
					return nil, nil // its response is being deleted
				}
				if err != nil {
					return nil, err
				}
				row[data], row[size], row[span] = packed.Box, packed.Size, packed.Span
			}
			return row[:len(columns)], nil
		})
	case "containers":
		name, project, key := at("name"), at("project"), at("seal")
		return changed(e.reader.Rows(ctx, table, columns), func(row transfer.Row) (transfer.Row, error) {
			if row[key] == int64(0) {
				row[name] = e.keys.HideName(berth.ProjectID(row[project].(string)), row[name].(string))
			}
			return row, nil
		})
	}
	return e.reader.Rows(ctx, table, columns)
}

// pack returns the row of an event that was stored alone.
func (e exporter) pack(ctx context.Context, number int64, kind string, box []byte) (sealed.EventRow, error) {
	o := e.keys.Opener()
	data, err := o.Event(ctx, box)
	if err != nil {
		return sealed.EventRow{}, err
	}
	return o.Key().Events([]store.Event{{SequenceNumber: number, Type: berth.EventType(kind), Data: data}})[0], nil
}

// changed returns rows after a change. Rows that become nil are skipped.
func changed(rows iter.Seq2[transfer.Row, error], change func(transfer.Row) (transfer.Row,
	error)) iter.Seq2[transfer.Row, error] {
	return func(yield func(transfer.Row, error) bool) {
		for row, err := range rows {
			if err == nil {
				row, err = change(row)
			}
			if row == nil && err == nil {
				continue
			}
			if !yield(row, err) || err != nil {
				return
			}
		}
	}
}

// An importer inserts rows into an empty database. It implements transfer.Target.
type importer struct{ reader }

func (m importer) SetMark(ctx context.Context, mark []byte) error {
	if _, err := m.tx.ExecContext(ctx, "INSERT INTO ring (mark) VALUES (?)", mark); err != nil {
		return fmt.Errorf("insert mark: %w", err)
	}
	return nil
}

func (m importer) Insert(ctx context.Context, table string, columns []transfer.Column, rows iter.Seq2[transfer.Row,
	error]) (err error) {
	// Triggers have counted the rows already.
	if _, err := m.tx.ExecContext(ctx, "DELETE FROM "+table); err != nil {
		return fmt.Errorf("empty the table: %w", err)
	}
	list, values := names(columns), strings.Repeat(", ?", len(columns))[2:]
	if table == "events" {
		list, values = list+", "+typeColumn, values+", ''"
	}
	insert, err := m.tx.PrepareContext(ctx, "INSERT INTO "+table+" ("+list+") VALUES ("+values+")")
	if err != nil {
		return fmt.Errorf("prepare: %w", err)
	}
	defer func() { err = errors.Join(err, insert.Close()) }()
	for row, err := range rows {
		if err != nil {
			return err
		}
		if _, err := insert.ExecContext(ctx, row...); err != nil {
			return fmt.Errorf("insert: %w", err)
		}
	}
	return nil
}
