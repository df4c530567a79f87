package sqlite_test

import (
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/berth-run/berth/store"
	"github.com/berth-run/berth/store/sqlite"
)

func object(i int) *store.Object {
	return &store.Object{ObjectKey: store.ObjectKey{Kind: "k", ID: fmt.Sprint("o", i)},
		Body: []byte(`"` + strings.Repeat("x", 64<<10) + `"`)}
}

// deleted fills a database and deletes everything except the last object.
func deleted(t *testing.T, db *sqlite.DB, n int) {
	t.Helper()
	for i := range n {
		if err := db.CreateObjects(t.Context(), "p", object(i)); err != nil {
			t.Fatal(err)
		}
	}
	for i := range n - 1 {
		if err := db.DeleteObject(t.Context(), "p", object(i).ObjectKey); err != nil {
			t.Fatal(err)
		}
	}
}

func fileSize(t *testing.T, path string) int64 {
	t.Helper()
	fi, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return fi.Size()
}

// Space of deleted rows is returned to the file system, in steps between which other
// writes run.
func TestShrinks(t *testing.T) {
	path := filepath.Join(t.TempDir(), "berth.db")
	db := open(t, path)
	defer db.Close()
	deleted(t, db, 200)
	if err := db.Pragma("wal_checkpoint(TRUNCATE)"); err != nil {
		t.Fatal(err)
	}
	before := fileSize(t, path)
	var writes atomic.Int64
	var ended atomic.Bool
	var g sync.WaitGroup
	g.Go(func() {
		for i := 1000; !ended.Load(); i++ {
			if err := db.CreateObjects(t.Context(), "p",
				&store.Object{ObjectKey: store.ObjectKey{Kind: "k", ID: fmt.Sprint("o", i)},
					Body: []byte(`1`)}); err != nil {
				t.Error(err)
			}
			writes.Add(1)
		}
	})
	steps := 0
	for more := true; more; steps++ {
		var err error
		if more, err = db.Shrink(t.Context(), 64, 100); err != nil {
			t.Fatal(err)
		}
		for n := writes.Load(); writes.Load() == n && !t.Failed(); { // until another write has run
		}
	}
	ended.Store(true)
	g.Wait()
	if err := db.Pragma("wal_checkpoint(TRUNCATE)"); err != nil {
		t.Fatal(err)
	}
	if after := fileSize(t, path); before < 12<<20 || after > before/4 || steps < 20 {
		t.Errorf("after %d steps the file has %d bytes, and had %d", steps, after, before)
	}
	if o, err := db.GetObject(t.Context(), "p", object(199).ObjectKey); err != nil || len(o.Body) < 64<<10 {
		t.Errorf("the remaining object: got %v", err)
	}
	if verdict, err := db.QueryText("PRAGMA integrity_check"); err != nil || verdict != "ok" {
		t.Errorf("integrity: got %s, %v", verdict, err)
	}
}

// Free pages that new rows may need soon remain.
func TestShrinkRetainsSlack(t *testing.T) {
	path := filepath.Join(t.TempDir(), "berth.db")
	db := open(t, path)
	defer db.Close()
	deleted(t, db, 50)
	if more, err := db.Shrink(t.Context(), 1<<20, 100); err != nil || more {
		t.Errorf("got %v, %v, want nothing to return", more, err)
	}
}

// A large file retains a share of its pages. The share is small: a file of 1,000,000 responses gives
// back the space of 40,000 deleted ones.
func TestSpare(t *testing.T) {
	for _, c := range []struct{ pages, free, slack, want int64 }{
		{10_000, 5_000, 4_096, 904},
		{100_000, 5_500, 4_096, 500},
		{100_000, 4_000, 4_096, -1_000},
		{1_500_000, 60_000, 4_096, 43_616},
	} {
		if got := sqlite.Spare(c.pages, c.free, c.slack); got != c.want {
			t.Errorf("%d free of %d pages: %d are returned, want %d", c.free, c.pages, got, c.want)
		}
	}
}

// Compact enables incremental vacuum for a database of an earlier version. It fails
// while another process uses the database.
func TestCompact(t *testing.T) {
	path := filepath.Join(t.TempDir(), "berth.db")
	old, err := sql.Open("sqlite", "file:"+path+"?_pragma=journal_mode(WAL)") // the mode of earlier versions
	if err != nil {
		t.Fatal(err)
	}
	if _, err := old.Exec("CREATE TABLE x (y); DROP TABLE x"); err != nil {
		t.Fatal(err)
	}
	if err := old.Close(); err != nil {
		t.Fatal(err)
	}
	db := open(t, path)
	deleted(t, db, 100)
	if mode, err := db.QueryText("PRAGMA auto_vacuum"); err != nil || mode != "0" {
		t.Fatalf("the old database has auto_vacuum %s, %v", mode, err)
	}
	if more, err := db.Shrink(t.Context(), 0, 100); err != nil || more {
		t.Errorf("shrinking an old database: got %v, %v", more, err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	before, after, err := sqlite.Compact(t.Context(), path)
	if err != nil || after > before/4 || fileSize(t, path) != after {
		t.Fatalf("got %d bytes after %d, %v", after, before, err)
	}
	db = open(t, path)
	if mode, err := db.QueryText("PRAGMA auto_vacuum"); err != nil || mode != "2" {
		t.Errorf("the compact database has auto_vacuum %s, %v", mode, err)
	}
	if o, err := db.GetObject(t.Context(), "p", object(99).ObjectKey); err != nil || len(o.Body) < 64<<10 {
		t.Errorf("the remaining object: got %v", err)
	}
	if fi, err := os.Stat(path); err != nil || fi.Mode().Perm() != 0o600 {
		t.Errorf("the mode of the file is %v, %v", fi.Mode(), err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}
