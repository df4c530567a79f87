package container

import (
	"context"
	"errors"
	"maps"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/cluster"
	"github.com/berth-run/berth/sandbox"
)

// claims are the servers and epochs of sandboxes that several servers reach.
type claims struct {
	mu     sync.Mutex
	server map[string]string
	epoch  map[string]int64
}

// A claimDriver is a memDriver of one of several servers.
type claimDriver struct {
	*memDriver
	claims *claims
	name   string
}

func (d claimDriver) has(id string) bool {
	d.claims.mu.Lock()
	defer d.claims.mu.Unlock()
	return d.claims.server[id] == d.name
}

func (d claimDriver) Create(ctx context.Context, spec sandbox.Spec) error {
	err := d.memDriver.Create(ctx, spec)
	if err == nil {
		d.claims.mu.Lock()
		defer d.claims.mu.Unlock()
		d.claims.server[spec.ID], d.claims.epoch[spec.ID] = d.name, 0
	}
	return err
}

func (d claimDriver) Dial(ctx context.Context, id string) (net.Conn, error) {
	if !d.has(id) {
		return nil, sandbox.ErrNotFound
	}
	return d.memDriver.Dial(ctx, id)
}

func (d claimDriver) Stats(ctx context.Context, id string) (sandbox.Stats, error) {
	if !d.has(id) {
		return sandbox.Stats{}, sandbox.ErrNotFound
	}
	return d.memDriver.Stats(ctx, id)
}

func (d claimDriver) Destroy(ctx context.Context, id string) error {
	if !d.has(id) {
		return nil
	}
	return d.memDriver.Destroy(ctx, id)
}

func (d claimDriver) List(ctx context.Context) ([]string, error) {
	ids, err := d.memDriver.List(ctx)
	return slices.DeleteFunc(ids, func(id string) bool { return !d.has(id) }), err
}

func (d claimDriver) Claim(_ context.Context, id string, epoch int64) error {
	b := d.box(id)
	if b == nil {
		return sandbox.ErrNotFound
	}
	d.claims.mu.Lock()
	defer d.claims.mu.Unlock()
	switch last := d.claims.epoch[id]; {
	case d.claims.server[id] == d.name && last == epoch:
		return nil
	case last >= epoch:
		return sandbox.ErrClaimed
	}
	d.claims.server[id], d.claims.epoch[id] = d.name, epoch
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range b.conns { // as the guest does
		c.Close()
	}
	b.conns = nil
	return nil
}

func (d claimDriver) Claimed(context.Context) (map[string]string, error) {
	d.claims.mu.Lock()
	defer d.claims.mu.Unlock()
	all := maps.Clone(d.claims.server)
	maps.DeleteFunc(all, func(id, _ string) bool { return d.box(id) == nil })
	return all, nil
}

// twoServers starts two servers that reach the same sandboxes, a and b.
func twoServers(t *testing.T) (a, b *harness, audits map[string]string) {
	c := &claims{server: map[string]string{}, epoch: map[string]int64{}}
	audits = map[string]string{"a": t.TempDir(), "b": t.TempDir()}
	a = newHarness(t, func(o *Options) {
		o.Server, o.Driver, o.Audit = "a", claimDriver{o.Driver.(*memDriver), c, "a"}, openAudit(t, audits["a"])
	})
	b = &harness{t: t, driver: a.driver, store: a.store, log: a.log, now: a.time(), opts: a.opts}
	b.opts.Server, b.opts.Driver, b.opts.Audit = "b", claimDriver{a.driver, c, "b"}, openAudit(t, audits["b"])
	b.start()
	t.Cleanup(func() { b.k.Close() })
	return a, b, audits
}

func only(name string) func(string) bool { return func(server string) bool { return server == name } }

// A server takes over the containers of a lost one, with what runs in them. The lost one, which was
// only paused, cannot use, end or remove them any more.
func TestTakeOver(t *testing.T) {
	a, b, audits := twoServers(t)
	id := a.ready()
	if out := a.sh(id,
		"echo kept >file; (while [ ! -e stop ]; do sleep 0.01; done; echo once >>counter) >/dev/null 2>&1 &"); out != "" {
		t.Fatalf("got %q", out)
	}
	if err := b.k.TakeOver(t.Context(), func(string) bool { return true }); err != nil {
		t.Fatal(err)
	}
	if got := a.get(id); got.Berth.Server != "a" || got.Berth.Moves != 0 {
		t.Fatalf("while its server is a member: %+v", got.Berth)
	}
	for range 2 { // the second time changes nothing
		if err := b.k.TakeOver(t.Context(), only("b")); err != nil {
			t.Fatal(err)
		}
	}
	if got := b.get(id); got.Berth.Server != "b" || got.Berth.Moves != 1 || got.Status != berth.ContainerRunning {
		t.Fatalf("after it was taken over: %+v", got)
	}
	if out := b.sh(id,
		"cat file; touch stop; while [ ! -s counter ]; do sleep 0.01; done; cat counter"); out != "kept\nonce\n" {
		t.Errorf("the container has %q", out)
	}
	// The former server wakes up: it would end the idle container.
	a.pass(24 * time.Hour)
	a.settle()
	if got := b.get(id); got.Status != berth.ContainerRunning || b.driver.box(string(id)) == nil {
		t.Fatalf("after the former server returned: %+v", got)
	}
	_, _, err := a.k.access.Guest(t.Context(), berth.Caller{Project: mine}, id)
	if e, ok := errors.AsType[*cluster.ElsewhereError](err); !ok || e.Server != "b" {
		t.Errorf("a use on the former server: %v", err)
	}
	if out := b.sh(id, "cat counter"); out != "once\n" {
		t.Errorf("after all of it the container has %q", out)
	}
	for server, want := range map[string][]string{"a": {"container.created", "container.moved"},
		"b": {"container.created"}} {
		map[string]*harness{"a": a, "b": b}[server].opts.Audit.Settled()
		if got := auditEntries(t, audits[server], id); !slices.Equal(got, want) {
			t.Errorf("the audit record of %s: got %q, want %q", server, got, want)
		}
	}
}

