package project

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
	"github.com/berth-run/berth/store/sqlite"
)

func number(n int64) *int64 { return &n }

func TestProject(t *testing.T) {
	ctx := t.Context()
	db, err := sqlite.Open(ctx, filepath.Join(t.TempDir(), "berth.db"), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	get := func(id berth.ProjectID) *berth.Project {
		t.Helper()
		p, err := New(Options{Objects: db}).Get(ctx, id)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	if p := get("proj_unknown"); p.Status != berth.ProjectActive || p.CreatedAt != 0 {
		t.Errorf("a project without a record: got %+v", p)
	}
	made, err := New(Options{Objects: db}).Create(ctx, "proj_a", "research")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(made, get("proj_a")); diff != "" || made.Name != "research" || made.CreatedAt == 0 {
		t.Errorf("(-made +got):\n%s", diff)
	}
	if _, err := New(Options{Objects: db}).Create(ctx, "proj_a", "again"); !errors.Is(err, store.ErrExists) {
		t.Errorf("the same id: got %v", err)
	}
	// Limits add to those that are there, also for a project without a record.
	for _, id := range []berth.ProjectID{"proj_a", "proj_b"} {
		for _, l := range []berth.Limits{{Containers: number(1)}, {Responses: number(2)}, {Containers: number(-1)}} {
			if _, err := New(Options{Objects: db}).SetLimits(ctx, id, l); err != nil {
				t.Fatal(err)
			}
		}
		if diff := cmp.Diff(berth.Limits{Containers: number(-1), Responses: number(2)}, get(id).Limits); diff != "" {
			t.Errorf("%s (-want +got):\n%s", id, diff)
		}
	}
	if _, err := New(Options{Objects: db}).ClearLimits(ctx, "proj_b"); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(berth.Limits{}, get("proj_b").Limits); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	first, err := New(Options{Objects: db}).Archive(ctx, "proj_a")
	if err != nil || first.Status != berth.ProjectArchived || first.ArchivedAt == nil || first.Name != "research" {
		t.Errorf("got %+v, %v", first, err)
	}
	if second, err := New(Options{Objects: db}).Archive(ctx, "proj_a"); err != nil ||
		*second.ArchivedAt != *first.ArchivedAt {
		t.Errorf("a second time: got %+v, %v", second, err)
	}
	all, err := New(Options{Objects: db}).List(ctx)
	if err != nil || len(all) != 2 || all[0].ID != "proj_a" || all[1].ID != "proj_b" {
		t.Errorf("got %d projects, %v", len(all), err)
	}
}
