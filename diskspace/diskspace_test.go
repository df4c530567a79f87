package diskspace_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/audit"
	"github.com/berth-run/berth/diskspace"
	"github.com/berth-run/berth/internal/disktest"
	"github.com/berth-run/berth/store"
	"github.com/berth-run/berth/store/sqlite"
)

func open(t *testing.T, dir string) *diskspace.Guard { return openWith(t, dir, nil) }

func openWith(t *testing.T, dir string, reserve *int64) *diskspace.Guard {
	t.Helper()
	g, err := diskspace.Open(diskspace.Options{Dir: dir,
		Areas:   map[diskspace.Area]string{diskspace.Sandboxes: filepath.Join(dir, "sandboxes")},
		Reserve: reserve, Log: slog.New(slog.NewTextHandler(t.Output(), nil))})
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func refused(err error) bool { return berth.ErrorCode(err) == berth.CodeInsufficientStorage }

// wait returns when done returns true.
func wait(t *testing.T, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !done(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("timed out waiting until %s", what)
		}
	}
}

// This tests the floors of a small volume, the reserve, and which requests are refused below
// each floor.
func TestFloors(t *testing.T) {
	dir := disktest.Ext4(t, 64<<20)
	g := open(t, dir)
	held, want := g.Reserve()
	if held < want || want < 1<<20 {
		t.Fatalf("the reserve has %d bytes of %d", held, want)
	}
	if err := g.Admit(diskspace.Sandboxes); err != nil {
		t.Fatalf("an empty volume: got %v", err)
	}
	if lack := g.Lack(diskspace.Sandboxes); lack != 0 {
		t.Errorf("an empty volume lacks %d bytes", lack)
	}
	r := g.Readings()[0]
	filler := disktest.Fill(t, dir, r.Low-1<<20)
	if err := g.Admit(); !refused(err) || g.Refusals() != 1 {
		t.Errorf("below the low floor: got %v and %d refusals, want %s", err, g.Refusals(),
			berth.CodeInsufficientStorage)
	}
	now := g.Readings()[0]
	if lack := g.Lack(diskspace.Sandboxes, diskspace.Images); lack != now.Low-now.Free || lack <= 0 {
		t.Errorf("below the low floor the volume lacks %d bytes, want %d", lack, now.Low-now.Free)
	}
	if err := g.Refuse(); err != nil {
		t.Errorf("below the low floor the database returns: %v", err)
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	if err := g.Admit(); err != nil {
		t.Errorf("with space again: got %v", err)
	}
}

// Below the critical floor the largest writer is ended, repeatedly until there is space. Then
// the reserve is allocated again.
func TestCritical(t *testing.T) {
	dir := disktest.Ext4(t, 64<<20)
	g := open(t, dir)
	critical := g.Readings()[0].Critical
	half := disktest.Fill(t, dir, 2*critical)
	filler := disktest.Fill(t, dir, 0)
	var calls atomic.Int64
	g.Start(func(_ context.Context, lack func() int64) bool {
		need := lack()
		if need <= 0 || need > critical {
			t.Errorf("got need = %d bytes with the floor at %d", need, critical)
		}
		victim := filler
		if calls.Add(1) > 1 {
			victim = half
		}
		if err := os.Remove(victim); err != nil {
			t.Error(err)
		}
		return true
	})
	defer g.Close()
	wait(t, "the reserve is allocated again", func() bool {
		held, want := g.Reserve()
		return calls.Load() > 0 && held >= want
	})
	if err := g.Refuse(); err != nil {
		t.Error(err)
	}
}

// Writers to a full volume are stopped before a start releases the reserve, which they would
// use up.
func TestCalm(t *testing.T) {
	dir := disktest.Ext4(t, 64<<20)
	g := open(t, dir)
	held, _ := g.Reserve()
	filler := disktest.Fill(t, dir, 0)
	calmed := false
	g, err := diskspace.Open(diskspace.Options{Dir: dir,
		Areas: map[diskspace.Area]string{diskspace.Sandboxes: filepath.Join(dir, "sandboxes")},
		Calm: func(need func() int64) {
			calmed = true
			var st unix.Stat_t
			if err := unix.Stat(filepath.Join(dir, "reserve"), &st); err != nil || st.Blocks*512 < held {
				t.Errorf("the reserve has %d bytes of %d, %v", st.Blocks*512, held, err)
			}
			if need() <= 0 {
				t.Error("need is 0 on a full volume")
			}
			if err := os.Remove(filler); err != nil {
				t.Error(err)
			}
			if n := need(); n > 0 {
				t.Errorf("with space again need is %d bytes", n)
			}
		}})
	if err != nil {
		t.Fatal(err)
	}
	if now, _ := g.Reserve(); !calmed || now < held {
		t.Errorf("calmed: %v; the reserve has %d bytes, want %d", calmed, now, held)
	}
}

// Small files can use up the inodes of a volume that still has free bytes.
func TestInodes(t *testing.T) {
	dir := disktest.Ext4(t, 64<<20, "-N", "1000")
	g := open(t, dir)
	if err := g.Admit(); err != nil {
		t.Fatal(err)
	}
	for i := 0; ; i++ {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprint("f", i)), nil, 0o600); err != nil {
			break
		}
	}
	if err := g.Admit(); !refused(err) {
		t.Errorf("got %v, want %s", err, berth.CodeInsufficientStorage)
	}
	if lack := g.Lack(diskspace.Sandboxes); lack < 1 {
		t.Errorf("a volume without inodes lacks %d bytes", lack)
	}
}

