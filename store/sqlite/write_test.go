package sqlite_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
)

func file(i int) *berth.File {
	return &berth.File{ID: berth.FileID(fmt.Sprintf("file-%d", i)), Object: "file", Filename: "a"}
}

// gather holds writes back until all have been sent, so that they share a transaction.
// It returns their errors.
func gather(t *testing.T, db interface {
	UpdateContainer(context.Context, berth.ProjectID, berth.ContainerID,
		func(*berth.Container) error) (*store.Container, error)
	Waiting() int
}, writes ...func() error) []error {
	t.Helper()
	blocked, proceed := make(chan struct{}), make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		_, err := db.UpdateContainer(t.Context(), "p", "cntr_1", func(*berth.Container) error {
			close(blocked)
			<-proceed
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	})
	<-blocked
	errs := make([]error, len(writes))
	for i, write := range writes {
		wg.Go(func() { errs[i] = write() })
		for db.Waiting() <= i {
			runtime.Gosched()
		}
	}
	close(proceed)
	wg.Wait()
	return errs
}

// A failing write does not fail the others in its transaction.
func TestFailureIsIsolated(t *testing.T) {
	db := open(t, filepath.Join(t.TempDir(), "berth.db"))
	defer db.Close()
	if err := db.CreateContainer(t.Context(), &store.Container{Project: "p",
		Body: &berth.Container{ID: "cntr_1"}}); err != nil {
		t.Fatal(err)
	}
	ended, cancel := context.WithCancel(t.Context())
	errs := gather(t, db,
		func() error { return db.CreateFile(t.Context(), "p", file(1), nil) },
		func() error { return db.CreateFile(t.Context(), "p", file(1), nil) },
		func() error { return db.DeleteFile(t.Context(), "p", "file-0") },
		func() error { return db.CreateFile(ended, "p", file(2), nil) },
		func() error { cancel(); return db.CreateFile(t.Context(), "p", file(3), nil) },
	)
	for i, want := range []error{nil, store.ErrExists, store.ErrNotFound, context.Canceled, nil} {
		if !errors.Is(errs[i], want) {
			t.Errorf("write %d: got %v, want %v", i, errs[i], want)
		}
	}
	got, _, err := db.ListFiles(t.Context(), "p", "", store.Page{Limit: 10, Ascending: true})
	if err != nil || len(got) != 2 || got[0].ID != "file-1" || got[1].ID != "file-3" {
		t.Errorf("got %d files, %v; want file-1 and file-3", len(got), err)
	}
}

// A write that fills the disk fails; the others that fit succeed.
func TestFullDisk(t *testing.T) {
	db := open(t, filepath.Join(t.TempDir(), "berth.db"))
	defer db.Close()
	if err := db.CreateContainer(t.Context(), &store.Container{Project: "p",
		Body: &berth.Container{ID: "cntr_1"}}); err != nil {
		t.Fatal(err)
	}
	pages, err := db.QueryText("PRAGMA page_count")
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Pragma(fmt.Sprintf("max_page_count = %s", pages)); err != nil {
		t.Fatal(err)
	}
	large := file(2)
	large.Filename = strings.Repeat("x", 100_000)
	errs := gather(t, db,
		func() error { return db.CreateFile(t.Context(), "p", file(1), nil) },
		func() error { return db.CreateFile(t.Context(), "p", large, nil) },
		func() error { return db.CreateFile(t.Context(), "p", file(3), nil) },
	)
	if errs[1] == nil || !strings.Contains(errs[1].Error(), "the disk is full; nothing of this write was saved") {
		t.Errorf("the large one: got %v, want that the disk is full", errs[1])
	}
	if err := errors.Join(errs[0], errs[2]); err != nil {
		t.Errorf("the other writes: %v", err)
	}
	if err := db.Pragma("max_page_count = 1000000"); err != nil {
		t.Fatal(err)
	}
	if err := db.CreateFile(t.Context(), "p", large, nil); err != nil {
		t.Errorf("after space is freed: %v", err)
	}
	check(t, db)
}

// If another process holds a lock on the database, all waiting writes get an error
// that names the cause. Reads succeed.
func TestLockedByAnotherProcess(t *testing.T) {
	path := filepath.Join(t.TempDir(), "berth.db")
	db, other := open(t, path), open(t, path)
	defer db.Close()
	defer other.Close()
	if err := db.Pragma("busy_timeout = 50"); err != nil {
		t.Fatal(err)
	}
	if err := other.Exec("BEGIN IMMEDIATE"); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			err := db.CreateFile(t.Context(), "p", file(i), nil)
			if err == nil || !strings.Contains(err.Error(), "another process has locked the database") {
				t.Errorf("got %v", err)
			}
		})
	}
	wg.Wait()
	if _, _, err := db.GetFile(t.Context(), "p", "file-1"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("a read meanwhile: got %v, want %v", err, store.ErrNotFound)
	}
	if err := other.Exec("ROLLBACK"); err != nil {
		t.Fatal(err)
	}
	if err := db.CreateFile(t.Context(), "p", file(1), nil); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

// Close completes the writes that were sent and refuses later ones. Each write returns
// whether it was saved.
func TestCloseWhileWriting(t *testing.T) {
	path := filepath.Join(t.TempDir(), "berth.db")
	db := open(t, path)
	var mu sync.Mutex
	var saved []berth.FileID
	var wg sync.WaitGroup
	some := make(chan struct{}, 1)
	for i := range 20 {
		wg.Go(func() {
			for n := 0; ; n++ {
				f := file(i*1_000_000 + n)
				if err := db.CreateFile(t.Context(), "p", f, nil); err != nil {
					if !strings.Contains(err.Error(), "closed") {
						t.Errorf("got %v, want an error that names the closed store", err)
					}
					return
				}
				mu.Lock()
				saved = append(saved, f.ID)
				mu.Unlock()
				select {
				case some <- struct{}{}:
				default:
				}
			}
		})
	}
	<-some
	for range 2 {
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
	}
	wg.Wait()
	db = open(t, path)
	defer db.Close()
	got, _, err := db.ListFiles(t.Context(), "p", "", store.Page{Limit: 1_000_000})
	if err != nil || len(got) != len(saved) {
		t.Errorf("got %d files, %v; want the %d that were saved", len(got), err, len(saved))
	}
	for _, id := range saved {
		if _, _, err := db.GetFile(t.Context(), "p", id); err != nil {
			t.Errorf("%s: %v", id, err)
		}
	}
}
