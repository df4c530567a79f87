package container

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/sandbox"
	"github.com/berth-run/berth/store"
)

func (h *harness) pause(id berth.ContainerID) {
	h.t.Helper()
	c, err := h.k.Pause(h.t.Context(), mine, id)
	if err != nil || !c.Berth.Paused || c.Status != berth.ContainerRunning {
		h.t.Fatalf("Pause: got %+v, %v", c, err)
	}
}

func (h *harness) isPaused(id berth.ContainerID) bool {
	h.t.Helper()
	c, err := h.k.Get(h.t.Context(), mine, id)
	if err != nil {
		h.t.Fatal(err)
	}
	if is := h.driver.box(string(id)).state == sandbox.StatePaused; is != c.Berth.Paused {
		h.t.Errorf("reported as paused: %v, paused: %v", c.Berth.Paused, is)
	}
	return c.Berth.Paused
}

// Any use resumes a paused container.
func TestPause(t *testing.T) {
	h, _ := newArchive(t)
	id := h.ready()
	f := h.put(id, "a", "a")
	for name, use := range map[string]func() error{
		"resume": func() error { _, err := h.k.Resume(t.Context(), mine, id); return err },
		"shell": func() error {
			_, err := h.trySh(t.Context(), id, berth.NewID(berth.PrefixShellCall), "cat a")
			return err
		},
		"file":     func() error { _, err := h.k.files.Get(t.Context(), mine, id, f.ID); return err },
		"snapshot": func() error { h.snapshot(id); return nil },
		"guest": func() error {
			_, release, err := h.k.access.Guest(t.Context(), berth.Caller{Project: mine}, id)
			if err == nil {
				release()
			}
			return err
		},
	} {
		h.pause(id)
		h.pause(id) // again
		if !h.isPaused(id) {
			t.Errorf("not paused before %s", name)
		}
		if err := use(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if h.isPaused(id) {
			t.Errorf("still paused after %s", name)
		}
	}
	if c, err := h.k.Resume(t.Context(), mine, id); err != nil || c.Berth.Paused {
		t.Errorf("a running container: got %+v, %v", c, err)
	}
}

func TestPauseRefused(t *testing.T) {
	h := newHarness(t)
	id := h.ready()
	r := h.run(id)
	_, err := h.k.Pause(t.Context(), mine, id)
	wantError(t, err, berth.CodeConflict, "", "is in use")
	os.Remove(filepath.Join(h.work(id), "held"))
	<-r.done
	for _, try := range []func(berth.ProjectID) error{
		func(p berth.ProjectID) error { _, err := h.k.Pause(t.Context(), p, id); return err },
		func(p berth.ProjectID) error { _, err := h.k.Resume(t.Context(), p, id); return err },
	} {
		wantError(t, try(theirs), berth.CodeNotFound, "", string(id))
	}
	h.driver.fail = func(_ context.Context, op, _ string) error {
		if op == "pause" || op == "resume" {
			return errHost
		}
		return nil
	}
	_, err = h.k.Pause(t.Context(), mine, id)
	wantError(t, err, berth.CodeUnavailable, "", "could not be paused.")
	if got := h.sh(id, "echo on"); got != "on\n" {
		t.Errorf("got %q", got)
	}
	h.driver.die(string(id), sandbox.ReasonOOM)
	_, err = h.trySh(t.Context(), id, "c", "true")
	wantExpired(t, err, id)
	_, err = h.k.Pause(t.Context(), mine, id)
	wantExpired(t, err, id, "memory limit")

	h.driver.busyOnly.Store(true)
	_, err = h.k.Pause(t.Context(), mine, id)
	wantError(t, err, berth.CodeInvalid, "", "cannot be paused")
}

func TestResumeFails(t *testing.T) {
	h := newHarness(t)
	id := h.ready()
	h.pause(id)
	h.driver.fail = func(_ context.Context, op, _ string) error {
		if op == "resume" {
			return errHost
		}
		return nil
	}
	_, err := h.trySh(t.Context(), id, "c", "true")
	wantError(t, err, berth.CodeUnavailable, "", "could not be resumed.")
	if !h.isPaused(id) {
		t.Error("not paused")
	}
	h.driver.fail = nil
	if got := h.sh(id, "echo on"); got != "on\n" {
		t.Errorf("got %q", got)
	}
	h.pause(id)
	h.driver.die(string(id), sandbox.ReasonOOM)
	_, err = h.trySh(t.Context(), id, "c", "true")
	wantExpired(t, err, id, "memory limit")
}

// Concurrent uses resume a container once.
func TestResumeAtOnce(t *testing.T) {
	h := newHarness(t)
	id := h.ready()
	h.pause(id)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if got := h.sh(id, "echo on"); got != "on\n" {
				t.Errorf("got %q", got)
			}
		})
	}
	all.Wait()
	if n := h.driver.count("resume"); n != 1 {
		t.Errorf("it was resumed %d times", n)
	}
}

