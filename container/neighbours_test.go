package container

import (
	"context"
	"errors"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/cluster"
	"github.com/berth-run/berth/egress"
)

func member(group, name string) CreateRequest {
	return CreateRequest{Name: "box", Source: berth.ContainerSource{Network: &berth.GroupNetwork{Group: group, Name: name}}}
}

// join makes a running container a member of a group. The guests of these tests cannot be connected to a network.
func (h *harness) join(id berth.ContainerID, group, name string) *instance {
	h.t.Helper()
	s := h.k.index.lookup(mine, id)
	rec, err := h.store.UpdateContainer(h.t.Context(), mine, id, func(c *berth.Container) error {
		c.Berth.Network = &berth.GroupNetwork{Group: group, Name: name}
		return nil
	})
	if err != nil {
		h.t.Fatal(err)
	}
	o, err := placeObject(rec.Body)
	if err != nil {
		h.t.Fatal(err)
	}
	if err := h.store.CreateObjects(h.t.Context(), mine, o); err != nil {
		h.t.Fatal(err)
	}
	s.body.Berth.Network = rec.Body.Berth.Network
	return s
}

// reach connects from a container to a neighbour, as its gate does.
func (h *harness) reach(from *instance, name string, port int) (net.Conn, error) {
	h.t.Helper()
	n, err := h.k.networks.neighbours.of(from)(h.t.Context(), name)
	if err != nil {
		return nil, err
	}
	conn, err := n.Dial(h.t.Context(), port)
	if err == nil {
		h.t.Cleanup(func() { conn.Close() })
	}
	return conn, err
}

func TestGroupNames(t *testing.T) {
	h := newHarness(t)
	long := strings.Repeat("d", 64)
	for _, c := range []struct{ group, name, container, param string }{
		{"task-7", "db", "box", ""}, {"task-7", "", "box", ""}, {"task_7", "DB", "box", ""},
		{"", "db", "box", "berth.network.group"}, {"Task", "db", "box", "berth.network.group"},
		{"a.b", "db", "box", "berth.network.group"}, {"a/b", "db", "box", "berth.network.group"},
		{"7", "db", "box", "berth.network.group"}, {long, "db", "box", "berth.network.group"},
		{"g", "localhost", "box", "berth.network.name"}, {"g", "db.example.com", "box", "berth.network.name"},
		{"g", "xn--db-fka", "box", "berth.network.name"}, {"g", "127", "box", "berth.network.name"},
		{"g", "d b", "box", "berth.network.name"}, {"g", "../db", "box", "berth.network.name"},
		{"g", long, "box", "berth.network.name"}, {"g", "db.", "box", "berth.network.name"},
		{"g", "", "my box", "berth.network.name"}, {"g", "", "localhost", "berth.network.name"},
	} {
		req := member(c.group, c.name)
		req.Name = c.container
		_, err := h.k.networks.groupOf(&req)
		if e, _ := errors.AsType[*berth.Error](err); (err == nil) != (c.param == "") || e != nil && e.Param != c.param {
			t.Errorf("%+v: got %v", c, err)
		}
	}
}

