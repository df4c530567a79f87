package container

import (
	"context"
	"errors"
	"fmt"
	"math"

	"golang.org/x/sync/errgroup"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/audit"
	"github.com/berth-run/berth/sandbox"
	"github.com/berth-run/berth/store"
)

// With a driver whose sandboxes every server of a cluster reaches (sandbox.Claimer), a container
// outlives its server: another one takes it over (TakeOver). The row comes first, in one conditional
// write that counts the move; the count is the epoch of the claim that follows. A server that dies
// in between leaves a container that its own next start, or another server, claims again.
//
// A server that was only paused learns of the move from its next call of the driver or the guest, which fails, or when
// it would save the container's end. It then drops the instance and leaves the sandbox alone: deaths.claim marks the
// instance as moved.

// claimer returns the driver if sandboxes can be taken over, or nil.
func (svc *Service) claimer() sandbox.Claimer {
	if svc.opts.Server == "" {
		return nil
	}
	c, _ := svc.opts.Driver.(sandbox.Claimer)
	return c
}

// Moves reports whether the containers of a lost server can be taken over.
func (svc *Service) Moves() bool { return svc.claimer() != nil }

// TakeOver takes over the containers whose servers are not members any more, with their processes,
// and destroys the sandboxes of such servers without a container. Other servers may do the same at
// the same time: each container gets one server.
func (svc *Service) TakeOver(ctx context.Context, member func(server string) bool) error {
	recs, err := svc.opts.Store.RunningContainers(ctx)
	if err != nil {
		return fmt.Errorf("read containers: %w", err)
	}
	var g errgroup.Group
	g.SetLimit(sweepWidth)
	failures := make([]error, len(recs))
	for i, rec := range recs {
		server := rec.Body.Berth.Server
		// taken over, but not claimed
		ours := server == svc.opts.Server && svc.index.lookup(rec.Project, rec.Body.ID) == nil
		if server == "" || !ours && (server == svc.opts.Server || member(server)) {
			continue
		}
		g.Go(func() error {
			if err := svc.takeOver(ctx, rec); err != nil {
				failures[i] = fmt.Errorf("take over container %s: %w", rec.Body.ID, err)
			}
			return nil
		})
	}
	_ = g.Wait()
	return errors.Join(append(failures, svc.removeAbandoned(ctx, member))...)
}

// takeOver takes over a container, unless it has changed its server or ended since it was read.
func (svc *Service) takeOver(ctx context.Context, rec *store.Container) error {
	if svc.index.lookup(rec.Project, rec.Body.ID) != nil {
		return errors.New("this server has not forgotten it yet")
	}
	if was := rec.Body.Berth.Server; was != svc.opts.Server {
		now, err := svc.opts.Store.UpdateContainer(ctx, rec.Project, rec.Body.ID, func(c *berth.Container) error {
			if c.Status != berth.ContainerRunning || c.Berth.Server != was {
				return errUnchanged
			}
			c.Berth.Server = svc.opts.Server
			c.Berth.Moves++
			return nil
		})
		if errors.Is(err, errUnchanged) || errors.Is(err, store.ErrNotFound) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("save server: %w", err)
		}
		rec = now
		svc.opts.Log.Info("take over container", "container", rec.Body.ID, "project", rec.Project, "from", was)
	}
	svc.trail.recordMissed([]*store.Container{rec})
	return svc.claim(ctx, rec)
}

// movedAway returns the running containers of other servers, if sandboxes can be taken over. This server
// may still have a sandbox of one: a server that died after it took the container over, and before it claimed
// the sandbox. It or another server claims the sandbox later.
func (svc *Service) movedAway(recs []*store.Container) map[string]bool {
	moved := map[string]bool{}
	for _, rec := range recs {
		if svc.claimer() != nil && svc.opts.elsewhere(rec) {
			moved[string(rec.Body.ID)] = true
		}
	}
	return moved
}

