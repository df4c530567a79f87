package container

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/sandbox"
)

// A shelf is a set of templates that a test changes.
type shelf struct {
	mu      sync.Mutex
	digests map[string]string // by name
}

func (s *shelf) set(name, digest string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.digests[name] = digest
}

func (s *shelf) find(ref string) (Template, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if digest := s.digests[ref]; digest != "" {
		return Template{Template: sandbox.Template{Digest: digest, Path: "/templates/" + digest}}, nil
	}
	return Template{}, berth.Errorf(berth.CodeNotFound, "Template '%s' not found.", ref)
}

// Each pool serves the requests with its template and memory limit.
func TestPools(t *testing.T) {
	templates := &shelf{digests: map[string]string{"": "sha256:1", "python": "sha256:2"}}
	h := newHarness(t, func(o *Options) {
		o.Template = templates.find
		o.Pools = []PoolOptions{{Size: 1}, {Template: "python", Size: 2}, {MemoryLimit: "4g", Size: 1},
			{Template: "none", MemoryLimit: "16g"}}
	})
	if n := len(h.k.Pools()); n != 3 {
		t.Fatalf("got %d pools, want 3: one has size 0", n)
	}
	for i, c := range []struct {
		template, memory string
		pool             int // that served it; -1 means no pool
	}{
		{"", "", 0}, {"python", "", 1}, {"python", "1g", 1}, {"", "4g", 2}, {"python", "4g", -1}, {"", "16g", -1},
	} {
		var spare []string
		if c.pool >= 0 {
			spare = h.fullPool(c.pool)
		}
		got := h.create(CreateRequest{MemoryLimit: c.memory, Source: berth.ContainerSource{Template: c.template}})
		h.sh(got.ID, "true")
		spec := h.driver.box(string(got.ID)).spec
		if want := templates.digests[c.template]; spec.Template.Path != "/templates/"+want ||
			spec.Limits.Memory != berth.MemoryLimits[got.MemoryLimit] {
			t.Errorf("%d: got %s with %d", i, spec.Template.Path, spec.Limits.Memory)
		}
		if from := strings.Contains(strings.Join(spare, " "), string(got.ID)); from != (c.pool >= 0) {
			t.Errorf("%d: from a pool: %v, want %v", i, from, !from)
		}
	}
	for i, want := range []int64{1, 2, 1} {
		if got := h.k.Pools()[i]; got.Hits != want || got.Misses != 0 {
			t.Errorf("pool %d: got %+v, want %d hits", i, got, want)
		}
	}
}

// A pool grows to what a burst asked for, and no further than it may. It shrinks when no burst comes again, and when
// the machine needs its memory.
func TestPoolLearns(t *testing.T) {
	var available atomic.Int64
	available.Store(50)
	h := newHarness(t, func(o *Options) {
		o.Pools = []PoolOptions{{Size: 2, Most: 6}}
		o.Memory = func() (int64, int64) { return available.Load(), 100 }
	})
	h.full()
	var starts sync.RWMutex // held while nothing may start
	h.driver.mu.Lock()
	h.driver.fail = func(context.Context, string, string) error {
		starts.RLock()
		defer starts.RUnlock()
		return nil
	}
	h.driver.mu.Unlock()
	ready := func(n int) {
		t.Helper()
		p := h.k.pools.all[0]
		p.mu.Lock()
		defer p.mu.Unlock()
		for len(p.ready) != n {
			p.notify()
			p.changed.Wait()
		}
	}
	burst := func(n int) {
		t.Helper()
		starts.Lock()
		defer starts.Unlock()
		for range n {
			h.create(CreateRequest{})
		}
	}
	burst(4)
	ready(4)
	before := h.k.Pools()[0]
	burst(4)
	if after := h.k.Pools()[0]; after.Hits-before.Hits != 4 || after.Misses != before.Misses {
		t.Errorf("the second burst: got %+v after %+v, want 4 hits", after, before)
	}
	ready(4)
	burst(9)
	ready(6)

	available.Store(20) // less than a quarter: it grows no more, and keeps what it has
	h.k.pools.all[0].notify()
	h.create(CreateRequest{})
	if got := h.k.Pools()[0]; got.Target != 5 {
		t.Errorf("with little memory: got %+v, want a target of what is left", got)
	}
	available.Store(10)
	ready(2)
	available.Store(50)
	ready(6)
	h.pass(demandPeriod)
	ready(6)
	h.pass(demandPeriod)
	ready(2)
}