// A paused container expires like any other, with a snapshot if it has on_expiry snapshot.
func TestPausedExpires(t *testing.T) {
	h, a := newArchive(t)
	id := h.readyFrom(leavesSnapshot)
	h.sh(id, "echo kept >f")
	h.pause(id)
	h.pass(20 * time.Minute)
	h.driver.until(0)
	all := a.list(t, mine)
	if len(all) != 1 {
		t.Fatalf("got %d snapshots, want 1", len(all))
	}
	if got := h.sh(h.readyFrom(fromSnapshot(all[0].ID)), "cat f"); got != "kept\n" {
		t.Errorf("got %q", got)
	}
}

// A paused container is still paused after a crash.
func TestPausedCrash(t *testing.T) {
	h := newHarness(t)
	id := h.ready()
	h.sh(id, "echo kept >f")
	h.pause(id)
	h.crash()
	h.start()
	if !h.isPaused(id) {
		t.Error("not paused")
	}
	if got := h.sh(id, "cat f"); got != "kept\n" {
		t.Errorf("got %q", got)
	}
}

func TestFork(t *testing.T) {
	h, a := newArchive(t)
	five := &berth.ExpiresAfter{Anchor: "last_active_at", Minutes: 5}
	id := h.create(CreateRequest{Name: "first", MemoryLimit: "4g", ExpiresAfter: five,
		Source: berth.ContainerSource{Template: "other", OnExpiry: berth.OnExpirySnapshot}}).ID
	h.sh(id, "echo one >f")
	c, err := h.k.Fork(t.Context(), byMe, id, ForkRequest{})
	if err != nil {
		t.Fatal(err)
	}
	h.sh(id, "echo two >f")
	if got := h.sh(c.ID, "cat f; echo three >f"); got != "one\n" {
		t.Errorf("got %q", got)
	}
	if got := h.sh(id, "cat f"); got != "two\n" {
		t.Errorf("got %q: the fork shares a file", got)
	}
	if c.Name != "first" || c.MemoryLimit != "4g" || c.ExpiresAfter != *five || c.Berth.ForkedFrom != id ||
		c.Berth.OnExpiry != berth.OnExpirySnapshot || c.Berth.Template != "sha256:2" || c.Berth.FromSnapshot != "" {
		t.Errorf("got %+v", c)
	}
	<-h.k.index.lookup(mine, c.ID).started
	if all, blobs := a.list(t, mine), a.blobs(t); len(all) > 0 || blobs > 0 {
		t.Errorf("left behind: %v, %d blobs", all, blobs)
	}
	_, err = h.k.Fork(t.Context(), berth.Caller{Project: theirs}, id, ForkRequest{})
	wantError(t, err, berth.CodeNotFound, "", string(id))
	h.k.opts.Bounds.Containers = 2
	_, err = h.k.Fork(t.Context(), byMe, id, ForkRequest{SnapshotRequest: SnapshotRequest{Name: "x"}})
	wantError(t, err, berth.CodeRateLimited, "")
	if blobs := a.blobs(t); blobs > 0 {
		t.Errorf("%d blobs are left of a refused fork", blobs)
	}
}

// Several forks of one request have the same content. Those for which there is no room fail alone.
func TestForks(t *testing.T) {
	h, a := newArchive(t)
	id := h.ready()
	h.sh(id, "echo one >f")
	h.k.opts.Bounds.Containers = 4
	forks, err := h.k.Forker().Forks(t.Context(), byMe, id, ForkRequest{SnapshotRequest: SnapshotRequest{Name: "try"}}, 4)
	if err != nil || len(forks) != 4 {
		t.Fatalf("got %d forks, %v", len(forks), err)
	}
	for i, f := range forks[:3] {
		if f.Err != nil {
			t.Fatalf("%d: %v", i+1, f.Err)
		}
		if want := fmt.Sprintf("try-%d", i+1); f.Container.Name != want {
			t.Errorf("got the name %q, want %q", f.Container.Name, want)
		}
		if got := h.sh(f.Container.ID, "cat f; echo mine >f"); got != "one\n" {
			t.Errorf("%d: got %q", i+1, got)
		}
	}
	wantError(t, forks[3].Err, berth.CodeRateLimited, "")
	if blobs := a.blobs(t); blobs > 0 {
		t.Errorf("%d contents are stored", blobs)
	}
	_, err = h.k.Forker().ForkAll(t.Context(), byMe, id, ForkRequest{}, 2)
	wantError(t, err, berth.CodeRateLimited, "")
	h.driver.until(4)
	h.k.opts.Bounds.Containers = 6
	if all, err := h.k.Forker().ForkAll(t.Context(), byMe, id, ForkRequest{}, 2); err != nil || len(all) != 2 {
		t.Errorf("got %d forks, %v, want 2", len(all), err)
	}
	if _, err := h.k.Forker().Forks(t.Context(), berth.Caller{Project: theirs}, id, ForkRequest{}, 2); err == nil {
		t.Error("another project forks the container")
	}
}