// A paused server that another one removed forgets what was taken over when it returns.
func TestGiveUpMoved(t *testing.T) {
	a, b, _ := twoServers(t)
	id, other := a.ready(), a.ready()
	if err := b.k.TakeOver(t.Context(), only("b")); err != nil {
		t.Fatal(err)
	}
	if err := a.k.GiveUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	a.settle()
	if n := len(a.k.index.all()); n != 0 {
		t.Errorf("the former server has %d containers", n)
	}
	for _, id := range []berth.ContainerID{id, other} {
		if out := b.sh(id, "echo works"); out != "works\n" {
			t.Errorf("container %s: %q", id, out)
		}
	}
	// The other way round, and deleted by a server that does not know yet.
	if err := a.k.TakeOver(t.Context(), only("a")); err != nil {
		t.Fatal(err)
	}
	if s := b.k.index.lookup(mine, id); s != nil {
		b.k.deaths.end(s, reasonDeleted, berth.NotFound("Container", id), nil, nil)
	}
	if out := a.sh(id, "echo works"); out != "works\n" {
		t.Errorf("a container that its former server deleted: %q", out)
	}
	if out := a.sh(other, "echo works"); out != "works\n" {
		t.Errorf("a container that moved back: %q", out)
	}
	if got := a.get(other); got.Berth.Moves != 2 {
		t.Errorf("a container that moved back: %+v", got.Berth)
	}
}

// Sandboxes of a lost server that no container has are removed. A container whose sandbox is gone
// ends with a reason.
func TestTakeOverRest(t *testing.T) {
	a, b, _ := twoServers(t)
	id := a.ready()
	pooled := claimDriver{a.driver, a.opts.Driver.(claimDriver).claims, "a"}
	if err := pooled.Create(t.Context(), sandbox.Spec{ID: "cntr_unclaimed"}); err != nil {
		t.Fatal(err)
	}
	if err := a.driver.Destroy(t.Context(), string(id)); err != nil {
		t.Fatal(err)
	}
	if err := b.k.TakeOver(t.Context(), only("b")); err != nil {
		t.Fatal(err)
	}
	if got := b.get(id); got.Status != berth.ContainerExpired || got.Berth.Reason != reasonHost {
		t.Errorf("a container without a sandbox: %+v", got)
	}
	if a.driver.box("cntr_unclaimed") != nil {
		t.Error("a sandbox without a container remains")
	}
}

// A container from before the cluster, whose sandbox no server has, ends with a reason.
func TestBeforeCluster(t *testing.T) {
	a, b, _ := twoServers(t)
	id := a.ready()
	a.crash()
	if err := a.driver.Destroy(t.Context(), string(id)); err != nil {
		t.Fatal(err)
	}
	if _, err := a.store.UpdateContainer(t.Context(), mine, id, func(c *berth.Container) error {
		c.Berth.Server = ""
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	b.crash()
	b.start()
	if got := b.get(id); got.Status != berth.ContainerExpired || got.Berth.Reason != reasonHost {
		t.Errorf("got %+v", got)
	}
}

// A server that died after it took over a row claims the sandbox at its next start.
func TestTakeOverInterrupted(t *testing.T) {
	a, b, _ := twoServers(t)
	id := a.ready()
	a.crash()
	_, err := b.store.UpdateContainer(t.Context(), mine, id, func(c *berth.Container) error {
		c.Berth.Server, c.Berth.Moves = "b", 1
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	b.crash()
	b.start()
	if out := b.sh(id, "echo works"); out != "works\n" {
		t.Errorf("got %q", out)
	}
}

// A server does not resume the responses of a container before it has claimed the sandbox: their calls
// would seem interrupted.
func TestTakeOverResumes(t *testing.T) {
	a, b, _ := twoServers(t)
	id := a.ready()
	a.resumes(id, true)
	b.resumes(id, false)
	_, err := b.store.UpdateContainer(t.Context(), mine, id, func(c *berth.Container) error {
		c.Berth.Server, c.Berth.Moves = "b", 1
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	b.resumes(id, false)
	a.resumes(id, false) // it has not forgotten the container yet
	if err := b.k.TakeOver(t.Context(), only("b")); err != nil {
		t.Fatal(err)
	}
	b.resumes(id, true)
	a.resumes(id, false)
	if out := b.sh(id, "echo works"); out != "works\n" {
		t.Errorf("got %q", out)
	}
}

// A server that returns does not destroy the sandbox of a container that another one has taken over, and
// not claimed before it died.
func TestReturnBeforeClaim(t *testing.T) {
	a, b, audits := twoServers(t)
	id := a.ready()
	a.sh(id, "echo kept >file")
	a.opts.Audit.Settled()
	a.crash()
	_, err := b.store.UpdateContainer(t.Context(), mine, id, func(c *berth.Container) error {
		c.Berth.Server, c.Berth.Moves = "b", 1
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	b.crash()
	a.start()
	if a.driver.box(string(id)) == nil {
		t.Fatal("the server that returned destroyed the sandbox")
	}
	b.start()
	if out := b.sh(id, "cat file"); out != "kept\n" {
		t.Errorf("the container has %q", out)
	}
	if got, want := auditEntries(t, audits["a"], id), []string{"container.created",
		"container.moved"}; !slices.Equal(got, want) {
		t.Errorf("the audit record of the former server: got %q, want %q", got, want)
	}
}
