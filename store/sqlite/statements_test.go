package sqlite

import (
	"context"
	"database/sql"
	"path/filepath"
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
	if _, err := s.PrepareContext(gone, "SELECT ?"); err != nil {
		t.Errorf("preparing for a caller that gave up: %v", err)
	}
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			var got int
			if err := s.QueryRowContext(t.Context(), "SELECT ?", i).Scan(&got); err != nil || got != i {
				t.Errorf("got %d, %v; want %d", got, err, i)
			}
		})
	}
	all.Wait()
	if counted.n != 1 {
		t.Errorf("one query was prepared %d times", counted.n)
	}
	for range 2 {
		if err := s.QueryRowContext(t.Context(), "SELECT nothing FROM nowhere").Scan(new(int)); err == nil {
			t.Error("a query of a table that does not exist has no error")
		}
		if _, err := s.ExecContext(t.Context(), "DELETE FROM nowhere"); err == nil {
			t.Error("a deletion from a table that does not exist has no error")
		}
		if _, err := s.QueryContext(t.Context(), "SELECT 1 FROM nowhere"); err == nil {
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
