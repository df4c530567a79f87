package container

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/cluster"
	"github.com/berth-run/berth/sandbox"
	"github.com/berth-run/berth/store"
)

// Each container of a cluster belongs to one server: its row names it. Where sandboxes stay on the machine of the
// server that started them (bound), another server ends the containers of one that stays away (EndLost). With a driver
// whose sandboxes every server reaches (movable), another one takes them over (TakeOver). A server that returns forgets
// both (GiveUp).

// A placement tells which containers are this server's, from their rows.
type placement interface {
	// other returns the other server that has a container, or "".
	other(c *berth.Container) string

	// mine reports whether this server takes a running container up when it starts. exists reports
	// whether the server has its sandbox.
	mine(c *berth.Container, exists bool) bool

	// rename makes a container this server's, and reports whether that has changed it.
	rename(c *berth.Container) bool

	// movedTo returns the server that has taken a container over since it was as was, or "".
	movedTo(was, now *berth.Container) string

	// moves reports whether servers take containers over.
	moves() bool

	// claim makes a sandbox this server's, and reports whether there is one. exists is the answer
	// of a driver whose sandboxes do not move.
	claim(ctx context.Context, id string, epoch int64, exists bool) (bool, error)

	// claimed returns the servers of the sandboxes that can be claimed, by the ids of the sandboxes.
	claimed(ctx context.Context) (map[string]string, error)
}

func newPlacement(server string, driver sandbox.Driver) placement {
	claimer, moves := driver.(sandbox.Claimer)
	switch {
	case server == "":
		return solo{}
	case moves:
		return movable{bound{server}, claimer}
	}
	return bound{server}
}

// solo is the placement of a server without others: all containers are its own, whatever their rows say.
type solo struct{}

func (solo) other(*berth.Container) string                      { return "" }
func (solo) mine(*berth.Container, bool) bool                   { return true }
func (solo) rename(*berth.Container) bool                       { return false }
func (solo) movedTo(_, _ *berth.Container) string               { return "" }
func (solo) moves() bool                                        { return false }
func (solo) claimed(context.Context) (map[string]string, error) { return nil, nil }

func (solo) claim(_ context.Context, _ string, _ int64, exists bool) (bool, error) {
	return exists, nil
}

// bound is the placement of a server of a cluster whose sandboxes stay on their machines.
type bound struct{ server string }

func (b bound) other(c *berth.Container) string {
	if c.Berth.Server == b.server {
		return ""
	}
	return c.Berth.Server
}

// mine implements placement. A container without a server is from before the cluster, and belongs to the server that
// has its sandbox.
func (b bound) mine(c *berth.Container, exists bool) bool {
	return c.Berth.Server == b.server || c.Berth.Server == "" && exists
}

func (b bound) rename(c *berth.Container) bool {
	changed := c.Berth.Server != b.server
	c.Berth.Server = b.server
	return changed
}

// movedTo implements placement. Whoever takes a container over counts the move, so a server that has one back does not
// take its own former self for another.
func (b bound) movedTo(was, now *berth.Container) string {
	if now.Berth.Moves <= was.Berth.Moves {
		return ""
	}
	return b.other(now)
}

func (bound) moves() bool                                        { return false }
func (bound) claimed(context.Context) (map[string]string, error) { return nil, nil }

func (bound) claim(_ context.Context, _ string, _ int64, exists bool) (bool, error) {
	return exists, nil
}

// movable is the placement of a server of a cluster whose sandboxes every server reaches.
type movable struct {
	bound
	claimer sandbox.Claimer
}

// mine implements placement. No server has the sandbox of a container from before the cluster any more, so that it
// ends.
func (m movable) mine(c *berth.Container, _ bool) bool { return m.other(c) == "" }

func (movable) moves() bool { return true }

func (m movable) claim(ctx context.Context, id string, epoch int64, _ bool) (bool, error) {
	err := m.claimer.Claim(ctx, id, epoch)
	if errors.Is(err, sandbox.ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}

func (m movable) claimed(ctx context.Context) (map[string]string, error) {
	return m.claimer.Claimed(ctx)
}

// own returns the containers of this server. here has the sandboxes on it.
func (svc *Service) own(recs []*store.Container, here map[string]bool) []*store.Container {
	return slices.DeleteFunc(recs, func(rec *store.Container) bool {
		return !svc.opts.placement.mine(rec.Body, here[string(rec.Body.ID)])
	})
}

// Where returns where a container is, as seen from this server. A container that does not run is on no server. A
// server that has the sandbox may use it without a look at its row; what resumes its runs is decided by the row.
func (svc *Service) Where(ctx context.Context, p berth.ProjectID, id berth.ContainerID,
	aim cluster.Aim) (cluster.Place, error) {
	registered := svc.index.lookup(p, id) != nil
	if id == "" || aim == cluster.Use && registered {
		return cluster.Place{}, nil
	}
	rec, err := svc.opts.Store.GetContainer(ctx, p, id)
	if errors.Is(err, store.ErrNotFound) {
		return cluster.Place{}, nil
	}
	if err != nil {
		return cluster.Place{}, fmt.Errorf("read container: %w", err)
	}
	if rec.Body.Status != berth.ContainerRunning {
		return cluster.Place{}, nil
	}
	if server := svc.opts.placement.other(rec.Body); server != "" {
		return cluster.Place{Server: server}, nil
	}
	return cluster.Place{Taking: aim == cluster.Resume && svc.opts.placement.moves() && !registered}, nil
}