// A name in a group is one container's, until that ends. Other groups and other projects have names of their own.
func TestGroupNameTaken(t *testing.T) {
	h := newHarness(t)
	first := h.create(member("task-7", "db"))
	_, err := h.k.Create(t.Context(), byMe, member("task-7", "db"))
	if e, ok := errors.AsType[*berth.Error](err); !ok || e.Code != berth.CodeConflict ||
		e.Param != "berth.network.name" || !strings.Contains(e.Message, string(first.ID)) {
		t.Fatalf("a second one: got %v", err)
	}
	h.create(member("task-8", "db"))
	if _, err := h.k.Create(t.Context(), berth.Caller{Project: theirs}, member("task-7", "db")); err != nil {
		t.Errorf("another project: %v", err)
	}
	unique := member("task-7", "web")
	unique.Name, unique.UniqueName = "web", true
	h.create(unique)
	unique.Source.Network.Name = "other"
	if _, err := h.k.Create(t.Context(), byMe, unique); berth.ErrorCode(err) != berth.CodeConflict ||
		!strings.Contains(err.Error(), "name 'web'") {
		t.Errorf("a unique name that is taken: got %v", err)
	}
	if err := h.k.Delete(t.Context(), mine, first.ID); err != nil {
		t.Fatal(err)
	}
	second := h.create(member("task-7", "db"))
	// The end of a container whose server was killed is not always followed by the release of its name.
	if _, err := h.store.UpdateContainer(t.Context(), mine, second.ID, func(c *berth.Container) error {
		c.Status = berth.ContainerExpired
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	third := h.create(member("task-7", "db"))
	if err := h.k.networks.leaveGroup(t.Context(), h.k.index.lookup(mine, second.ID)); err != nil {
		t.Fatal(err)
	}
	if _, err := h.k.Create(t.Context(), byMe, member("task-7", "db")); berth.ErrorCode(err) != berth.CodeConflict {
		t.Errorf("%s lost its name to one that ended: %v", third.ID, err)
	}
}

func TestNeighbours(t *testing.T) {
	dir := t.TempDir()
	h := newHarness(t, sleeps, audited(t, dir))
	port := echoPort(t)
	a, b := h.join(h.ready(), "task-7", "app"), h.join(h.ready(), "task-7", "db")
	other, alone := h.join(h.ready(), "task-8", "app"), h.k.index.lookup(mine, h.ready())
	conn, err := h.reach(a, "db", port)
	if err != nil {
		t.Fatal(err)
	}
	echoes(t, conn)
	if conn, err = h.reach(a, "app", port); err != nil {
		t.Fatalf("a container does not reach itself by its name: %v", err)
	}
	if _, err := h.reach(a, "db", 1); berth.ErrorCode(err) != berth.CodeUpstream {
		t.Errorf("a closed port: got %v", err)
	}
	if _, err := h.reach(other, "db", port); !errors.Is(err, egress.ErrNoNeighbour) {
		t.Errorf("another group: got %v", err)
	}
	if h.k.networks.neighbours.of(alone) != nil {
		t.Error("a container without a group has neighbours")
	}
	for name, v := range map[string]cluster.Visit{
		"another project": {Project: theirs, Container: b.id, Group: "task-7", Port: port},
		"another group":   {Project: mine, Container: b.id, Group: "task-8", Port: port},
		"no group":        {Project: mine, Container: alone.id, Group: "", Port: port},
		"a port of none":  {Project: mine, Container: b.id, Group: "task-7", Port: 0},
		"unknown":         {Project: mine, Container: "cntr_0", Group: "task-7", Port: port},
	} {
		if conn, err := h.k.access.Visit(t.Context(), v); err == nil {
			conn.Close()
			t.Errorf("%s: a visit succeeded", name)
		}
	}
	conn.Close()
	h.pause(b.id)
	if _, err := h.reach(a, "db", port); err == nil || !strings.Contains(err.Error(), "paused") {
		t.Errorf("a paused neighbour: got %v", err)
	}
	if got := h.get(b.id); !got.Berth.Paused {
		t.Error("a neighbour resumed what a client paused")
	}
	if _, err := h.k.Resume(t.Context(), mine, b.id); err != nil {
		t.Fatal(err)
	}
	if err := h.k.Delete(t.Context(), mine, b.id); err != nil {
		t.Fatal(err)
	}
	if _, err := h.reach(a, "db", port); !errors.Is(err, egress.ErrNoNeighbour) {
		t.Errorf("a deleted neighbour: got %v", err)
	}
	h.k.opts.Audit.Close()
	if got := strings.Join(auditEntries(t, dir, b.id), ", "); !strings.Contains(got, "container.attached neighbour") {
		t.Errorf("the audit record of the neighbour has %s", got)
	}
}

// A connection wakes a neighbour that sleeps, and does not let it live longer: members live as long as one is used.
func TestGroupLife(t *testing.T) {
	h := newHarness(t, sleeps)
	port := echoPort(t)
	a, b := h.join(h.ready(), "task-7", "app"), h.join(h.ready(), "task-7", "db")
	h.sleep(b.id)
	conn, err := h.reach(a, "db", port)
	if err != nil {
		t.Fatal(err)
	}
	echoes(t, conn)
	for range 3 {
		h.pass(15 * time.Minute)
		if _, err := h.k.Get(t.Context(), mine, a.id); err != nil { // a use
			t.Fatal(err)
		}
		h.settle()
	}
	h.pass(time.Second)
	h.settle()
	if got := h.get(b.id); got.Status != berth.ContainerRunning {
		t.Fatalf("a member expired while another was used: %+v", got)
	}
	back, err := h.reach(b, "app", port)
	if err != nil {
		t.Fatal(err)
	}
	for range 30 {
		h.pass(time.Minute)
		for _, c := range []net.Conn{conn, back} {
			_, _ = c.Write([]byte("ping"))
		}
		h.settle()
	}
	h.pass(time.Second)
	h.settle()
	for _, s := range []*instance{a, b} {
		if got := h.get(s.id); got.Status != berth.ContainerExpired {
			t.Errorf("members that only call each other do not expire: %+v", got)
		}
	}
}

// A container that looks up and connects without end reads little of the store, and leaves its neighbour usable.
func TestNeighbourFlood(t *testing.T) {
	h := newHarness(t)
	port := echoPort(t)
	a, b := h.join(h.ready(), "task-7", "app"), h.join(h.ready(), "task-7", "db")
	find := h.k.networks.neighbours.of(a)
	refused := 0
	for i := range 1000 {
		if _, err := find(t.Context(), "n"+strconv.Itoa(i)); !errors.Is(err, egress.ErrNoNeighbour) {
			refused++
		}
	}
	if refused != 1000-lookupBurst {
		t.Errorf("%d of 1000 lookups were refused", refused)
	}
	h.pass(time.Hour / 60)
	n, err := find(t.Context(), "db")
	if err != nil {
		t.Fatal(err)
	}
	var open []net.Conn
	for range maxVisits {
		conn, err := n.Dial(t.Context(), port)
		if err != nil {
			t.Fatalf("after %d: %v", len(open), err)
		}
		open = append(open, conn)
	}
	if _, err := n.Dial(t.Context(), port); err == nil {
		t.Error("a neighbour has connections without limit")
	}
	if got := h.sh(b.id, "echo alive"); got != "alive\n" {
		t.Errorf("the neighbour: got %q", got)
	}
	for _, conn := range open {
		conn.Close()
		conn.Close()
	}
	if got := b.visits.Load(); got != 0 {
		t.Errorf("%d connections are counted after their end", got)
	}
}

// Members on several servers reach each other through the servers, and live as one group.
func TestNeighboursElsewhere(t *testing.T) {
	var b *harness
	a := newHarness(t, func(o *Options) {
		o.Server = "a"
		o.Network.Visit = func(ctx context.Context, server string, v cluster.Visit) (net.Conn, error) {
			if server != "b" {
				t.Errorf("a visit to %q", server)
			}
			return b.k.access.Visit(ctx, v)
		}
	})
	port := echoPort(t)
	b = &harness{t: t, driver: newDriver(t), store: a.store, now: a.time(), opts: a.opts}
	b.opts.Driver, b.opts.Server, b.opts.clock = b.driver, "b", heldClock{a.opts.clock, b.time}
	b.start()
	t.Cleanup(func() {
		b.k.Close()
		b.driver.stop()
	})
	app, db := a.join(a.ready(), "task-7", "app"), b.join(b.ready(), "task-7", "db")
	conn, err := a.reach(app, "db", port)
	if err != nil {
		t.Fatal(err)
	}
	echoes(t, conn)
	b.pause(db.id)
	if _, err := a.reach(app, "db", port); err == nil || !strings.Contains(err.Error(), "paused") {
		t.Errorf("a paused neighbour elsewhere: got %v", err)
	}
	a.pass(15 * time.Minute)
	if _, err := a.k.Get(t.Context(), mine, app.id); err != nil {
		t.Fatal(err)
	}
	a.pass(time.Second) // saves the use
	a.settle()
	b.pass(30 * time.Minute)
	b.settle()
	if got := b.get(db.id); got.Status != berth.ContainerRunning {
		t.Errorf("a member expired while one elsewhere was used: %+v", got)
	}
}