// A fork has the secrets of its source with the same placeholders, which its files may hold.
func TestForkNetwork(t *testing.T) {
	h, _ := newArchive(t)
	id := h.ready()
	s := h.k.index.lookup(mine, id)
	n, err := h.k.networks.parse(id, secret(berth.DomainSecret{Domain: "a.example", Name: "KEY",
		Value: "value"}).NetworkPolicy, nil)
	if err != nil {
		t.Fatal(err)
	}
	s.network.Store(n)
	s.body.NetworkPolicy = berth.NetworkPolicy{Type: "allowlist", AllowedDomains: []string{"a.example"}}
	// The sandboxes of the harness cannot be connected, so Fork would wait in vain.
	pl, err := h.k.planner.planFork(t.Context(), mine, &contentCopy{ctx: t.Context(), from: s}, ForkRequest{})
	if err != nil {
		t.Fatal(err)
	}
	fork, err := h.k.creator.create(t.Context(), byMe, pl)
	if err != nil {
		t.Fatal(err)
	}
	c := pl.body
	if got := fork.network.Load(); got == n || len(got.secrets) != 1 || got.secrets[0] != n.secrets[0] ||
		got.access.ca != n.access.ca || c.NetworkPolicy.Type != "allowlist" {
		t.Errorf("got %+v, want that of the source", c)
	}
	// Its sealed secrets outlive the server.
	again := &instance{project: mine, id: c.ID, body: *c}
	if err := h.k.networks.load(t.Context(), again); err != nil || len(again.network.Load().secrets) != 1 ||
		again.network.Load().secrets[0] != n.secrets[0] {
		t.Errorf("got %v", err)
	}
	if err := h.k.Delete(t.Context(), mine, c.ID); err != nil {
		t.Error(err)
	}
	if strings.Contains(h.log.String(), "value") {
		t.Error("the log has the secret")
	}
}

// Pausing a container that ends returns the reason of its end, not the driver's error about a
// missing sandbox.
func TestPauseOfDyingContainer(t *testing.T) {
	h := newHarness(t)
	id := h.ready()
	s := h.k.index.lookup(mine, id)
	h.driver.fail = func(_ context.Context, op, _ string) error {
		if op != "pause" {
			return nil
		}
		s.markDead(reasonDisk, nil)
		go h.k.deaths.settle(s, goneError(&s.body, reasonDisk))
		return errHost
	}
	_, err := h.k.Pause(t.Context(), mine, id)
	wantExpired(t, err, id, "disk")
}

// A fork that fails leaves nothing, and its source continues: the client left, the source ended,
// or the source's guest sends something else than its files.
func TestForkFails(t *testing.T) {
	h, a := newArchive(t)
	id := h.ready()
	h.sh(id, "echo one >f")
	left := func(want int) {
		t.Helper()
		h.driver.until(want)
		if all, _, err := h.k.List(t.Context(), mine, "", store.Page{Limit: 10}); err != nil || len(all) != 1 {
			t.Errorf("got %d containers, %v, want the source", len(all), err)
		}
		if blobs := a.blobs(t); blobs > 0 {
			t.Errorf("%d contents are stored", blobs)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	h.driver.mu.Lock()
	h.driver.done = func(_ context.Context, op, box string) {
		if op == "start" && box != string(id) {
			cancel()
		}
	}
	h.driver.mu.Unlock()
	if _, err := h.k.Fork(ctx, byMe, id, ForkRequest{}); err == nil {
		t.Error("the client left: got no error")
	}
	left(1)
	if got := h.sh(id, "cat f"); got != "one\n" {
		t.Errorf("got %q", got)
	}
	h.driver.mu.Lock()
	h.driver.done = func(_ context.Context, op, box string) {
		if op == "start" && box != string(id) {
			s := h.k.index.lookup(mine, id)
			h.k.deaths.end(s, reasonKilled, goneError(&s.body, reasonKilled), nil, nil)
		}
	}
	h.driver.mu.Unlock()
	_, err := h.k.Fork(t.Context(), byMe, id, ForkRequest{})
	wantExpired(t, err, id, "ended on its own")
	left(0)
}

// A fork into a sandbox of a pool gets the files of its source.
func TestForkFromPool(t *testing.T) {
	h, _ := newArchive(t, func(o *Options) { o.Pools = []PoolOptions{{Size: 1}} })
	h.full()
	id := h.ready()
	h.sh(id, "echo one >f")
	ready := h.full()
	c, err := h.k.Fork(t.Context(), byMe, id, ForkRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if got := h.sh(c.ID, "cat f"); got != "one\n" || string(c.ID) != ready[0] {
		t.Errorf("got %q in %s, want it in %s", got, c.ID, ready[0])
	}
}
