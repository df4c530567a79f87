package sqlite_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/berth-run/berth/store/sqlite"
)

// whole lists the statements that may scan a table: they return all of it.
var whole = map[string]bool{"FROM keys ORDER BY": true, "FROM members ORDER BY": true, "FROM doomed": true}

// unbound is a parameter without a value.
var unbound = regexp.MustCompile(`\?\d*`)

// checkPlans checks that the statements that a database has run use an index. The suite runs all
// statements of package sql, so it checks them all.
func checkPlans(t *testing.T, db *sqlite.DB) {
	t.Helper()
	for _, text := range db.Statements() {
		plan, err := db.Plan(unbound.ReplaceAllString(text, "1"))
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		for _, step := range plan {
			table, scan := strings.CutPrefix(step, "SCAN ")
			if !scan || table == "chain" || strings.Contains(table, "USING") || table == "CONSTANT ROW" {
				continue
			}
			allowed := false
			for part := range whole {
				allowed = allowed || strings.Contains(text, part)
			}
			if !allowed {
				t.Errorf("%s scans %s", text, table)
			}
		}
	}
}
