package container

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/cluster"
	"github.com/berth-run/berth/egress"
	"github.com/berth-run/berth/guest"
	"github.com/berth-run/berth/store"
)

// Containers of a project with the same group are neighbours. A connection from one to another goes from its guest to
// its gate, and from there to the guest of the other one, which may be on another server. The object that reserves a
// name in a group is the only index: it is created with the container.

const (
	maxGroup = 63 // characters of a group's name

	maxVisits = 256 // open connections of neighbours to a container; others need the guest, too

	// Each lookup of a neighbour reads the store, and a hostile sandbox can make many.
	lookupEvery = 20 * time.Millisecond
	lookupBurst = 200
	lookupLife  = time.Second // of an answer
	maxLookups  = 64          // remembered answers
)

// neighbours finds the containers of groups and connects them.
type neighbours struct {
	opts   *Options
	index  *index
	pauser *pauser
	trail  *trail
}

// A place is the content of the object that reserves a name in a group.
type place struct {
	Container berth.ContainerID `json:"container"`
}

// groupOf validates the group of a request, and returns the container's place in it. It is nil for no group.
func (ns *networks) groupOf(req *CreateRequest) (*berth.GroupNetwork, error) {
	want := req.Source.Network
	if want == nil {
		return nil, nil
	}
	if ns.opts.Driver.Features().Network {
		return nil, berth.Invalid("berth.network",
			"Containers of this server cannot have a private network: its driver does not isolate networks.")
	}
	group, ok := egress.CanonicalName(want.Group)
	if !ok || len(want.Group) > maxGroup || group != want.Group || strings.Contains(group, ".") {
		return nil, berth.Invalid("berth.network.group",
			"Invalid group: expected up to %d lower-case letters, digits, hyphens and underscores, the first a letter.",
			maxGroup)
	}
	out := &berth.GroupNetwork{Group: group}
	switch name, ok := egress.NeighbourName(want.Name); {
	case ok:
		out.Name = name
	case want.Name != "":
		return nil, berth.Invalid("berth.network.name", "Invalid name: '%.63s'. Expected one label of a host name, "+
			"of up to 63 letters, digits, hyphens and underscores, that starts with a letter and is not reserved.",
			want.Name)
	case req.Unnamed:
	default:
		if out.Name, ok = egress.NeighbourName(req.Name); !ok {
			return nil, berth.Invalid("berth.network.name",
				"The name of the container is not one that others can reach. Set 'berth.network.name' to one label of "+
					"a host name.")
		}
	}
	for i, port := range want.Ports {
		if port < 1 || port > 65535 {
			return nil, berth.Invalid(fmt.Sprintf("berth.network.ports[%d]", i), "Invalid port: %d.", port)
		}
	}
	out.Ports = slices.Compact(slices.Sorted(slices.Values(want.Ports)))
	return out, nil
}

// placeKey returns the key of a container's place in its group. A container without a name has one, too.
func placeKey(g *berth.GroupNetwork, id berth.ContainerID) store.ObjectKey {
	name := g.Name
	if name == "" {
		name = string(id)
	}
	return store.ObjectKey{Kind: store.KindNeighbour, ID: g.Group + "/" + name}
}

// placeObject returns the object that reserves a container's name in its group, or nil.
func placeObject(c *berth.Container) (*store.Object, error) {
	if c.Berth.Network == nil {
		return nil, nil
	}
	body, err := json.Marshal(place{c.ID})
	return &store.Object{ObjectKey: placeKey(c.Berth.Network, c.ID), CreatedAt: c.CreatedAt, Body: body}, err
}

// claimPlace takes the place of a container that does not run any more for c. It returns store.ErrNotFound if no
// container has it, and an error for the client if one does.
func (ns *networks) claimPlace(ctx context.Context, p berth.ProjectID, c *berth.Container) error {
	g := c.Berth.Network
	o, err := ns.opts.Store.GetObject(ctx, p, placeKey(g, c.ID))
	if err != nil {
		return err
	}
	holder, err := holderOf(o)
	if err != nil {
		return err
	}
	rec, err := ns.opts.Store.GetContainer(ctx, p, holder)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return err
	}
	taken := &berth.Error{Code: berth.CodeConflict, Param: "berth.network.name",
		Message: fmt.Sprintf("The name '%s' is taken in group '%s' by container with id '%s'. Delete it, or choose "+
			"another name.", g.Name, g.Group, holder)}
	if err == nil && rec.Body.Status == berth.ContainerRunning {
		return taken
	}
	_, err = ns.opts.Store.UpdateObject(ctx, p, o.ObjectKey, func(o *store.Object) error {
		if now, err := holderOf(o); err != nil || now != holder {
			return taken
		}
		body, err := json.Marshal(place{c.ID})
		o.Body = body
		return err
	})
	return err
}