// claim claims the sandbox of a container of this server and registers the container, unless another
// server has taken the container over.
func (svc *Service) claim(ctx context.Context, rec *store.Container) error {
	err := svc.claimer().Claim(ctx, string(rec.Body.ID), rec.Body.Berth.Moves)
	switch {
	case errors.Is(err, sandbox.ErrClaimed):
		svc.opts.Log.Info("another server has claimed a container", "container", rec.Body.ID, "err", err)
		return nil
	case err != nil && !errors.Is(err, sandbox.ErrNotFound):
		return fmt.Errorf("claim sandbox: %w", err)
	}
	return svc.adopter.adopt(rec, err == nil)
}

// removeAbandoned destroys the sandboxes of servers that are not members, if no running container
// has them: those of pools, and of containers that ended.
func (svc *Service) removeAbandoned(ctx context.Context, member func(server string) bool) error {
	servers, err := svc.claimer().Claimed(ctx)
	if err != nil {
		return fmt.Errorf("list sandboxes: %w", err)
	}
	recs, err := svc.opts.Store.RunningContainers(ctx)
	if err != nil {
		return fmt.Errorf("read containers: %w", err)
	}
	for _, rec := range recs {
		delete(servers, string(rec.Body.ID))
	}
	var failed error
	for id, server := range servers {
		if server == svc.opts.Server || member(server) {
			continue
		}
		switch err := svc.claimer().Claim(ctx, id, math.MaxInt64-1); {
		case errors.Is(err, sandbox.ErrClaimed), errors.Is(err, sandbox.ErrNotFound):
			continue
		case err != nil:
			failed = errors.Join(failed, fmt.Errorf("claim sandbox %s: %w", id, err))
			continue
		}
		svc.opts.Log.Info("destroy sandbox of a lost server", "sandbox", id, "server", server)
		if err := svc.opts.Driver.Destroy(ctx, id); err != nil {
			failed = errors.Join(failed, fmt.Errorf("destroy sandbox %s: %w", id, err))
		}
	}
	return failed
}

// A movedError means that another server has taken a container over.
type movedError struct{ server string }

func (e *movedError) Error() string { return "server " + e.server + " has taken the container over" }

// movedTo returns the server that has taken an instance's container over, or "".
func (d *deaths) movedTo(s *instance, now *berth.Container) string {
	if d.opts.Server == "" || now.Berth.Server == d.opts.Server || now.Berth.Moves <= s.body.Berth.Moves {
		return ""
	}
	return now.Berth.Server
}

// findMoved marks a dying instance as moved if another server has taken its container over.
func (d *deaths) findMoved(s *instance) bool {
	ctx, cancel := d.opts.clock.WithTimeout(context.Background(), statsTimeout)
	defer cancel()
	moved, ok := errors.AsType[*movedError](d.checkMoved(ctx, s)) // save checks it again
	if ok {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.death.moved = moved.server
	}
	return ok
}

// checkMoved returns a movedError if another server has taken a container over.
func (d *deaths) checkMoved(ctx context.Context, s *instance) error {
	if _, ok := d.opts.Driver.(sandbox.Claimer); !ok || d.opts.Server == "" || s.project == "" {
		return nil
	}
	rec, err := d.opts.Store.GetContainer(ctx, s.project, s.id)
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	if server := d.movedTo(s, rec.Body); server != "" {
		return &movedError{server}
	}
	return nil
}

// saveMoved records that a dying instance's container lives on another server.
func (d *deaths) saveMoved(ctx context.Context, s *instance, server string) error {
	if err := d.trail.recordMoved(ctx, s, server); err != nil {
		return fmt.Errorf("audit move: %w", err)
	}
	d.opts.Log.Info("another server has taken the container over", "container", s.id, "project", s.project, "server",
		server)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.death.moved, s.death.recorded = server, true
	return nil
}

// movedTo returns the server that has taken the container over, as far as deaths.save has found.
func (s *instance) movedTo() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.death.moved
}

// recordMoved records that another server has taken a container over. It returns when the entry is
// durable.
func (t *trail) recordMoved(ctx context.Context, s *instance, server string) error {
	e := s.entry(audit.ContainerMoved)
	e.Object = server
	t.opts.Audit.Record(s.flows.rest(s)...)
	return t.opts.Audit.Commit(ctx, e)
}
