package container

import (
	"context"
	"errors"
	"fmt"
	"math"

	"golang.org/x/sync/errgroup"

	"github.com/berth-run/berth/store"
)

// End ends the containers of all projects with the reason "host", and removes all
// sandboxes. It is called in the place of Start; only Close may follow. It returns how many
// containers it has ended, and an error if anything is left of one.
func (k *Service) End(ctx context.Context) (ended int, err error) {
	recs, err := k.opts.Store.RunningContainers(ctx)
	if err != nil {
		return 0, fmt.Errorf("read containers: %w", err)
	}
	k.trail.recordMissed(recs)
	var g errgroup.Group
	g.SetLimit(sweepWidth)
	for _, rec := range recs {
		g.Go(func() error { return k.endOne(ctx, rec) })
	}
	if err := g.Wait(); err != nil {
		return 0, err
	}
	left, err := k.opts.Driver.List(ctx) // of pools, and of containers that are not in the store
	if err != nil {
		return len(recs), fmt.Errorf("list sandboxes: %w", err)
	}
	for _, id := range left {
		g.Go(func() error {
			ctx, cancel := context.WithTimeout(ctx, burialTime)
			defer cancel()
			if err := k.opts.Driver.Destroy(ctx, id); err != nil {
				return fmt.Errorf("destroy sandbox %s: %w", id, err)
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return len(recs), err
	}
	if left, err = k.opts.Driver.List(ctx); err == nil && len(left) > 0 {
		err = fmt.Errorf("%d sandboxes are left", len(left))
	}
	return len(recs), errors.Join(err, k.trail.recordLost(ctx, recs, left))
}

// endOne ends a container that a former process left as running.
func (k *Service) endOne(ctx context.Context, rec *store.Container) error {
	s := k.leases.newInstance(rec.Project, rec.Body)
	if err := k.index.register(s, math.MaxInt, -1); err != nil {
		return err
	}
	k.volumes.retain(s)
	close(s.started)
	if err := k.logs.recover(ctx, s, false); err != nil {
		k.opts.Log.Error("failed to log what ran in a container", "container", s.id, "err", err)
	}
	k.deaths.end(s, reasonHost, goneError(&s.body, reasonHost), nil, nil)
	if err := k.deaths.remove(s); err != nil {
		return fmt.Errorf("remove container %s: %w", s.id, err)
	}
	return nil
}
