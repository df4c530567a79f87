// Package transfer copies a database to another one, table by table and row by row. It copies
// sealed content as it is: the target needs the keys of the source.
package transfer

import (
	"context"
	"fmt"
	"iter"
	"slices"
)

// Tables are the tables that are copied, parents before their children.
var Tables = []string{
	"responses", "requests", "bodies", "events", "items", "files", "containers", "container_files",
	"keys", "objects", "usage", "spending", "stored",
}

// Local are the tables that are not copied row by row. They describe one database and the servers
// that use it now: its schema, the keys of its rows, those that it is about to erase, the writers and
// servers that are connected to it, and the checkpoints of the servers' audit records.
var Local = []string{"goose_db_version", "ring", "row_keys", "doomed", "writers", "members", "locks", "shares", "rates",
	"checkpoints"}

// A Kind is the type of the values of a column. A value may also be nil.
type Kind string

const (
	Integer Kind = "integer" // int64; a boolean is 0 or 1
	Text    Kind = "text"    // string
	Bytes   Kind = "bytes"   // []byte
)

// A Column is a column of a table.
type Column struct {
	Name string
	Kind Kind
}

// A Row has the values of a row in the order of the table's columns. It is valid until the next
// row is read.
type Row []any

// A Reader reads one state of a database.
type Reader interface {
	// Mark returns the mark of the keys that the rows are sealed with; see sealed.Keys.
	Mark(ctx context.Context) ([]byte, error)
	// Columns returns the columns of a table, by name.
	Columns(ctx context.Context, table string) ([]Column, error)
	// Rows returns all rows of a table, in any order. Only one table is read at a time.
	Rows(ctx context.Context, table string, columns []Column) iter.Seq2[Row, error]
}

// A Target is an empty database in a transaction. Its Reader reads what was inserted.
type Target interface {
	Reader
	// Insert inserts rows into a table. If rows yields an error, Insert returns it.
	Insert(ctx context.Context, table string, columns []Column, rows iter.Seq2[Row, error]) error
	// SetMark saves the mark.
	SetMark(ctx context.Context, mark []byte) error
}

// A Result is what was copied of a table.
type Result struct {
	Table string
	Rows  int64
	Sum   Digest
}

// Copy copies all tables, and then compares the number of rows and a digest of each table in the
// target with those in the source. It holds one row in memory at a time. The caller commits the
// target's transaction if Copy returns nil.
func Copy(ctx context.Context, from Reader, to Target) ([]Result, error) {
	mark, err := from.Mark(ctx)
	if err == nil {
		err = to.SetMark(ctx, mark)
	}
	if err != nil {
		return nil, fmt.Errorf("copy the mark of the keys: %w", err)
	}
	var results []Result
	for _, table := range Tables {
		r, err := copyTable(ctx, from, to, table)
		if err != nil {
			return nil, fmt.Errorf("copy table %s: %w", table, err)
		}
		results = append(results, r)
	}
	for _, want := range results {
		columns, err := to.Columns(ctx, want.Table)
		if err != nil {
			return nil, fmt.Errorf("verify table %s: %w", want.Table, err)
		}
		got := Result{Table: want.Table}
		for row, err := range to.Rows(ctx, want.Table, columns) {
			if err == nil {
				err = got.add(columns, row)
			}
			if err != nil {
				return nil, fmt.Errorf("verify table %s: %w", want.Table, err)
			}
		}
		if got != want {
			return nil, fmt.Errorf(
				"verify table %s: the copy has %d rows with the digest %s, the source has %d rows with the digest %s",
				want.Table, got.Rows, got.Sum, want.Rows, want.Sum)
		}
	}
	return results, nil
}

func copyTable(ctx context.Context, from Reader, to Target, table string) (Result, error) {
	r := Result{Table: table}
	columns, err := from.Columns(ctx, table)
	if err != nil {
		return r, err
	}
	has, err := to.Columns(ctx, table)
	if err != nil {
		return r, err
	}
	if !slices.Equal(columns, has) {
		return r, fmt.Errorf("the source has the columns %v, the target %v", columns, has)
	}
	err = to.Insert(ctx, table, columns, func(yield func(Row, error) bool) {
		for row, err := range from.Rows(ctx, table, columns) {
			if err == nil {
				err = r.add(columns, row)
			}
			if !yield(row, err) || err != nil {
				return
			}
		}
	})
	return r, err
}

// add counts a row.
func (r *Result) add(columns []Column, row Row) error {
	r.Rows++
	return r.Sum.add(columns, row)
}
