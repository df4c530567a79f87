package container

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/sandbox"
	"github.com/berth-run/berth/store"
)

// newPoolHarness returns a harness whose pool is full.
func newPoolHarness(t *testing.T, size int) *harness {
	t.Helper()
	h := newHarness(t, func(o *Options) { o.Pools = []PoolOptions{{Size: size}} })
	h.full()
	return h
}

// full waits until the pool is full, and returns the ids of its sandboxes.
func (h *harness) full() []string {
	h.t.Helper()
	return h.fullPool(0)
}

// fullPool is full for the i-th pool.
func (h *harness) fullPool(i int) []string {
	h.t.Helper()
	p := h.k.pools.all[i]
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.ready) != p.Size {
		p.changed.Wait()
	}
	var ids []string
	for _, s := range p.ready {
		ids = append(ids, string(s.id))
	}
	return ids
}

func (h *harness) wantPool(hits, misses int64) {
	h.t.Helper()
	if got := h.k.Pools()[0]; got.Hits != hits || got.Misses != misses {
		h.t.Errorf("got %+v, want %d hits, %d misses", got, hits, misses)
	}
}

// A container gets a ready sandbox with its own settings, and the pool adds another.
func TestPool(t *testing.T) {
	h := newPoolHarness(t, 2)
	h.uploads["file-1"] = upload{"a.txt", "hello"}
	before := h.full()
	c := h.create(CreateRequest{Name: "mine", FileIDs: []berth.FileID{"file-1"},
		Env: []string{"COLOUR=blue", "BERTH_USER=root"}})
	if !slices.Contains(before, string(c.ID)) {
		t.Errorf("got %s, want one of %v", c.ID, before)
	}
	if got := h.sh(c.ID, "cat a.txt; echo \" $COLOUR $BERTH_USER\""); got != "hello blue \n" {
		t.Errorf("got %q", got)
	}
	got := h.get(c.ID)
	if got.Berth.Starting || got.Name != "mine" || got.Berth.Template != "sha256:1" ||
		got.CreatedAt != h.time().Unix() {
		t.Errorf("got %+v", got)
	}
	h.wantPool(1, 0)
	if after := h.full(); slices.Contains(after, string(c.ID)) {
		t.Errorf("%s is in the pool again: %v", c.ID, after)
	}
	if err := h.k.Delete(t.Context(), mine, c.ID); err != nil {
		t.Fatal(err)
	}
	h.driver.until(2)
	h.wantPool(1, 0)
}

// A container that needs only a ready sandbox is saved once, as started. A crash does not start it again.
func TestPoolHandOver(t *testing.T) {
	h := newPoolHarness(t, 2)
	for _, env := range [][]string{nil, {"COLOUR=blue"}} {
		h.full()
		c := h.create(CreateRequest{Env: env})
		if c.Berth.Starting || h.get(c.ID).Berth.Starting {
			t.Errorf("%v: the container is still starting", env)
		}
		if _, err := h.opts.Store.GetObject(t.Context(), mine, startKey(c.ID)); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("%v: start record: got %v, want none", env, err)
		}
		box := h.driver.box(string(c.ID))
		h.crash()
		h.start()
		if got, want := h.sh(c.ID, "echo ${COLOUR-no}"), cmp.Or(strings.TrimPrefix(strings.Join(env, ""), "COLOUR="),
			"no")+"\n"; got != want {
			t.Errorf("%v: got %q, want %q", env, got, want)
		}
		if h.driver.box(string(c.ID)) != box {
			t.Errorf("%v: the sandbox was started again", env)
		}
	}
}

// Sandboxes in the pool belong to no container: they are not listed, and a crash leaves none.
func TestPoolCrash(t *testing.T) {
	h := newPoolHarness(t, 2)
	id := h.ready()
	h.sh(id, "echo kept >f")
	ready := h.full()
	for _, spare := range ready {
		if _, err := h.k.Get(t.Context(), mine, berth.ContainerID(spare)); berth.ErrorCode(err) != berth.CodeNotFound {
			t.Errorf("%s: got %v, want not found", spare, err)
		}
	}
	h.crash()
	h.opts.Pools = nil
	h.start()
	h.driver.until(1)
	if got := h.sh(id, "cat f"); got != "kept\n" {
		t.Errorf("got %q", got)
	}
}

func TestPoolClose(t *testing.T) {
	h := newPoolHarness(t, 3)
	id := h.ready()
	h.full()
	if err := h.k.Close(); err != nil {
		t.Fatal(err)
	}
	h.driver.until(1)
	if h.driver.box(string(id)) == nil {
		t.Error("the container's sandbox was destroyed")
	}
}

