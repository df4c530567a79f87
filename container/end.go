package container

import (
	"context"
	"errors"
	"fmt"
	"math"

	"golang.org/x/sync/errgroup"

	"github.com/berth-run/berth/store"
)

// End ends the containers of all projects with the reason "host" and removes all sandboxes. It
// is called in place of Start; only Close may follow. It returns the number of ended
// containers, and an error if a sandbox remains.
func (svc *Service) End(ctx context.Context) (ended int, err error) {
	recs, err := svc.opts.Store.RunningContainers(ctx)
	if err != nil {
		return 0, fmt.Errorf("read containers: %w", err)
	}
	ids, err := svc.opts.Driver.List(ctx)
	if err != nil {
		return 0, fmt.Errorf("list sandboxes: %w", err)
	}
	here := make(map[string]bool, len(ids))
	for _, id := range ids {
		here[id] = true
	}
	recs = svc.own(recs, here)
	svc.trail.recordMissed(recs)
	var g errgroup.Group
	g.SetLimit(sweepWidth)
	for _, rec := range recs {
		g.Go(func() error { return svc.endOne(ctx, rec) })
	}
	if err := g.Wait(); err != nil {
		return 0, err
	}
	left, err := svc.opts.Driver.List(ctx) // includes sandboxes of pools and those without a container in the store
	if err != nil {
		return len(recs), fmt.Errorf("list sandboxes: %w", err)
	}
	for _, id := range left {
		g.Go(func() error {
			ctx, cancel := svc.opts.clock.WithTimeout(ctx, removeTimeout)
			defer cancel()
			if err := svc.opts.Driver.Destroy(ctx, id); err != nil {
				return fmt.Errorf("destroy sandbox %s: %w", id, err)
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return len(recs), err
	}
	if left, err = svc.opts.Driver.List(ctx); err == nil && len(left) > 0 {
		err = fmt.Errorf("%d sandboxes remain", len(left))
	}
	return len(recs), errors.Join(err, svc.trail.recordLost(ctx, recs, left))
}

// endOne ends a container that a former process left running.
func (svc *Service) endOne(ctx context.Context, rec *store.Container) error {
	s := svc.leases.newInstance(rec.Project, rec.Body)
	if err := svc.index.register(s, math.MaxInt, allowance{most: -1}); err != nil {
		return err
	}
	svc.volumes.retain(s)
	close(s.started)
	if err := svc.logs.recover(ctx, s, false); err != nil {
		svc.opts.Log.Error("failed to log what ran in a container", "container", s.id, "err", err)
	}
	svc.deaths.end(s, reasonHost, goneError(&s.body, reasonHost), nil, nil)
	if err := svc.deaths.remove(s); err != nil {
		return fmt.Errorf("remove container %s: %w", s.id, err)
	}
	return nil
}
