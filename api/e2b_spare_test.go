package api_test

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/container/build"
	"github.com/berth-run/berth/store"
)

// everything is more than a project stores.
const everything = 1 << 40

// A sparing is a house whose templates may be removed to make room, with a clock of its own.
type sparing struct {
	*house
	builds *build.Service
	late   atomic.Int64 // nanoseconds by which the clock is ahead
}

func newSparing(t *testing.T, idle time.Duration) *sparing {
	t.Helper()
	s := &sparing{}
	var stop context.CancelFunc
	var parts *sandboxParts
	s.house = newHouse(t, withSandboxOptions(t, &stop, func(o *sandboxParts) {
		parts = o
		o.Now = func() time.Time { return time.Now().Add(time.Duration(s.late.Load())) }
		o.building.Idle = idle
		o.building.Running = func(ctx context.Context) ([]*store.Container, error) {
			return s.store.RunningContainers(ctx)
		}
		o.building.Projects = func(context.Context) ([]berth.ProjectID, error) {
			return []berth.ProjectID{"proj_mine", "proj_theirs"}, nil
		}
	}))
	s.builds = parts.Builds
	s.key("sk-mine", "proj_mine")
	s.key("sk-theirs", "proj_theirs")
	return s
}

// makes builds a template and returns the log of the build.
func (s *sparing) makes(key, name string) string {
	s.t.Helper()
	b := s.startBuild(key, name, brief).ends()
	if b.Status != "ready" {
		s.t.Fatalf("%s: got %+v", name, b)
	}
	return strings.Join(b.Logs, "\n")
}

// has reports whether a project has a template.
func (s *sparing) has(key, name string) bool {
	s.t.Helper()
	status, text := s.sandboxCall("GET", "/templates/aliases/"+name, "", map[string]string{"X-API-Key": key})
	if status != http.StatusOK && status != http.StatusNotFound {
		s.t.Fatalf("%s: got %d %s", name, status, text)
	}
	return status == http.StatusOK
}

// kills kills a sandbox.
func (s *sparing) kills(id string) {
	s.t.Helper()
	status, text := s.sandboxCall("DELETE", "/sandboxes/"+id, "", map[string]string{"X-API-Key": "sk-mine"})
	if status != http.StatusNoContent {
		s.t.Fatalf("kill: got %d %s", status, text)
	}
}

// A template goes, to make room, when it was not used for a while and no sandbox runs from it; a build then makes it
// again.
func TestE2BTemplatesMakeRoom(t *testing.T) {
	t.Parallel()
	s := newSparing(t, time.Hour)
	for _, name := range []string{"old", "running", "fresh"} {
		s.makes("sk-mine", name)
	}
	s.makes("sk-theirs", "theirs")
	sandbox := s.newSandbox("sk-mine", `{"templateID":"running","timeout":86400}`)
	s.late.Store(int64(2 * time.Hour))
	used := s.newSandbox("sk-mine", `{"templateID":"fresh"}`)
	s.kills(used.ID)
	if !s.builds.MakeRoom(t.Context(), "proj_mine", everything) {
		t.Error("nothing was removed")
	}
	for name, want := range map[string]bool{"old": false, "running": true, "fresh": true} {
		if got := s.has("sk-mine", name); got != want {
			t.Errorf("%s: got %v, want %v", name, got, want)
		}
	}
	if !s.has("sk-theirs", "theirs") {
		t.Error("a template of another project was removed")
	}
	if s.makes("sk-mine", "old"); !s.has("sk-mine", "old") {
		t.Error("the template was not built again")
	}
	s.kills(sandbox.ID)
	s.late.Add(int64(2 * time.Hour))
	s.builds.MakeRoom(t.Context(), "", everything) // for the disk: of all projects
	for key, names := range map[string][]string{"sk-mine": {"old", "running", "fresh"}, "sk-theirs": {"theirs"}} {
		for _, name := range names {
			if s.has(key, name) {
				t.Errorf("%s remains", name)
			}
		}
	}
	if s.builds.MakeRoom(t.Context(), "", everything) {
		t.Error("something was removed again")
	}
}

// Without images.idle templates stay, and only cached results go: the next build runs its steps again.
func TestE2BCacheMakesRoom(t *testing.T) {
	t.Parallel()
	s := newSparing(t, 0)
	s.makes("sk-mine", "app")
	if log := s.makes("sk-mine", "app"); !strings.Contains(log, "CACHED") {
		t.Fatalf("the second build used no cache: %s", log)
	}
	s.late.Store(int64(2 * time.Hour))
	if !s.builds.MakeRoom(t.Context(), "proj_mine", 1) {
		t.Error("nothing was removed")
	}
	if log := s.makes("sk-mine", "app"); strings.Contains(log, "CACHED") {
		t.Errorf("the build used what was removed: %s", log)
	}
	if !s.has("sk-mine", "app") {
		t.Error("the template was removed")
	}
}

// What is removed first was not used for the longest time, and no more than is needed.
func TestE2BMakeRoomOrder(t *testing.T) {
	t.Parallel()
	s := newSparing(t, time.Minute)
	for _, name := range []string{"a", "b", "c"} {
		s.makes("sk-mine", name)
		s.late.Add(int64(time.Hour))
	}
	s.kills(s.newSandbox("sk-mine", `{"templateID":"a"}`).ID)
	s.late.Add(int64(time.Hour))
	for _, want := range []map[string]bool{{"a": true, "b": false, "c": true}, {"a": true, "b": false, "c": false},
		{"a": false, "b": false, "c": false}} {
		for range 2 { // one more for the cached result that all share
			if !s.builds.MakeRoom(t.Context(), "proj_mine", 1) {
				t.Fatal("nothing was removed")
			}
			if s.has("sk-mine", "b") == want["b"] && s.has("sk-mine", "c") == want["c"] {
				break
			}
		}
		for name, there := range want {
			if got := s.has("sk-mine", name); got != there {
				t.Errorf("%s: got %v, want %v", name, got, there)
			}
		}
	}
}