// A pool without knowledge of the machine's memory keeps its size.
func TestPoolOfUnknownMemory(t *testing.T) {
	h := newHarness(t, func(o *Options) { o.Pools = []PoolOptions{{Size: 1, Most: 9}} })
	h.full()
	for range 5 {
		h.create(CreateRequest{})
	}
	if got := h.k.Pools()[0]; got.Target != 1 {
		t.Errorf("got %+v, want a target of 1", got)
	}
}

// A pool is refilled when its template's digest changes, even without a request for a
// container. A template that is added later fills its pool.
func TestPoolsFollowTemplates(t *testing.T) {
	templates := &shelf{digests: map[string]string{"": "sha256:1"}}
	h := newHarness(t, func(o *Options) {
		o.Template = templates.find
		o.Pools = []PoolOptions{{Size: 1}, {Template: "later", Size: 1}}
	})
	old := h.fullPool(0)
	templates.set("", "sha256:3")
	templates.set("later", "sha256:4")
	h.pass(checkInterval)
	later := h.fullPool(1)
	if got := h.driver.box(later[0]).spec.Template.Path; got != "/templates/sha256:4" {
		t.Errorf("got %s", got)
	}
	for now := old; now[0] == old[0]; now = h.fullPool(0) {
	}
	if got := h.driver.box(h.fullPool(0)[0]).spec.Template.Path; got != "/templates/sha256:3" {
		t.Errorf("got %s", got)
	}
	h.driver.until(2)
}

// A pool that cannot be filled does not delay another.
func TestPoolsFailApart(t *testing.T) {
	h := newHarness(t)
	if err := h.k.Close(); err != nil {
		t.Fatal(err)
	}
	h.driver.fail = func(_ context.Context, op, id string) error {
		if box := h.driver.box(id); op == "start" && box != nil && box.spec.Limits.Memory == berth.MemoryLimits["4g"] {
			return errHost
		}
		return nil
	}
	h.opts.Pools = []PoolOptions{{MemoryLimit: "4g", Size: 1}, {Size: 2}}
	h.start()
	h.fullPool(1)
	if got := h.k.Pools()[0]; got.Ready != 0 {
		t.Errorf("got %+v", got)
	}
}

func TestPoolsAreChecked(t *testing.T) {
	h := newHarness(t)
	for want, pools := range map[string][]PoolOptions{
		"pool of 1 ":  {{Size: 1, MemoryLimit: "3g"}},
		"pool of -1 ": {{Size: -1}},
		"two pools":   {{Size: 1}, {Size: 2, MemoryLimit: "1g"}},
	} {
		opts := h.opts
		opts.Pools = pools
		if _, err := New(opts); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

// A template that a project may not use is refused in every request. The default template is
// always allowed, and default requests do not wait for the check.
func TestMayName(t *testing.T) {
	h := newHarness(t, func(o *Options) {
		o.MayName = func(_ context.Context, p berth.ProjectID, ref string) error {
			if p == mine && ref != "python" {
				return berth.Errorf(berth.CodeNotFound, "Template '%s' not found.", ref)
			}
			return nil
		}
	})
	other := berth.Caller{Project: "proj_other"}
	for _, c := range []struct {
		caller   berth.Caller
		template string
		want     berth.Code
	}{{byMe, "", ""}, {byMe, "python", ""}, {byMe, "gpu", berth.CodeNotFound}, {other, "gpu", ""}} {
		src := berth.ContainerSource{Template: c.template}
		if _, err := h.k.Create(t.Context(), c.caller, CreateRequest{Source: src}); berth.ErrorCode(err) != c.want &&
			(err != nil || c.want != "") {
			t.Errorf("%s creates on %q: got %v, want %q", c.caller.Project, c.template, err, c.want)
		}
		env := berth.ShellToolEnvironment{Type: berth.EnvironmentAuto, Berth: &src}
		if _, err := h.k.provider.Provide(t.Context(), c.caller, env, ""); berth.ErrorCode(err) != c.want &&
			(err != nil || c.want != "") {
			t.Errorf("%s is provided with %q: got %v, want %q", c.caller.Project, c.template, err, c.want)
		}
	}
}