// A container does not get a sandbox that died in the pool.
func TestPoolDead(t *testing.T) {
	h := newPoolHarness(t, 1)
	for _, id := range h.full() {
		h.driver.die(id, sandbox.ReasonKilled)
	}
	id := h.ready()
	if got := h.sh(id, "echo here"); got != "here\n" {
		t.Errorf("got %q", got)
	}
	h.wantPool(0, 1)

	dead := h.full()
	h.driver.die(dead[0], sandbox.ReasonOOM)
	h.pass(checkInterval)
	if now := h.full(); now[0] == dead[0] {
		t.Errorf("%s still exists", now[0])
	}
	h.driver.until(2)
	h.wantPool(0, 1)
}

// Refused requests do not consume the pool.
func TestPoolRefused(t *testing.T) {
	h := newPoolHarness(t, 1)
	before := h.full()
	most := 0
	h.k.opts.Quota = func(context.Context, berth.ProjectID) (int, error) { return most, nil }
	for range 3 {
		if _, err := h.k.Create(t.Context(), byMe, CreateRequest{}); berth.ErrorCode(err) != berth.CodeRateLimited {
			t.Fatalf("got %v, want refused", err)
		}
	}
	h.wantPool(0, 0)
	most = 1
	if id := h.ready(); string(id) != before[0] {
		t.Errorf("got %s, want %s", id, before[0])
	}
	h.wantPool(1, 0)
}

// The sandbox of a container whose save failed is not reused: the save may have succeeded.
func TestPoolNotSaved(t *testing.T) {
	for _, fault := range []error{errHost, errSavedAnyway} {
		t.Run(fault.Error(), func(t *testing.T) {
			h := newPoolHarness(t, 1)
			before := h.full()
			h.store.failing(func(op string) error {
				if op == "create" {
					return fault
				}
				return nil
			})
			if _, err := h.k.Create(t.Context(), byMe, CreateRequest{}); !errors.Is(err, fault) {
				t.Errorf("got %v, want %v", err, fault)
			}
			if after := h.full(); after[0] == before[0] {
				t.Errorf("%s is in the pool again", after[0])
			}
			h.driver.until(1)
		})
	}
}

// A container that no pool serves is started cold.
func TestPoolOther(t *testing.T) {
	h := newPoolHarness(t, 1)
	before := h.full()
	c := h.create(CreateRequest{MemoryLimit: "4g"})
	h.sh(c.ID, "true")
	if got := h.driver.box(string(c.ID)).spec.Limits.Memory; string(c.ID) == before[0] || got != 4<<30 {
		t.Errorf("got %s with %d bytes", c.ID, got)
	}
	h.wantPool(0, 0)
}

// A new template replaces the old one in the pool.
func TestPoolTemplate(t *testing.T) {
	var mu sync.Mutex
	digest := "sha256:1"
	h := newHarness(t, func(o *Options) {
		o.Pools = []PoolOptions{{Size: 1}}
		o.Template = func(string) (Template, error) {
			mu.Lock()
			defer mu.Unlock()
			return Template{Template: sandbox.Template{Digest: digest, Path: "/templates/" + digest}}, nil
		}
	})
	old := h.full()
	mu.Lock()
	digest = "sha256:2"
	mu.Unlock()
	id := h.ready()
	if got := h.driver.box(string(id)).spec.Template.Path; got != "/templates/sha256:2" {
		t.Errorf("got %s", got)
	}
	h.wantPool(0, 1)
	for now := old; now[0] == old[0]; now = h.full() {
	}
	if id := h.full()[0]; h.driver.box(id).spec.Template.Path != "/templates/sha256:2" {
		t.Errorf("the pool holds %s", h.driver.box(id).spec.Template.Path)
	}
	h.driver.until(2)
}

// A pool that cannot be filled retries, and leaves no sandboxes behind.
func TestPoolStartFails(t *testing.T) {
	h := newHarness(t)
	failed := make(chan struct{}, 8)
	var once atomic.Bool
	h.driver.fail = func(_ context.Context, op, id string) error {
		if op != "start" || !once.CompareAndSwap(false, true) {
			return nil
		}
		failed <- struct{}{}
		return errHost
	}
	if err := h.k.Close(); err != nil {
		t.Fatal(err)
	}
	h.opts.Pools = []PoolOptions{{Size: 1}}
	h.start()
	<-failed
	h.full()
	h.driver.until(1)
}
