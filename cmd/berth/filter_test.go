package main

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/berth-run/berth"
)

// TestEveryListingFilters checks that all listings have the same flags, and that the example in the
// help of --filter is accepted.
func TestEveryListingFilters(t *testing.T) {
	var found []string
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
		lists := cmd.Name() == "ls" || cmd.Name() == "ps" || cmd.Name() == "models" ||
			cmd.CommandPath() == "berth webhook log"
		if !lists {
			return
		}
		found = append(found, cmd.CommandPath())
		for _, name := range []string{"json", "quiet", "no-trunc", "limit", "filter"} {
			if cmd.Flags().Lookup(name) == nil {
				t.Errorf("%s has no --%s", cmd.CommandPath(), name)
			}
		}
		if f := cmd.Flags().Lookup("filter"); f != nil {
			where := f.Value.(*conditions)
			if !strings.Contains(f.Usage, where.example) {
				t.Errorf("%s: the help %q has no example", cmd.CommandPath(), f.Usage)
			}
			if err := where.Set(where.example); err != nil {
				t.Errorf("%s: --filter %s: %v", cmd.CommandPath(), where.example, err)
			}
		}
	}
	walk(newRoot())
	if len(found) < 13 {
		t.Errorf("only these list: %q", found)
	}
}

func TestConditions(t *testing.T) {
	const id = "cntr_01a204bc01a204bc01a204bc01a204bc01a204bc5c0b6f7d"
	snapshot := &berth.Snapshot{ID: "snap_1", Name: "data.before-upgrade", ContainerID: id,
		Cause: berth.SnapshotExpired, StoredBytes: 2_000_000}
	conversation := &berth.Conversation{ID: "conv_1", Metadata: map[string]string{"team": "red", "a.b": "c"}}
	container := &berth.Container{Status: berth.ContainerRunning,
		Berth: berth.ContainerBerth{Volumes: []berth.VolumeMount{{Name: "data"}, {Name: "code"}}}}
	for _, c := range []struct {
		object  any
		filters string // separated by blanks
		want    bool
	}{
		{snapshot, "", true},
		{snapshot, "cause=expired", true},
		{snapshot, "cause=requested", false},
		{snapshot, "cause!=requested", true},
		{snapshot, "cause=expired name=other", false},
		{snapshot, "name=data*", true},
		{snapshot, "name=*up*grade", true},
		{snapshot, "name=*data", false},
		{snapshot, "name=data.before-upgrade*upgrade", false},
		{snapshot, "container_id=" + id, true},
		{snapshot, "container_id=cntr_5c0b6f7d", true},
		{snapshot, "container_id=cntr_5c0b6f7e", false},
		{snapshot, "stored_bytes=2000000", true},
		{snapshot, "memory=false", true},
		{snapshot, "memory!=false", false},
		{snapshot, "expires_at=", true},
		{snapshot, "expires_at!=", false},
		{conversation, "metadata.team=red", true},
		{conversation, "metadata.a.b=c", true},
		{conversation, "metadata.team!=red", false},
		{conversation, "metadata.none=", true},
		{conversation, "metadata.none=*", false},
		{conversation, "metadata.team=*", true},
		{snapshot, "name=data[./]before*", true},
		{&berth.File{Filename: "a/b"}, "filename=a*", true},
		{container, "berth.volumes=code", true},
		{container, "berth.volumes=other", false},
		{container, "berth.volumes!=code", false},
	} {
		where := conditions{fields: []string{"cause", "name", "container_id", "stored_bytes", "memory", "expires_at",
			"metadata.*", "berth.volumes", "filename"}}
		for _, f := range strings.Fields(c.filters) {
			if err := where.Set(f); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := where.keep(c.object); got != c.want || err != nil {
			t.Errorf("%s keeps: %v, %v; want %v", c.filters, got, err, c.want)
		}
	}
}

func TestFilterRefuses(t *testing.T) {
	where := &listFlags[berth.File](&cobra.Command{}, "purpose=user_data", 0).where
	for text, want := range map[string]string{
		"purpose":    "expected FIELD=VALUE or FIELD!=VALUE, such as purpose=user_data",
		"id=[":       "expected FIELD=VALUE",
		"=x":         "expected FIELD=VALUE",
		"!=x":        "expected FIELD=VALUE",
		"metadata.=": `unknown field "metadata."; the fields are id, `,
		"purposes=x": `unknown field "purposes"; the fields are id, `,
	} {
		if err := where.Set(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}
