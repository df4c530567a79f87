package sqlite_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/berth-run/berth/store"
	"github.com/berth-run/berth/store/sqlite"
	"github.com/berth-run/berth/store/storetest"
)

// whole lists the statements that may scan a table: they return all of it.
var whole = regexp.MustCompile(`FROM (keys|members) ORDER BY|FROM doomed$|WHERE name <> ''|^UPDATE ring SET`)

var (
	verb    = regexp.MustCompile(`^(SELECT|INSERT|UPDATE|DELETE|WITH) `)
	unbound = regexp.MustCompile(`\?\d*`) // a parameter without a value
)

// checkPlans checks that the statements that a database has run use an index.
func checkPlans(t *testing.T, db *sqlite.DB) {
	t.Helper()
	for _, text := range db.Statements() {
		if !verb.MatchString(text) {
			continue
		}
		plan, err := db.Plan(unbound.ReplaceAllString(text, "1"))
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		for _, step := range plan {
			table, scan := strings.CutPrefix(step, "SCAN ")
			if scan && table != "chain" && !strings.Contains(table, "USING") && table != "CONSTANT ROW" &&
				!whole.MatchString(text) {
				t.Errorf("%s scans %s", text, table)
			}
		}
	}
}

// The suite runs each statement of package sql, so that both databases have read it and checkPlans has seen its plan.
func TestStatementsAreRun(t *testing.T) {
	var mu sync.Mutex
	ran := map[string]string{}
	collected := func(t *testing.T) store.Store {
		db := openNew(t).(*sqlite.DB)
		t.Cleanup(func() { // before that of openNew, which closes it
			mu.Lock()
			defer mu.Unlock()
			maps.Copy(ran, db.Statements())
		})
		return db
	}
	t.Run("Store", func(t *testing.T) { storetest.Run(t, collected) })
	t.Run("Members", func(t *testing.T) { storetest.Members(t, collected) })
	t.Run("Rotation", func(t *testing.T) {
		db := collected(t).(*sqlite.DB)
		storetest.Fill(t, db)
		if err := db.RotateKey(t.Context(), [32]byte{2}, nil); err != nil {
			t.Fatal(err)
		}
	})
	texts := slices.Collect(maps.Keys(ran))
	n := 0
	for _, text := range literals(t, "../sql/*.go") {
		if !verb.MatchString(text) {
			continue
		}
		n++ // a statement may begin with it
		if !slices.ContainsFunc(texts, func(whole string) bool { return strings.HasPrefix(whole, text) }) {
			t.Errorf("no test of package storetest runs %s", text)
		}
	}
	if n < 60 {
		t.Errorf("found only %d statements", n)
	}
}

// literals returns the strings in Go files.
func literals(t *testing.T, pattern string) (all []string) {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
				text, err := strconv.Unquote(lit.Value)
				if err != nil {
					t.Fatal(err)
				}
				all = append(all, text)
			}
			return true
		})
	}
	return all
}