func holderOf(o *store.Object) (berth.ContainerID, error) {
	var held place
	if err := json.Unmarshal(o.Body, &held); err != nil {
		return "", fmt.Errorf("decode the place of a container: %w", err)
	}
	return held.Container, nil
}

// leaveGroup gives up a container's place. It is called before the end of the container is saved: nobody else claims
// the place of a container that runs.
func (ns *networks) leaveGroup(ctx context.Context, s *instance) error {
	g := s.body.Berth.Network
	if g == nil {
		return nil
	}
	o, err := ns.opts.Store.GetObject(ctx, s.project, placeKey(g, s.id))
	if err != nil {
		return ignoreNotFound(err)
	}
	if holder, err := holderOf(o); err != nil || holder != s.id {
		return err
	}
	return ignoreNotFound(ns.opts.Store.DeleteObject(ctx, s.project, o.ObjectKey))
}

// A neighbourhood is what one container sees of its group.
type neighbourhood struct {
	*neighbours
	s     *instance
	often *rate.Limiter

	mu   sync.Mutex
	seen map[string]sighting
}

// A sighting is a recent answer about a name.
type sighting struct {
	at    time.Time
	id    berth.ContainerID // empty if no container has the name
	ports []int
}

// of returns how a container finds its neighbours by name, or nil if it is in no group.
func (nb *neighbours) of(s *instance) func(context.Context, string) (*egress.Neighbour, error) {
	if s.body.Berth.Network == nil {
		return nil
	}
	hood := &neighbourhood{neighbours: nb, s: s, often: rate.NewLimiter(rate.Every(lookupEvery), lookupBurst),
		seen: map[string]sighting{}}
	return hood.find
}

// find implements egress.Gate.Neighbours.
func (h *neighbourhood) find(ctx context.Context, name string) (*egress.Neighbour, error) {
	now := h.opts.clock.Now()
	h.mu.Lock()
	saw, known := h.seen[name]
	h.mu.Unlock()
	if !known || now.Sub(saw.at) >= lookupLife {
		if !h.often.AllowN(now, 1) {
			return nil, egress.Refusal("too many lookups of neighbours")
		}
		var err error
		if saw, err = h.look(ctx, name); err != nil {
			return nil, err
		}
		saw.at = now
		h.mu.Lock()
		if len(h.seen) >= maxLookups {
			clear(h.seen)
		}
		h.seen[name] = saw
		h.mu.Unlock()
	}
	if saw.id == "" {
		return nil, egress.ErrNoNeighbour
	}
	return &egress.Neighbour{ID: string(saw.id), Ports: saw.ports,
		Dial: func(ctx context.Context, port int) (net.Conn, error) { return h.dial(ctx, saw.id, port) }}, nil
}

// look reads who has a name in the group.
func (h *neighbourhood) look(ctx context.Context, name string) (sighting, error) {
	p, group := h.s.project, h.s.body.Berth.Network.Group
	o, err := h.opts.Store.GetObject(ctx, p, placeKey(&berth.GroupNetwork{Group: group, Name: name}, ""))
	if err != nil {
		return sighting{}, ignoreNotFound(err)
	}
	id, err := holderOf(o)
	if err != nil {
		return sighting{}, err
	}
	rec, err := h.opts.Store.GetContainer(ctx, p, id)
	if err != nil {
		return sighting{}, ignoreNotFound(err)
	}
	g := rec.Body.Berth.Network
	if rec.Body.Status != berth.ContainerRunning || g == nil || g.Group != group || g.Name != name {
		return sighting{}, nil
	}
	return sighting{id: id, ports: g.Ports}, nil
}

// dial connects to a port of a neighbour, here or on another server.
func (h *neighbourhood) dial(ctx context.Context, id berth.ContainerID, port int) (net.Conn, error) {
	v := cluster.Visit{Project: h.s.project, From: h.s.id, Container: id, Group: h.s.body.Berth.Network.Group,
		Port: port}
	conn, err := h.visit(ctx, v)
	if e, ok := errors.AsType[*cluster.ElsewhereError](err); ok && h.opts.Network.Visit != nil {
		conn, err = h.opts.Network.Visit(ctx, e.Server, v)
	}
	if e, ok := errors.AsType[*berth.Error](err); ok && e.Code == berth.CodeConflict {
		return nil, egress.Refusal(e.Message)
	}
	return conn, err
}

