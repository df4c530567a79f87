package sqlite_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
	"github.com/berth-run/berth/store/sqlite"
	"github.com/berth-run/berth/store/storetest"
)

func open(t testing.TB, path string) *sqlite.DB {
	t.Helper()
	db, err := sqlite.Open(context.Background(), path, nil)
	if err != nil {
		t.Fatal(err)
	}
	return db
}

func TestConformance(t *testing.T) { storetest.Run(t, openNew) }

func TestMembers(t *testing.T) { storetest.Members(t, openNew) }

// openNew opens an empty database, and checks and closes it with the test.
func openNew(t *testing.T) store.Store {
	db := open(t, filepath.Join(t.TempDir(), "berth.db"))
	t.Cleanup(func() {
		check(t, db)
		checkPlans(t, db)
		if err := db.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return db
}

func TestKilled(t *testing.T) {
	storetest.Killed(t, filepath.Join(t.TempDir(), "berth.db"), func(ctx context.Context, path string) (store.Store,
		error) {
		return sqlite.Open(ctx, path, nil)
	})
}

func TestSealing(t *testing.T) {
	path := func(dir string) string { return filepath.Join(dir, "berth.db") }
	storetest.Sealing(t, storetest.Disk{
		Open: func(ctx context.Context, dir string, key [32]byte) (store.Store, error) {
			return sqlite.Open(ctx, path(dir), &sqlite.Options{Key: key})
		},
		CopyKeys: func(t *testing.T, from, to string) {
			if err := os.WriteFile(sqlite.KeysPath(path(to)), read(t, sqlite.KeysPath(path(from))), 0o600); err != nil {
				t.Fatal(err)
			}
		},
		RemoveKeys: func(t *testing.T, dir string) {
			if err := os.Remove(sqlite.KeysPath(path(dir))); err != nil {
				t.Fatal(err)
			}
		},
		Copy: func(t *testing.T, dir string) string { return copied(t, dir) },
		Content: func(t *testing.T, dir string) []byte {
			return slices.Concat(read(t, path(dir)), read(t, path(dir)+"-wal"))
		},
	})
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// Errors of Open name the file and the remedy.
func TestRefused(t *testing.T) {
	dir := t.TempDir()
	broken := filepath.Join(dir, "broken.db")
	if err := os.WriteFile(broken, bytes.Repeat([]byte("not a database "), 1000), 0o600); err != nil {
		t.Fatal(err)
	}
	later := filepath.Join(dir, "later.db")
	db := open(t, later)
	if err := db.Exec("INSERT INTO goose_db_version (version_id, is_applied) VALUES (99, 1)"); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct{ path, synchronous, want string }{
		{filepath.Join(dir, "no", "such", "x.db"), "", "no such file or directory"},
		{filepath.Join(dir, "x.db"), "off", "synchronous must be normal or full"},
		{broken, "", "restore it from a backup"},
		{later, "", "later version of Berth"},
		{dir, "", "permissions"},
	} {
		db, err := sqlite.Open(t.Context(), tc.path, &sqlite.Options{Synchronous: tc.synchronous})
		if err == nil {
			db.Close()
			t.Errorf("Open(%s) succeeded, want %q", tc.path, tc.want)
		} else if !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), tc.path) {
			t.Errorf("Open(%s): got %v, want %q", tc.path, err, tc.want)
		}
	}
}

func TestFileIsPrivate(t *testing.T) {
	dir := t.TempDir()
	db := open(t, filepath.Join(dir, "berth.db"))
	defer db.Close()
	if err := db.CreateKey(t.Context(), &berth.Key{ID: "key_1"}); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 4 {
		t.Fatalf("%d files, %v; want the database, its log, its index and its keys", len(entries), err)
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			t.Fatal(err)
		}
		if got := info.Mode().Perm(); got != 0o600 {
			t.Errorf("%s: got mode %v, want 0600", e.Name(), got)
		}
	}
}

// Characters with a meaning in URLs have none in a path.
func TestOddPaths(t *testing.T) {
	for _, name := range []string{"a b.db", "50%.db", "what?.db", "a#b.db", "ü.db"} {
		path := filepath.Join(t.TempDir(), name)
		if err := open(t, path).Close(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := os.Stat(path); err != nil {
			t.Error(err)
		}
	}
}

// Several processes may open a new database concurrently, and write to it concurrently.
func TestProcesses(t *testing.T) {
	const processes, each = 4, 50
	path := os.Getenv("BERTH_TEST_PROCESS")
	if path != "" {
		db := open(t, path)
		for i := range each {
			id := berth.KeyID(fmt.Sprintf("key_%d_%d", os.Getpid(), i))
			if err := db.CreateKey(t.Context(),
				&berth.Key{ID: id, Hash: [32]byte([]byte(fmt.Sprintf("%32s", id)))}); err != nil {
				t.Fatal(err)
			}
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		return
	}
	path = filepath.Join(t.TempDir(), "berth.db")
	var started []*exec.Cmd
	for range processes {
		cmd := exec.Command(os.Args[0], "-test.run=^TestProcesses$")
		cmd.Env = append(os.Environ(), "BERTH_TEST_PROCESS="+path)
		cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		started = append(started, cmd)
	}
	for _, cmd := range started {
		if err := cmd.Wait(); err != nil {
			t.Errorf("a process: %v", err)
		}
	}
	db := open(t, path)
	defer db.Close()
	if keys, err := db.ListKeys(t.Context()); err != nil || len(keys) != processes*each {
		t.Errorf("got %d keys, %v; want %d", len(keys), err, processes*each)
	}
	check(t, db)
}
