package server

import (
	"bytes"
	"log/slog"
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
	open := func(state, url string) (database, error) {
		return openDatabase(t.Context(), state, databaseUse{url: url})
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
			leaks(err.Error()) {
			t.Errorf("%s: got %v, %v, want %q", name, db, err, tc.want)
		}
	}
	if before, after, err := Compact(t.Context(), state); err != nil || before <= 0 || after <= 0 {
		t.Errorf("a compaction: got %d, %d, %v", before, after, err)
	}
}

// leaks reports whether a text has the password of a test's server, or a part of it.
func leaks(text string) bool { return strings.Contains(text, "p4ssword") }

// No output of a configuration, a check or a log has the password.
func TestDatabasePassword(t *testing.T) {
	at := pgtest.URL(t)
	c, err := readConfig(t, "store: "+at+"\n")
	if err != nil {
		t.Fatal(err)
	}
	if c.Store.URL != at || c.Store.Synchronous != "normal" {
		t.Errorf("got %+v", c.Store)
	}
	if shown := string(c.Show()); leaks(shown) || !strings.Contains(shown, "127.0.0.1") {
		t.Errorf("config show: %s", shown)
	}
	for _, broken := range []string{"mysql://u:p4ssword@h/d", "postgres://u:p4ssword%zz@h/d",
		"postgres://u:p4ssword@h:port/d", "p4ssword",
		// Passwords with characters that are not percent-encoded, which a parser takes for another part.
		"postgres://u:p@ss/p4ssword@h/d", "postgres://u:p@p4ssword@h/d", "postgres://u:1#p4ssword@h/d",
		"postgres://u:1/p4ssword@h/d", "postgres://u:1?p4ssword@h/d"} {
		if shown := masked("store.url", broken); strings.Contains(broken, "@") && leaks(shown) {
			t.Errorf("%s is shown as %s", broken, shown)
		}
		if _, err := readConfig(t, "store: "+broken+"\n"); err == nil || leaks(err.Error()) ||
			!strings.Contains(err.Error(), "store.url must be") {
			t.Errorf("%s: got %v", broken, err)
		}
	}
	var log bytes.Buffer
	state := t.TempDir()
	db, err := openDatabase(t.Context(), state,
		databaseUse{Options: sqlite.Options{Log: slog.New(slog.NewTextHandler(&log, nil))}, url: at, serve: true})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := openDatabase(t.Context(), state, databaseUse{url: at, serve: true}); err == nil ||
		leaks(err.Error()) || !strings.Contains(err.Error(), "another server uses the database") {
		t.Errorf("a second server: got %v", err)
	}
	found := checkDatabase(t.Context(), state, c)
	if len(found) != 1 || !found[0].OK || !strings.Contains(found[0].Detail, "in use by berth") ||
		leaks(found[0].Detail) {
		t.Errorf("doctor: got %+v", found)
	}
	c.Store.URL = strings.Replace(at, "p4ssword", "wr0ng", 1)
	if found := checkDatabase(t.Context(), state, c); len(found) != 1 || found[0].OK ||
		strings.Contains(found[0].Detail, "wr0ng") {
		t.Errorf("doctor with another password: got %+v", found)
	}
}
