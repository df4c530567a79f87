package container

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"
)

// Start takes over the containers of a former process. Containers whose sandboxes are alive
// continue, with all processes in them. Interrupted starts are repeated. Containers whose
// sandboxes are dead or missing end with a reason. Sandboxes without a container are destroyed.
// From then on idle containers expire.
func (svc *Service) Start(ctx context.Context) error {
	recs, err := svc.opts.Store.RunningContainers(ctx)
	if err != nil {
		return fmt.Errorf("container: read containers: %w", err)
	}
	ids, err := svc.opts.Driver.List(ctx)
	if err != nil {
		return fmt.Errorf("container: list sandboxes: %w", err)
	}
	unowned := make(map[string]bool, len(ids))
	for _, id := range ids {
		unowned[id] = true
	}
	moved := svc.movedAway(recs)
	for id := range moved {
		delete(unowned, id)
	}
	recs = svc.own(recs, unowned)
	svc.trail.recordMissed(recs)
	var g errgroup.Group
	g.SetLimit(sweepWidth)
	for _, rec := range recs {
		exists := unowned[string(rec.Body.ID)]
		delete(unowned, string(rec.Body.ID))
		g.Go(func() error {
			return svc.claim(ctx, rec, exists) // a former process may not have claimed what it took over
		})
	}
	err = g.Wait()
	for id := range unowned {
		g.Go(func() error {
			ctx, cancel := svc.opts.clock.WithTimeout(ctx, removeTimeout)
			defer cancel()
			svc.opts.Log.Info("destroy sandbox without a container", "sandbox", id)
			if err := svc.opts.Driver.Destroy(ctx, id); err != nil {
				svc.opts.Log.Error("failed to destroy a sandbox without a container", "sandbox", id, "err", err)
			}
			return nil
		})
	}
	if err := errors.Join(err, g.Wait()); err != nil {
		return err
	}
	left, err := svc.opts.Driver.List(ctx)
	if err != nil {
		return fmt.Errorf("container: list sandboxes: %w", err)
	}
	left = slices.DeleteFunc(left, func(id string) bool { return moved[id] })
	if err := svc.trail.recordLost(ctx, recs, left); err != nil {
		return fmt.Errorf("container: complete the audit log: %w", err)
	}
	if !svc.work.loop(svc.sweeper.run) {
		return errStopping
	}
	for _, p := range svc.pools.all {
		if !svc.work.loop(p.run) {
			return errStopping
		}
	}
	return nil
}