// Visit connects a container to a port of another one of its group, which this server has. An error with CodeConflict
// names the rule that forbids it.
func (a *Access) Visit(ctx context.Context, v cluster.Visit) (net.Conn, error) {
	return a.neighbours.visit(ctx, v)
}

// visit is Visit. A container that sleeps wakes; one that a client paused stays paused.
func (nb *neighbours) visit(ctx context.Context, v cluster.Visit) (net.Conn, error) {
	s := nb.index.lookup(v.Project, v.Container)
	if s == nil {
		rec, err := nb.opts.container(ctx, v.Project, v.Container)
		if err != nil {
			return nil, err
		}
		if server := nb.opts.placement.other(rec.Body); server != "" {
			return nil, cluster.Elsewhere("The neighbour", server)
		}
		return nil, berth.Errorf(berth.CodeUnavailable, "The neighbour is not managed by this server.")
	}
	if g := s.body.Berth.Network; g == nil || g.Group != v.Group {
		return nil, berth.Errorf(berth.CodeConflict, "the container is not in the group")
	}
	ctx, stop := s.withGuest(ctx)
	defer stop()
	ctx, cancel := nb.opts.clock.WithTimeout(ctx, dialTimeout)
	defer cancel()
	if err := s.waitStarted(ctx); err != nil {
		return nil, err
	}
	if err := s.waitCheckpoint(ctx); err != nil {
		return nil, err
	}
	if s.isPaused() && !s.quiet.asleep.Load() {
		return nil, berth.Errorf(berth.CodeConflict, "the neighbour is paused; its next use by a client resumes it")
	}
	if s.visits.Add(1) > maxVisits {
		s.visits.Add(-1)
		return nil, berth.Errorf(berth.CodeConflict, "the neighbour has too many connections")
	}
	conn, err := s.client.DialPort(ctx, v.Port)
	if err != nil {
		s.visits.Add(-1)
		if errors.Is(err, guest.ErrPortClosed) {
			return nil, berth.Errorf(berth.CodeUpstream, "Nothing listens on the port of the neighbour.")
		}
		return nil, fmt.Errorf("connect to a neighbour: %w", err)
	}
	nb.trail.recordVisit(s, v.From)
	return &visitConn{Conn: conn, left: sync.OnceFunc(func() { s.visits.Add(-1) })}, nil
}

// A visitConn is counted until it is closed.
type visitConn struct {
	net.Conn
	left func()
}

// Close implements net.Conn.
func (c *visitConn) Close() error {
	c.left()
	return c.Conn.Close()
}

// CloseWrite ends one direction.
func (c *visitConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return c.Conn.Close()
}

// used makes an idle container as active as the member of its group that was used last, so that a group expires as a
// whole. Connections among members do not count, or two that call each other would never expire.
func (nb *neighbours) used(ctx context.Context, s *instance) {
	g := s.body.Berth.Network
	if g == nil {
		return
	}
	now, latest := nb.opts.clock.Now(), time.Time{}
	for _, other := range nb.index.all() {
		if o := other.body.Berth.Network; other.project == s.project && o != nil && o.Group == g.Group {
			if at := other.lastActive(now); at.After(latest) {
				latest = at
			}
		}
	}
	if at, err := nb.usedElsewhere(ctx, s.project, g.Group); err != nil {
		nb.opts.Log.Warn("failed to read when the group of a container was used; it expires by itself", "container",
			s.id, "err", err)
	} else if at.After(latest) {
		latest = at
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if latest.After(s.usage.active) {
		s.usage.active = latest
	}
}

// usedElsewhere returns when the members of a group on other servers were last used, as the store has it.
func (nb *neighbours) usedElsewhere(ctx context.Context, p berth.ProjectID, group string) (latest time.Time,
	err error) {
	if nb.opts.Server == "" {
		return latest, nil
	}
	page := store.Page{Limit: 100}
	for {
		places, more, err := nb.opts.Store.ListObjects(ctx, p, store.KindNeighbour, "", page)
		if err != nil {
			return latest, err
		}
		for _, o := range places {
			page.After = o.ID
			if !strings.HasPrefix(o.ID, group+"/") {
				continue
			}
			id, err := holderOf(o)
			if err != nil || nb.index.lookup(p, id) != nil {
				continue
			}
			rec, err := nb.opts.Store.GetContainer(ctx, p, id)
			if errors.Is(err, store.ErrNotFound) {
				continue
			}
			if err != nil {
				return latest, err
			}
			at := time.Unix(rec.Body.LastActiveAt, 0)
			if rec.Body.Status == berth.ContainerRunning && at.After(latest) {
				latest = at
			}
		}
		if !more || len(places) == 0 {
			return latest, nil
		}
	}
}
