package console

import (
	"slices"
	"testing"

	"github.com/berth-run/berth"
)

// TestDisks joins parts on one volume, and keeps those apart whose figures differ.
func TestDisks(t *testing.T) {
	parts := []berth.DiskStatus{
		{Area: "database", Bytes: 100, FreeBytes: 40},
		{Area: "files", Bytes: 100, FreeBytes: 10},
		{Area: "volumes", Bytes: 100, FreeBytes: 40},
		{Area: "images", Bytes: 100, FreeBytes: 40, Low: true},
	}
	want := []berth.DiskStatus{{Area: "database, volumes", Bytes: 100, FreeBytes: 40}, parts[1], parts[3]}
	if got := disks(parts); !slices.Equal(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if parts[0].Area != "database" {
		t.Error("the argument has changed")
	}
}
