package sqlite

import (
	"context"
	"database/sql"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// countingPreparer counts the statements that are prepared.
type countingPreparer struct {
	*sql.DB
	mu sync.Mutex
	n  int
}

func (p *countingPreparer) PrepareContext(ctx context.Context, text string) (*sql.Stmt, error) {
	p.mu.Lock()
	p.n++
	p.mu.Unlock()
	return p.DB.PrepareContext(ctx, text)
}

// Concurrent uses of a query prepare it once, also if the first caller has given up. A query that cannot
// be prepared returns its error each time and is not kept.
func TestStatements(t *testing.T) {
	db, err := sql.Open("sqlite", filepath.Join(t.TempDir(), "x.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	counted := &countingPreparer{DB: db}
	s := newStatements(counted)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.prepare(gone, "SELECT $1"); err != nil {
		t.Errorf("preparing for a caller that gave up: %v", err)
	}
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			var got int
			rows, err := s.Query(t.Context(), "SELECT $1", i)
			if err != nil {
				t.Error(err)
				return
			}
			defer rows.Close()
			if !rows.Next() || rows.Scan(&got) != nil || got != i {
				t.Errorf("got %d, %v; want %d", got, rows.Err(), i)
			}
		})
	}
	all.Wait()
	if counted.n != 1 {
		t.Errorf("one query was prepared %d times", counted.n)
	}
	for range 2 {
		if _, err := s.Exec(t.Context(), "DELETE FROM nowhere"); err == nil {
			t.Error("a deletion from a table that does not exist has no error")
		}
		if _, err := s.Query(t.Context(), "SELECT 1 FROM nowhere"); err == nil {
			t.Error("rows of a table that does not exist have no error")
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if len(s.byText) != 0 {
		t.Errorf("%d statements are left after Close", len(s.byText))
	}
}

// Statements of package sql are read as SQLite needs them.
func TestTranslate(t *testing.T) {
	for text, want := range map[string]string{
		"SELECT a FROM t WHERE b = $1 AND c = $2":                     "SELECT a FROM t WHERE b = ? AND c = ?",
		"SELECT a FROM t WHERE b = $2 AND c = $1":                     "SELECT a FROM t WHERE b = ?2 AND c = ?1",
		"SELECT $1 FROM t WHERE b = $1 AND c = $10":                   "SELECT ?1 FROM t WHERE b = ?1 AND c = ?10",
		"SELECT {now} - a FROM t":                                     "SELECT ?1 - a FROM t",
		"UPDATE t SET a = {now} + $1 WHERE b < {now} AND NOT deleted": "UPDATE t SET a = ?2 + ?1 WHERE b < ?2 AND deleted = 0",
		"SELECT a FROM r WHERE NOT r.final AND NOT EXISTS (SELECT 1)": "SELECT a FROM r WHERE r.final = 0 AND NOT EXISTS (SELECT 1)",
	} {
		got, clocked := translate(text)
		if got != want || clocked != strings.Contains(text, "{now}") {
			t.Errorf("%s: got %s, with the time %v, want %s", text, got, clocked, want)
		}
	}
}
