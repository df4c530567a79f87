package console

import (
	"bytes"
	"slices"
	"strings"
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

// TestFailures: the overview says among how many responses it has found those that failed.
func TestFailures(t *testing.T) {
	failed := &summary{Response: berth.Response{ID: "resp_1", Status: berth.StatusFailed, Model: "<b>"}}
	var b bytes.Buffer
	if err := templates().ExecuteTemplate(&b, "overview",
		page{Data: overviewPage{Project: &projectOverview{Failed: []*summary{failed}}}}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Of the latest 100 responses.", "/console/responses/resp_1", "&lt;b&gt;"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("the page lacks %q: %s", want, &b)
		}
	}
}
