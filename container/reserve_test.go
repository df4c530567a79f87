package container

import (
	"slices"
	"testing"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
)

var bare = berth.ShellToolEnvironment{Type: berth.EnvironmentAuto}

// provide returns the container for a response without settings.
func (h *harness) provide(last berth.ContainerID) berth.ContainerID {
	h.t.Helper()
	id, err := h.k.provider.Provide(h.t.Context(), byMe, bare, last)
	if err != nil {
		h.t.Fatal(err)
	}
	return id
}

// wantContainers checks the number of containers that a client can list.
func (h *harness) wantContainers(n int) []*berth.Container {
	h.t.Helper()
	list, _, err := h.k.List(h.t.Context(), mine, "", store.Page{Limit: 10})
	if err != nil || len(list) != n {
		h.t.Fatalf("got %d containers, %v, want %d", len(list), err, n)
	}
	return list
}

// A container exists from its first use on. Without a use it leaves nothing.
func TestReserve(t *testing.T) {
	h := newHarness(t)
	id := h.provide("")
	h.pass(24 * time.Hour)
	h.wantContainers(0)
	if n := h.driver.count("create"); n != 0 {
		t.Errorf("%d sandboxes were created", n)
	}
	if template, err := h.k.provider.Template(t.Context(), mine, id); err != nil || template != "sha256:1" {
		t.Errorf("template: got %s, %v", template, err)
	}
	h.k.provider.Release(theirs, id)
	if again := h.provide(id); again != id {
		t.Errorf("the same response's other tool: got %s, want %s", again, id)
	}
	h.k.provider.Release(mine, id)
	if _, err := h.k.Get(t.Context(), mine, id); berth.ErrorCode(err) != berth.CodeNotFound {
		t.Errorf("before the first use: got %v", err)
	}
	h.k.provider.Release(mine, id)
	if len(h.k.index.all()) != 0 {
		t.Error("an unused container is still registered")
	}
	if _, err := h.trySh(t.Context(), id, "c", "true"); berth.ErrorCode(err) != berth.CodeNotFound {
		t.Errorf("after its release: got %v", err)
	}
	if next := h.provide(id); next == id {
		t.Error("the chain continues with a container that does not exist")
	}
}

// The first use creates a container as of then. It outlives the responses.
func TestReservedUse(t *testing.T) {
	for name, use := range map[string]func(*harness, berth.ContainerID) error{
		"call": func(h *harness, id berth.ContainerID) error {
			_, err := h.trySh(h.t.Context(), id, "c", "echo hello >f")
			return err
		},
		"begin": func(h *harness, id berth.ContainerID) error { return h.k.provider.Begin(h.t.Context(), mine, id) },
		"files": func(h *harness, id berth.ContainerID) error {
			h.uploads["file-1"] = upload{"data.csv", "1,2"}
			_, err := h.k.provider.Provide(h.t.Context(), byMe, berth.ShellToolEnvironment{Type: berth.EnvironmentAuto,
				FileIDs: []berth.FileID{"file-1"}}, id)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHarness(t)
			id := h.provide("")
			h.pass(time.Hour)
			if err := use(h, id); err != nil {
				t.Fatal(err)
			}
			h.k.provider.Release(mine, id)
			c := h.wantContainers(1)[0]
			if now := h.time().Unix(); c.ID != id || c.CreatedAt != now || c.LastActiveAt != now || c.Name != autoName {
				t.Errorf("got %+v", c)
			}
			if again := h.provide(id); again != id {
				t.Errorf("the chain's container: got %s, want %s", again, id)
			}
			h.sh(id, "true")
		})
	}
}

// Reserved containers count towards the limits, so that a call cannot fail for them.
func TestReservedCount(t *testing.T) {
	h := newHarness(t)
	h.k.opts.Bounds.Containers = 1
	id := h.provide("")
	_, err := h.k.provider.Provide(t.Context(), byMe, bare, "")
	wantError(t, err, berth.CodeRateLimited, "", "limit of this server")
	h.k.provider.Release(mine, id)
	h.provide("")
}

// A crash before the first use loses nothing: the next server reserves the container again.
func TestReserveAgain(t *testing.T) {
	h := newHarness(t)
	unused, used, deleted := h.provide(""), h.provide(""), h.provide("")
	h.sh(used, "echo kept >f")
	h.sh(deleted, "true")
	if err := h.k.Delete(t.Context(), mine, deleted); err != nil {
		t.Fatal(err)
	}
	h.crash()
	h.driver.idle()
	h.start()
	for _, id := range []berth.ContainerID{unused, used} {
		if err := h.k.provider.Reserve(t.Context(), byMe, id); err != nil {
			t.Fatal(err)
		}
	}
	h.wantContainers(1)
	if got := h.sh(unused, "ls"); got != "" {
		t.Errorf("got %q", got)
	}
	if got := h.sh(used, "cat f"); got != "kept\n" {
		t.Errorf("got %q", got)
	}
	for _, id := range []berth.ContainerID{unused, used} {
		h.k.provider.Release(mine, id)
	}
	h.wantContainers(2)
}

// A container that cannot be saved is created by the next use.
func TestReservedNotSaved(t *testing.T) {
	h := newHarness(t)
	id := h.provide("")
	failing := true
	h.store.failing(func(op string) error {
		if op == "create" && failing {
			return errHost
		}
		return nil
	})
	if _, err := h.trySh(t.Context(), id, "c", "true"); err == nil {
		t.Fatal("a container was used that is not saved")
	}
	h.wantContainers(0)
	failing = false
	h.sh(id, "true")
	h.wantContainers(1)
}

// A call uses the sandbox that a pool gave at the reservation. An unused one does not return to
// the pool.
func TestReservePooled(t *testing.T) {
	h := newPoolHarness(t, 1)
	ready := h.full()
	id := h.provide("")
	if !slices.Contains(ready, string(id)) {
		t.Fatalf("got %s, want one of %v", id, ready)
	}
	h.wantContainers(0)
	h.sh(id, "true")
	h.wantPool(1, 0)
	h.wantContainers(1)
	h.full()
	unused := h.provide("")
	h.k.provider.Release(mine, unused)
	h.settle()
	if h.driver.box(string(unused)) != nil {
		t.Error("an unused sandbox of the pool is left")
	}
	h.wantPool(1, 0)
	h.wantContainers(1)
}
