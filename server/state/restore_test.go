package state

import (
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-run/berth/project"
	"github.com/berth-run/berth/store/postgres"
	"github.com/berth-run/berth/store/postgres/pgtest"
)

// stateWithContent returns a state directory with a database and the content of a file.
func stateWithContent(t *testing.T) string {
	t.Helper()
	state := filepath.Join(t.TempDir(), "state")
	open, err := Open(t.Context(), state)
	if err != nil {
		t.Fatal(err)
	}
	_, _, kerr := open.Projects.CreateKey(t.Context(), "proj_a", project.KeyRequest{}) // which is audited
	_, nerr := NodeID(state)
	content := filepath.Join(state, "files", "proj_a", "file-1")
	if err := errors.Join(kerr, nerr, open.Close(), os.MkdirAll(filepath.Dir(content), 0o700),
		os.WriteFile(content, []byte("a content"), 0o600)); err != nil {
		t.Fatal(err)
	}
	return state
}

// TestRestoreRefuses: a backup that is damaged, incomplete or of a later version is refused, and so is
// a target that is not empty.
func TestRestoreRefuses(t *testing.T) {
	state := stateWithContent(t)
	made := func() string {
		to := filepath.Join(t.TempDir(), "backup")
		if _, err := Backup(t.Context(), state, to, "test", nil); err != nil {
			t.Fatal(err)
		}
		return to
	}
	change := func(path string, f func(string) string) {
		t.Helper()
		text, err := os.ReadFile(path)
		if err == nil {
			err = os.WriteFile(path, []byte(f(string(text))), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	content := func(dir string) string {
		t.Helper()
		all, err := filepath.Glob(filepath.Join(dir, "files", "*", "*"))
		if err != nil || len(all) != 1 {
			t.Fatalf("got %v, %v", all, err)
		}
		return all[0]
	}
	for name, tc := range map[string]struct {
		spoil func(dir string)
		want  string
	}{
		"a changed file": {func(dir string) {
			change(content(dir), func(s string) string { return s[1:] + "x" })
		}, "differs from its checksum"},
		"a lost file": {func(dir string) { os.Remove(content(dir)) }, "no such file"},
		"changed checksums": {func(dir string) {
			change(filepath.Join(dir, sumsFile), func(s string) string { return s + s })
		}, "was changed"},
		"no manifest": {func(dir string) {
			os.Remove(filepath.Join(dir, manifestFile))
		}, "not a complete backup"},
		"a damaged manifest": {func(dir string) {
			change(filepath.Join(dir, manifestFile), func(s string) string { return s[:20] })
		}, "is damaged"},
		"a later format": {func(dir string) {
			change(filepath.Join(dir, manifestFile), func(s string) string {
				return strings.Replace(s, `"format": 1`, `"format": 2`, 1)
			})
		}, "later version of Berth"},
		"a later schema": {func(dir string) { later(t, filepath.Join(dir, "berth.db")) }, "later version of Berth"},
	} {
		dir, to := made(), filepath.Join(t.TempDir(), "state")
		tc.spoil(dir)
		if _, err := Restore(t.Context(), dir, to, "", ""); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: got %v, want %q", name, err, tc.want)
		}
		if _, err := OpenExisting(t.Context(), to); err == nil {
			t.Errorf("%s: the directory can be used", name)
		}
	}
	dir := made()
	if _, err := Restore(t.Context(), dir, state, "", ""); err == nil || !strings.Contains(err.Error(),
		"is not empty") {
		t.Errorf("to a directory in use: got %v", err)
	}
	used, to := pgtest.URL(t), filepath.Join(t.TempDir(), "state")
	if db, err := postgres.Open(t.Context(), used, &postgres.Options{Keys: filepath.Join(t.TempDir(),
		"k")}); err != nil {
		t.Fatal(err)
	} else if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := Restore(t.Context(), dir, to, used, ""); !errors.Is(err, postgres.ErrNotEmpty) {
		t.Errorf("to a database in use: got %v", err)
	}
	// It is refused until a restore is complete, which begins anew.
	if _, err := Lock(to); err == nil || !strings.Contains(err.Error(), "run berth restore again") {
		t.Errorf("a server on an incomplete restore: got %v", err)
	}
	if _, err := Restore(t.Context(), dir, to, pgtest.URL(t), ""); err != nil {
		t.Fatal(err)
	}
	s, err := OpenExisting(t.Context(), to)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(to, "berth.db")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the state directory has a database of its own too: %v", err)
	}
	if _, err := Backup(t.Context(), state, dir, "test", nil); err == nil {
		t.Error("a backup replaced another one")
	}
}

// later gives a database the schema of a later version.
func later(t *testing.T, path string) {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	_, err = db.Exec("INSERT INTO goose_db_version (version_id, is_applied) VALUES (9999, 1)")
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
}
