package project

import (
	"context"
	"crypto/sha256"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/audit"
	"github.com/berth-run/berth/store"
	"github.com/berth-run/berth/store/sqlite"
)

// record is an Auditor in memory.
type record struct {
	entries []audit.Entry
	err     error
}

func (r *record) Commit(_ context.Context, entries ...audit.Entry) error {
	if r.err == nil {
		r.entries = append(r.entries, entries...)
	}
	return r.err
}

func TestKeys(t *testing.T) {
	ctx := t.Context()
	db, err := sqlite.Open(ctx, filepath.Join(t.TempDir(), "berth.db"), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	log := &record{}
	s := New(Options{Objects: db, Keys: db, Audit: log})
	create := func(p berth.ProjectID) *berth.Key {
		t.Helper()
		_, secret, err := s.CreateKey(ctx, p, KeyRequest{Name: "mine", Lifetime: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		k, err := db.KeyByHash(ctx, sha256.Sum256([]byte(secret)))
		if err != nil || k.Project != p || k.ExpiresAt != k.CreatedAt+3600 {
			t.Fatalf("got %+v, %v", k, err)
		}
		return k
	}
	a, b := create("proj_a"), create("proj_b")
	if _, err := s.Create(ctx, "proj_c", ""); err != nil {
		t.Fatal(err)
	}
	all, err := s.ListAll(ctx)
	// keys created at the same time have no order
	if err != nil || len(all) != 4 || all[3].ID != berth.DefaultProject || all[0].ID != "proj_c" || all[0].Keys != 0 ||
		all[1].Keys != 1 || all[2].Keys != 1 || all[1].ID == all[2].ID {
		t.Errorf("ListAll: got %+v, %v", all, err)
	}
	if _, err := s.Archive(ctx, "proj_c"); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.CreateKey(ctx, "proj_c", KeyRequest{}); !errors.Is(err, ErrArchived) {
		t.Error("an archived project has a new key")
	}

	// A key whose creation is not recorded is not created.
	log.err = errors.New("disk full")
	if _, _, err := s.CreateKey(ctx, "proj_a", KeyRequest{}); !errors.Is(err, log.err) {
		t.Errorf("got %v, want %v", err, log.err)
	}
	log.err = nil
	for _, c := range []struct {
		ids  []berth.KeyID
		last bool
		left int
		want error
	}{
		{[]berth.KeyID{a.ID, "key_none"}, true, 0, store.ErrNotFound},
		{[]berth.KeyID{a.ID, b.ID}, false, 0, ErrLastKey},
		{[]berth.KeyID{a.ID}, false, 1, nil},
		{[]berth.KeyID{b.ID}, true, 0, nil},
	} {
		if left, err := s.RevokeKeys(ctx, c.ids, c.last); left != c.left || !errors.Is(err, c.want) {
			t.Errorf("RevokeKeys %v: got %d, %v, want %d, %v", c.ids, left, err, c.left, c.want)
		}
	}
	if n := len(log.entries); n != 6 || log.entries[5].Action != audit.KeyRevoked ||
		log.entries[5].Object != string(b.ID) {
		t.Errorf("got %d entries: %+v", n, log.entries)
	}
}

// The last use of a key is saved from time to time, not with each use, and none is lost if the store fails.
func TestUses(t *testing.T) {
	db, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "berth.db"), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	k := &berth.Key{ID: "key_1", Project: "proj_a", CreatedAt: 1}
	if err := db.CreateKey(t.Context(), k); err != nil {
		t.Fatal(err)
	}
	now := time.Unix(1_800_000_000, 0)
	uses := NewUses(db, func() time.Time { return now })
	last := func() int64 {
		t.Helper()
		if k, err = db.KeyOf(t.Context(), berth.Caller{Project: "proj_a", Key: "key_1"}); err != nil {
			t.Fatal(err)
		}
		return k.LastUsedAt
	}
	uses.Used(k)
	if got := last(); got != 0 {
		t.Errorf("before Save: got %d", got)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if err := uses.Save(gone); err == nil {
		t.Error("Save did not fail")
	}
	if err := uses.Save(t.Context()); err != nil || last() != now.Unix() {
		t.Errorf("got %d, %v", k.LastUsedAt, err)
	}
	now = now.Add(time.Minute) // too soon
	uses.Used(k)
	if err := uses.Save(t.Context()); err != nil || last() != now.Unix()-60 {
		t.Errorf("got %d, %v", k.LastUsedAt, err)
	}
	now = now.Add(time.Hour)
	uses.Used(k)
	if err := uses.Save(t.Context()); err != nil || last() != now.Unix() {
		t.Errorf("got %d, %v", k.LastUsedAt, err)
	}
}
