package storetest

import (
	"errors"
	"testing"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
)

// Fill writes rows of most kinds to an empty store, and deletes half of them again.
func Fill(t *testing.T, s store.Store) {
	t.Helper()
	writeCanaries(t, s)
	for _, row := range rows(t.Context(), s, "1") {
		if err := errors.Join(row.read(), row.delete()); err != nil {
			t.Fatalf("%s: %v", row.name, err)
		}
	}
}

// Copied fills an empty store, has it copied to others one after the other, and checks each copy.
// A copy function closes the store that it is given.
func Copied(t *testing.T, s store.Store, copies ...func(store.Store) store.Store) {
	Fill(t, s)
	chain := []berth.ResponseID{create(t, s, response("")).Body.ID}
	stored, err := s.StoredBytes(t.Context(), mine)
	if err != nil {
		t.Fatal(err)
	}
	for n, copied := range copies {
		s = copied(s)
		if got, err := s.StoredBytes(t.Context(), mine); err != nil || got != stored {
			t.Errorf("copy %d: it counts %d bytes, %v, want %d", n, got, err, stored)
		}
		for _, row := range rows(t.Context(), s, "1") {
			wantErr(t, row.name+", deleted before the copy", row.read(), store.ErrNotFound)
		}
		for _, row := range rows(t.Context(), s, "2") {
			if err := row.read(); err != nil {
				t.Errorf("copy %d: %s: %v", n, row.name, err)
			}
		}
		last := chain[len(chain)-1]
		r := create(t, s, response(last))
		finish(t, s, r, item("out"))
		chain = append(chain, r.Body.ID)
		if links, err := s.Chain(t.Context(), mine, r.Body.ID); err != nil || len(links) != len(chain) {
			t.Errorf("copy %d: the chain has %d links, %v, want %d", n, len(links), err, len(chain))
		}
		if err := s.CreateObjects(t.Context(), mine, object("thread", "", berth.NewID("thread_"))); err != nil {
			t.Errorf("copy %d: create an object: %v", n, err)
		}
		if stored, err = s.StoredBytes(t.Context(), mine); err != nil {
			t.Fatal(err)
		}
	}
	for _, row := range rows(t.Context(), s, "2") {
		if err := row.delete(); err != nil {
			t.Errorf("delete %s: %v", row.name, err)
		}
		wantErr(t, row.name+" after its deletion", row.read(), store.ErrNotFound)
	}
	for i := len(chain) - 1; i >= 0; i-- {
		if err := s.DeleteResponse(t.Context(), mine, chain[i]); err != nil {
			t.Errorf("delete a response: %v", err)
		}
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