// On a volume without a free block nothing new is stored. Deletions and audit entries still
// are, a server opens its state, and freed space is used again.
func TestFullVolume(t *testing.T) {
	dir := disktest.Ext4(t, 160<<20)
	reserve := int64(16 << 20)
	g := openWith(t, dir, &reserve)
	openAll := func() (*sqlite.DB, *audit.Log) {
		t.Helper()
		db, err := sqlite.Open(t.Context(), filepath.Join(dir, "berth.db"), &sqlite.Options{Room: g})
		if err != nil {
			t.Fatal(err)
		}
		record, err := audit.Open(filepath.Join(dir, "audit"), slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		record.OnFull(g.MakeRoom)
		t.Cleanup(func() { db.Close(); record.Close() })
		return db, record
	}
	db, record := openAll()
	object := func(i int) *store.Object {
		return &store.Object{ObjectKey: store.ObjectKey{Kind: "k", ID: fmt.Sprint("o", i)},
			Body: []byte(`"` + strings.Repeat("x", 64<<10) + `"`)}
	}
	n := 0
	for ; n < 50; n++ {
		if err := db.CreateObjects(t.Context(), "p", object(n)); err != nil {
			t.Fatal(err)
		}
	}
	filler := disktest.Fill(t, dir, 0)
	for ; ; n++ { // these go into the free part of the write-ahead log
		if err := db.CreateObjects(t.Context(), "p", object(n)); err != nil {
			if !errors.Is(err, store.ErrStorage) {
				t.Errorf("a write to a full volume: got %v, want %v", err, store.ErrStorage)
			}
			break
		}
	}
	given := func() bool { held, want := g.Reserve(); return held < want }
	for entries := 0; !given() || entries < 100; entries++ { // until an entry needs a block of the reserve
		if entries > 10_000 {
			t.Fatal("the audit log does not use the reserve")
		}
		e := audit.Entry{Action: audit.KeyCreated, Name: strings.Repeat("y", 500)}
		if err := record.Commit(t.Context(), e); err != nil {
			t.Fatalf("audit entry %d on a full volume: %v", entries, err)
		}
	}
	for i := range n {
		if err := db.DeleteObject(t.Context(), "p", object(i).ObjectKey); err != nil {
			t.Fatalf("deletion %d on a full volume: %v", i, err)
		}
		if err := db.CreateObjects(t.Context(), "p", object(1000+i)); err == nil {
			if given() && disktest.Free(t, dir) < 1<<20 {
				t.Fatal("a new object was written into the reserve")
			}
		}
	}
	if !given() {
		t.Error("the reserve was not released")
	}

	// This is a start after a clean stop, which removes the files that SQLite creates at a
	// start.
	if err := errors.Join(db.Close(), record.Close()); err != nil {
		t.Fatal(err)
	}
	disktest.Fill(t, dir, 0)
	g = openWith(t, dir, &reserve)
	db, record = openAll()
	if err := db.CreateObjects(t.Context(), "p", object(5000)); err == nil && disktest.Free(t, dir) < 64<<10 {
		t.Error("a new object was stored")
	}
	if err := db.DeleteObject(t.Context(), "p", object(1000).ObjectKey); err != nil &&
		!errors.Is(err, store.ErrNotFound) {
		t.Errorf("a deletion after a start on a full volume: %v", err)
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	g.Start(func(context.Context, func() int64) bool { return false })
	defer g.Close()
	wait(t, "the reserve is allocated again", func() bool { held, want := g.Reserve(); return held >= want })
	if err := db.CreateObjects(t.Context(), "p", object(6000)); err != nil {
		t.Errorf("with space again: %v", err)
	}
	if err := errors.Join(db.Close(), record.Close()); err != nil {
		t.Error(err)
	}
}
