package state

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store/postgres/pgtest"
	"github.com/berth-run/berth/store/sqlite"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// A state directory has one database: its own file, or the PostgreSQL database that it was
// first used with.
func TestDatabaseOfState(t *testing.T) {
	at, state := pgtest.URL(t), t.TempDir()
	open := func(state, url string) (Database, error) {
		return OpenDatabase(t.Context(), state, Use{URL: url})
	}
	db, err := open(state, at)
	if err != nil {
		t.Fatal(err)
	}
	if err := db.CreateKey(t.Context(), &berth.Key{ID: "key_1"}); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	// Commands, which know only the directory, use the same database.
	t.Setenv(StoreVariable, "")
	opened, err := OpenExisting(t.Context(), state)
	if err != nil {
		t.Fatal(err)
	}
	if keys, err := opened.Store.ListKeys(t.Context()); err != nil || len(keys) != 1 {
		t.Errorf("got %d keys, %v, want that of the database", len(keys), err)
	}
	if err := opened.Close(); err != nil {
		t.Fatal(err)
	}
	if st, err := os.Stat(filepath.Join(state, storeFile)); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("the file with the address: %v, %v, want mode 0600", st.Mode(), err)
	}
	files, own := t.TempDir(), t.TempDir()
	if db, err := OpenStore(t.Context(), files, sqlite.Options{}); err != nil {
		t.Fatal(err)
	} else if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct{ state, url, want string }{
		"a directory with a database of its own": {files, at, "has a database of its own"},
		"another directory":                      {own, at, "other keys"},
		"another, empty database":                {state, pgtest.URL(t), "the database is empty"},
	} {
		if db, err := open(tc.state, tc.url); err == nil || !strings.Contains(err.Error(), tc.want) ||
			strings.Contains(err.Error(), "p4ssword") {
			t.Errorf("%s: got %v, %v, want %q", name, db, err, tc.want)
		}
	}
	if before, after, err := Compact(t.Context(), state); err != nil || before <= 0 || after <= 0 {
		t.Errorf("a compaction: got %d, %d, %v", before, after, err)
	}
}
