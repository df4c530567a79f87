package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	base "github.com/berth-run/berth/store/sql"
)

// A preparer prepares statements: a *sql.DB or a *sql.Conn.
type preparer interface {
	PrepareContext(ctx context.Context, text string) (*sql.Stmt, error)
}

// Statements prepares each statement when it is first used and keeps it. Its statements are
// constants, so their number is bounded. It implements base.Conn; its methods may be called
// concurrently if those of db may.
type statements struct {
	db preparer

	mu     sync.RWMutex
	byText map[string]*statement
}

type statement struct {
	*sql.Stmt
	text    string // as SQLite reads it
	clocked bool   // the last parameter is the time
}

func newStatements(db preparer) *statements {
	return &statements{db: db, byText: map[string]*statement{}}
}

func (s *statements) prepare(ctx context.Context, text string) (*statement, error) {
	s.mu.RLock()
	one := s.byText[text]
	s.mu.RUnlock()
	if one != nil {
		return one, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if one := s.byText[text]; one != nil {
		return one, nil
	}
	one = &statement{}
	one.text, one.clocked = translate(text)
	var err error
	// A caller that gives up must not end the preparation for those who wait for it.
	if one.Stmt, err = s.db.PrepareContext(context.WithoutCancel(ctx), one.text); err != nil {
		return nil, fmt.Errorf("prepare a query: %w", err)
	}
	s.byText[text] = one
	return one, nil
}

// arguments returns the values of the parameters.
func (s *statement) arguments(args []any) []any {
	if !s.clocked {
		return args
	}
	return append(slices.Clip(args), time.Now().UnixMilli())
}

// Exec implements base.Conn.
func (s *statements) Exec(ctx context.Context, text string, args ...any) (changed int64, err error) {
	one, err := s.prepare(ctx, text)
	if err != nil {
		return 0, err
	}
	result, err := one.ExecContext(ctx, one.arguments(args)...)
	if err != nil {
		return 0, err
	}
	if changed, err = result.RowsAffected(); err != nil {
		return 0, fmt.Errorf("count changed rows: %w", err)
	}
	return changed, nil
}

// Query implements base.Reader.
func (s *statements) Query(ctx context.Context, text string, args ...any) (base.Rows, error) {
	one, err := s.prepare(ctx, text)
	if err != nil {
		return nil, err
	}
	rows, err := one.QueryContext(ctx, one.arguments(args)...)
	if err != nil {
		return nil, err
	}
	return rows, nil
}

// Close closes the statements. SQLite closes a connection only after its statements.
func (s *statements) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for _, one := range s.byText {
		errs = append(errs, one.Close())
	}
	clear(s.byText)
	return errors.Join(errs...)
}

var (
	parameter = regexp.MustCompile(`\$(\d+)`)
	negation  = regexp.MustCompile(`\bNOT ((?:\w+\.)?(?:deleted|final|stored))\b`)
)

// translate returns a statement of store/sql as SQLite reads it, and whether it has one more
// parameter for the time.
func translate(text string) (translated string, clocked bool) {
	// SQLite uses a partial index only if the statement has the index's condition word by word.
	text = negation.ReplaceAllString(text, "$1 = 0")
	last, inOrder := 0, true
	for i, m := range parameter.FindAllStringSubmatch(text, -1) {
		n, _ := strconv.Atoi(m[1]) // it has digits
		last, inOrder = max(last, n), inOrder && n == i+1
	}
	if clocked = strings.Contains(text, "{now}"); clocked {
		text, inOrder = strings.ReplaceAll(text, "{now}", fmt.Sprintf("?%d", last+1)), false
	}
	if inOrder { // the driver binds parameters without a number faster
		return parameter.ReplaceAllString(text, "?"), false
	}
	return parameter.ReplaceAllString(text, "?$1"), clocked
}
