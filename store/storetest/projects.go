package storetest

import (
	"slices"
	"testing"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
)

// projects: lists have the responses and objects of one project only.
func projects(t *testing.T, s store.Store) {
	ctx := t.Context()
	remaining, deleted := create(t, s, response("")), create(t, s, response(""))
	if err := s.DeleteResponse(ctx, mine, deleted.Body.ID); err != nil {
		t.Fatal(err)
	}
	object := func(kind store.Kind, parent, id string) *store.Object {
		return &store.Object{ObjectKey: store.ObjectKey{Kind: kind, Parent: parent, ID: id}, Body: []byte("{}")}
	}
	if err := s.CreateObjects(ctx, mine, object("a", "", "one"), object("b", "one", "two"),
		object("b", "", "three")); err != nil {
		t.Fatal(err)
	}
	if ids, err := s.ProjectResponses(ctx, mine, 10); err != nil ||
		!slices.Equal(ids, []berth.ResponseID{remaining.Body.ID}) {
		t.Errorf("got the responses %v, %v, want %s", ids, err, remaining.Body.ID)
	}
	if keys, err := s.ProjectObjects(ctx, mine, 10); err != nil || len(keys) != 2 || slices.ContainsFunc(keys,
		func(k store.ObjectKey) bool {
			return k.ID == "two" || k.Parent != ""
		}) {
		t.Errorf("got the objects %v, %v, want those without a parent", keys, err)
	}
	if keys, err := s.ProjectObjects(ctx, mine, 1); err != nil || len(keys) != 1 {
		t.Errorf("got %d objects, %v, want 1", len(keys), err)
	}
	ids, err := s.ProjectResponses(ctx, theirs, 10)
	keys, err2 := s.ProjectObjects(ctx, theirs, 10)
	if err != nil || err2 != nil || len(ids)+len(keys) > 0 {
		t.Errorf("another project has %v and %v, %v, %v", ids, keys, err, err2)
	}
}
