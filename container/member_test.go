package container

import (
	"errors"
	"testing"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/cluster"
)

// A server neither adopts, ends nor uses the containers of another member, until that is
// removed. The other one gives up what was ended.
func TestContainersOfMembers(t *testing.T) {
	a := newHarness(t, func(o *Options) { o.Server = "a" })
	id := a.ready()
	if got := a.get(id); got.Berth.Server != "a" {
		t.Fatalf("the server of a new container is %q", got.Berth.Server)
	}
	b := &harness{t: t, driver: newDriver(t), store: a.store, now: a.time(), opts: a.opts}
	b.opts.Driver, b.opts.Server = b.driver, "b"
	b.start()
	t.Cleanup(func() {
		b.k.Close()
		b.driver.stop()
	})
	if got := a.get(id); got.Status != berth.ContainerRunning {
		t.Fatalf("after the start of another server: %+v", got)
	}
	if got, err := b.k.Where(t.Context(), mine, id, cluster.Use); err != nil || got.Server != "a" {
		t.Errorf("Where: %+v, %v", got, err)
	}
	if got, err := a.k.Where(t.Context(), mine, id, cluster.Use); err != nil || got.Server != "" {
		t.Errorf("Where on its own server: %+v, %v", got, err)
	}
	b.resumes(id, false)
	a.resumes(id, true)
	_, _, err := b.k.access.Guest(t.Context(), berth.Caller{Project: mine}, id)
	if e, ok := errors.AsType[*cluster.ElsewhereError](err); !ok || e.Server != "a" {
		t.Errorf("a use on another server: %v", err)
	}
	if err := b.k.EndLost(t.Context(), func(server string) bool { return server == "a" }); err != nil {
		t.Fatal(err)
	}
	if err := a.k.GiveUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := a.get(id); got.Status != berth.ContainerRunning {
		t.Fatalf("while its server is a member: %+v", got)
	}
	if err := b.k.EndLost(t.Context(), func(string) bool { return false }); err != nil {
		t.Fatal(err)
	}
	if got := a.get(id); got.Status != berth.ContainerExpired || got.Berth.Reason != reasonHost {
		t.Errorf("after its server was removed: %+v", got)
	}
	b.resumes(id, true) // which learns that its calls were interrupted
	if err := a.k.GiveUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	a.settle()
	if ids, err := a.driver.List(t.Context()); err != nil || len(ids) > 0 {
		t.Errorf("after its server returned: sandboxes %v, %v", ids, err)
	}
}

// A server that returns to its cluster still has the containers that it has only reserved: no
// other server can have ended them, and their responses use them.
func TestReservedByMember(t *testing.T) {
	h := newHarness(t, func(o *Options) { o.Server = "a" })
	id, unused := h.provide(""), h.provide("")
	if err := h.k.GiveUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	if out := h.sh(id, "echo works"); out != "works\n" {
		t.Errorf("a reserved container after the return: %q", out)
	}
	if err := h.k.GiveUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := h.get(id); got.Status != berth.ContainerRunning {
		t.Errorf("a container that was created since: %+v", got)
	}
	h.k.provider.Release(mine, unused)
	if n := len(h.k.index.all()); n != 1 {
		t.Errorf("%d instances are registered, want 1", n)
	}
}

// resumes checks whether the server resumes the responses of a container.
func (h *harness) resumes(id berth.ContainerID, want bool) {
	h.t.Helper()
	place, err := h.k.Where(h.t.Context(), mine, id, cluster.Resume)
	if got := place.Server == "" && !place.Taking; err != nil || got != want {
		h.t.Errorf("server %s resumes the responses of the container: got %t, %v, want %t", h.opts.Server, got, err,
			want)
	}
}
