package container

import (
	"context"
	"errors"
	"fmt"
	"math"

	"golang.org/x/sync/errgroup"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/sandbox"
	"github.com/berth-run/berth/store"
)

// With a driver whose sandboxes every server of a cluster reaches (sandbox.Claimer), a container
// outlives its server: another one takes it over (TakeOver). The row comes first, in one conditional
// write that counts the move; the count is the epoch of the claim that follows. A server that dies
// in between leaves a container that its own next start, or another server, claims again.

// Moves reports whether the containers of a lost server can be taken over.
func (svc *Service) Moves() bool { return svc.opts.placement.moves() }

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
			svc.opts.placement.rename(c)
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
	return svc.claim(ctx, rec, false)
}

// movedAway returns the running containers of other servers, if sandboxes can be taken over. This server
// may still have a sandbox of one: a server that died after it took the container over, and before it claimed
// the sandbox. It or another server claims the sandbox later.
func (svc *Service) movedAway(recs []*store.Container) map[string]bool {
	moved := map[string]bool{}
	for _, rec := range recs {
		if svc.opts.placement.moves() && svc.opts.placement.other(rec.Body) != "" {
			moved[string(rec.Body.ID)] = true
		}
	}
	return moved
}

// claim claims the sandbox of a container of this server and registers the container, unless another
// server has taken the container over. exists reports whether this server has the sandbox.
func (svc *Service) claim(ctx context.Context, rec *store.Container, exists bool) error {
	exists, err := svc.opts.placement.claim(ctx, string(rec.Body.ID), rec.Body.Berth.Moves, exists)
	if errors.Is(err, sandbox.ErrClaimed) {
		svc.opts.Log.Info("another server has claimed a container", "container", rec.Body.ID, "err", err)
		return nil
	}
	if err != nil {
		return fmt.Errorf("claim sandbox: %w", err)
	}
	return svc.adopter.adopt(rec, exists)
}

// removeAbandoned destroys the sandboxes of servers that are not members, if no running container
// has them: those of pools, and of containers that ended.
func (svc *Service) removeAbandoned(ctx context.Context, member func(server string) bool) error {
	servers, err := svc.opts.placement.claimed(ctx)
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
		exists, err := svc.opts.placement.claim(ctx, id, math.MaxInt64-1, true)
		switch {
		case errors.Is(err, sandbox.ErrClaimed), err == nil && !exists:
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

// EndLost ends the containers whose servers are not members any more, with the reason "host".
// Their sandboxes are out of reach: their servers remove them if they return.
func (svc *Service) EndLost(ctx context.Context, member func(server string) bool) error {
	recs, err := svc.opts.Store.RunningContainers(ctx)
	if err != nil {
		return fmt.Errorf("read containers: %w", err)
	}
	var failed error
	for _, rec := range recs {
		server := svc.opts.placement.other(rec.Body)
		if server == "" || member(server) {
			continue
		}
		s := svc.leases.newInstance(rec.Project, rec.Body)
		svc.deaths.claim(s, reasonHost, nil, nil)
		err := svc.deaths.save(ctx, s)
		s.end(goneError(&s.body, reasonHost))
		s.client.Close()
		if err != nil {
			failed = errors.Join(failed, fmt.Errorf("end container %s: %w", s.id, err))
		}
	}
	return failed
}
