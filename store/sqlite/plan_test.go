package sqlite_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// whole lists the queries that may scan a table: they return all of it, or it has one
// row.
var whole = map[string]bool{"ListKeys": true, "ListMembers": true, "Mark": true, "Doomed": true}

var (
	name      = regexp.MustCompile(`(?m)^-- name: (\w+) :\w+\n`)
	parameter = regexp.MustCompile(`sqlc\.arg\(\w+\)|\?`)
)

// All other queries use an index.
func TestPlans(t *testing.T) {
	db := open(t, filepath.Join(t.TempDir(), "berth.db"))
	defer db.Close()
	files, err := filepath.Glob("*.sql")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		at := name.FindAllSubmatchIndex(text, -1)
		for i, m := range at {
			end := len(text)
			if i+1 < len(at) {
				end = at[i+1][0]
			}
			query := string(text[m[2]:m[3]])
			n++
			plan, err := db.Plan(parameter.ReplaceAllString(string(text[m[1]:end]), "1"))
			if err != nil {
				t.Errorf("%s: %v", query, err)
				continue
			}
			for _, step := range plan {
				table, scan := strings.CutPrefix(step, "SCAN ")
				if scan && table != "chain" && !strings.Contains(table, "USING") && table != "CONSTANT ROW" &&
					!whole[query] {
					t.Errorf("%s scans %s", query, table)
				}
			}
		}
	}
	if n < 40 {
		t.Errorf("found only %d queries", n)
	}
}
