package snapshot_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/container/snapshot"
)

// Templates lists the templates of all projects' snapshots, but not those of deleted snapshots.
func TestTemplates(t *testing.T) {
	h := newHarness(t)
	first := h.create("one")
	r := &snapshot.Record{Snapshot: &berth.Snapshot{ContainerID: "cntr_2", Cause: berth.SnapshotRequested,
		Template: "sha256:2"}}
	if err := h.l.Create(t.Context(), theirs, r, content("two")); err != nil {
		t.Fatal(err)
	}
	h.bucket.Put("proj_mine/snap_half", []byte("x"))
	check := func(want map[string]bool) {
		t.Helper()
		got, err := h.l.Templates(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("templates (-want +got):\n%s", diff)
		}
	}
	check(map[string]bool{"sha256:1": true, "sha256:2": true})
	if err := h.l.Delete(t.Context(), mine, first.ID); err != nil {
		t.Fatal(err)
	}
	check(map[string]bool{"sha256:2": true})
}
