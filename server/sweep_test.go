package server

import (
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/berth-run/berth/store"
	"github.com/berth-run/berth/store/sqlite"
)

// sweep deletes all expired objects, even many, and no others.
func TestSweep(t *testing.T) {
	db, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "berth.db"), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	now := time.Now()
	object := func(kind store.Kind, n int, expires int64) *store.Object {
		return &store.Object{ObjectKey: store.ObjectKey{Kind: kind, ID: fmt.Sprint(n)}, ExpiresAt: expires,
			Body: []byte("{}")}
	}
	var objects []*store.Object
	for n := range sweepBatch + 10 {
		objects = append(objects, object("a", n, now.Unix()))
	}
	kept := []*store.Object{object("a", -1, now.Unix()+1), object("a", -2, 0), object("b", 1, now.Unix())}
	if err := db.CreateObjects(t.Context(), "proj_a", append(objects, kept...)...); err != nil {
		t.Fatal(err)
	}
	if err := sweep(t.Context(), db, "a", now); err != nil {
		t.Fatal(err)
	}
	if left, err := db.ExpiredObjects(t.Context(), "a", now, 10); err != nil || len(left) != 0 {
		t.Errorf("%d expired objects left, %v", len(left), err)
	}
	for _, o := range kept {
		if _, err := db.GetObject(t.Context(), "proj_a", o.ObjectKey); errors.Is(err, store.ErrNotFound) {
			t.Errorf("%v was swept", o.ObjectKey)
		}
	}
}
