package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
)

// A preparer prepares statements: a *sql.DB or a *sql.Conn.
type preparer interface {
	ExecContext(ctx context.Context, text string, args ...any) (sql.Result, error)
	PrepareContext(ctx context.Context, text string) (*sql.Stmt, error)
	QueryContext(ctx context.Context, text string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, text string, args ...any) *sql.Row
}

// Statements prepares each query when it is first used and keeps it. Its queries are the constants of
// package query, so their number is bounded. It implements query.DBTX; its methods may be called
// concurrently if those of db may.
type statements struct {
	db preparer

	mu     sync.RWMutex
	byText map[string]*sql.Stmt
}

func newStatements(db preparer) *statements {
	return &statements{db: db, byText: map[string]*sql.Stmt{}}
}

func (s *statements) PrepareContext(ctx context.Context, text string) (*sql.Stmt, error) {
	s.mu.RLock()
	stmt := s.byText[text]
	s.mu.RUnlock()
	if stmt != nil {
		return stmt, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if stmt := s.byText[text]; stmt != nil {
		return stmt, nil
	}
	// A caller that gives up must not end the preparation for those who wait for it.
	stmt, err := s.db.PrepareContext(context.WithoutCancel(ctx), text)
	if err != nil {
		return nil, fmt.Errorf("prepare a query: %w", err)
	}
	s.byText[text] = stmt
	return stmt, nil
}

func (s *statements) ExecContext(ctx context.Context, text string, args ...any) (sql.Result, error) {
	stmt, err := s.PrepareContext(ctx, text)
	if err != nil {
		return nil, err
	}
	return stmt.ExecContext(ctx, args...)
}

func (s *statements) QueryContext(ctx context.Context, text string, args ...any) (*sql.Rows, error) {
	stmt, err := s.PrepareContext(ctx, text)
	if err != nil {
		return nil, err
	}
	return stmt.QueryContext(ctx, args...)
}

func (s *statements) QueryRowContext(ctx context.Context, text string, args ...any) *sql.Row {
	stmt, err := s.PrepareContext(ctx, text)
	if err != nil {
		return s.db.QueryRowContext(ctx, text, args...) // only package sql can make a Row with an error
	}
	return stmt.QueryRowContext(ctx, args...)
}

// Close closes the statements. SQLite closes a connection only after its statements.
func (s *statements) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for _, stmt := range s.byText {
		errs = append(errs, stmt.Close())
	}
	clear(s.byText)
	return errors.Join(errs...)
}
