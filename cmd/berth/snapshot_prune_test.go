package main

import (
	"slices"
	"testing"
	"time"

	"github.com/berth-run/berth"
)

func TestPruning(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	snap := func(id berth.SnapshotID, container berth.ContainerID, hours int64,
		cause berth.SnapshotCause) berth.Snapshot {
		return berth.Snapshot{ID: id, ContainerID: container, CreatedAt: now.Unix() - hours*3600, Cause: cause}
	}
	all := []berth.Snapshot{
		snap("a1", "a", 1, berth.SnapshotRequested), snap("b5", "b", 5, berth.SnapshotRequested),
		snap("a6", "a", 6, berth.SnapshotExpired),
		snap("a7", "a", 7, berth.SnapshotRequested), snap("a9", "a", 9, berth.SnapshotRequested),
	}
	for _, tt := range []struct {
		p    pruning
		want []string
	}{
		{pruning{}, []string{"a9", "a7", "a6", "b5", "a1"}},
		{pruning{age: 6 * time.Hour}, []string{"a9", "a7", "a6"}},
		{pruning{age: 6 * time.Hour, cause: "requested"}, []string{"a9", "a7"}},
		{pruning{keep: 1}, []string{"a9", "a7", "a6"}},
		{pruning{keep: 1, cause: "requested"}, []string{"a9", "a7"}},
		{pruning{keep: 9}, nil},
		{pruning{age: 10 * time.Hour}, nil},
	} {
		if got := tt.p.choose(all, now); !slices.Equal(got, tt.want) {
			t.Errorf("%+v: got %q, want %q", tt.p, got, tt.want)
		}
	}
}
