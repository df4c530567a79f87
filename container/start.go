package container

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/berth-run/berth/store"
)

// respite is how long a container lives at least after its server has started:
// time for a run that was interrupted to take it up again.
const respite = time.Minute

// Start takes over what a former process left: containers whose sandboxes live go
// on, with all that runs in them; those that were still being started are started
// again; those whose sandboxes are dead or missing end with the reason; sandboxes
// that are no container's are destroyed. Then idle containers expire from now on.
func (k *Service) Start(ctx context.Context) error {
	recs, err := k.opts.Store.RunningContainers(ctx)
	if err != nil {
		return fmt.Errorf("sandbox: reading containers: %w", err)
	}
	ids, err := k.opts.Driver.List(ctx)
	if err != nil {
		return fmt.Errorf("sandbox: listing sandboxes: %w", err)
	}
	unowned := make(map[string]bool, len(ids))
	for _, id := range ids {
		unowned[id] = true
	}
	k.trail.recordMissed(recs)
	var g errgroup.Group
	g.SetLimit(sweepWidth)
	for _, rec := range recs {
		exists := unowned[string(rec.Body.ID)]
		delete(unowned, string(rec.Body.ID))
		g.Go(func() error { return k.adopt(rec, exists) })
	}
	err = g.Wait()
	for id := range unowned {
		g.Go(func() error {
			ctx, cancel := context.WithTimeout(ctx, burialTime)
			defer cancel()
			k.opts.Log.Info("sandbox without a container destroyed", "sandbox", id)
			if err := k.opts.Driver.Destroy(ctx, id); err != nil {
				k.opts.Log.Error("a sandbox without a container was not destroyed", "sandbox", id, "err", err)
			}
			return nil
		})
	}
	if err := errors.Join(err, g.Wait()); err != nil {
		return err
	}
	left, err := k.opts.Driver.List(ctx)
	if err != nil {
		return fmt.Errorf("sandbox: listing sandboxes: %w", err)
	}
	if err := k.trail.recordLost(ctx, recs, left); err != nil {
		return fmt.Errorf("sandbox: the audit record: %w", err)
	}
	if !k.work.spawn(k.sweeper.run) {
		return errStopping
	}
	for _, p := range k.pools.all {
		if !k.work.spawn(p.run) {
			return errStopping
		}
	}
	return nil
}

// adopt takes a container that a former process left as running into the books.
func (k *Service) adopt(rec *store.Container, exists bool) error {
	s := k.leases.newInstance(rec.Project, rec.Body)
	s.usage.graceUntil = k.opts.now().Add(respite)
	ctx, cancel := context.WithTimeout(context.Background(), burialTime)
	defer cancel()
	unconnected := k.networks.load(ctx, s)
	if err := k.index.register(s, math.MaxInt, -1); err != nil {
		return err
	}
	k.volumes.retain(s)
	start, err := k.records.load(ctx, s)
	switch damaged := errors.Is(err, errStartRecord); {
	case damaged && rec.Body.Berth.Starting:
		k.starter.fail(s, &plan{}, err)
		return nil
	case err != nil && !damaged:
		return err
	}
	if start != nil && (rec.Body.Berth.Starting || start.Memory && exists) {
		if unconnected != nil {
			unconnected = stepError{"it could not be given its network", unconnected}
		}
		return k.starter.startAgain(ctx, s, start, unconnected)
	}
	close(s.started)
	lives := exists && !rec.Body.Berth.Starting
	if err := k.logs.recover(ctx, s, lives); err != nil {
		k.opts.Log.Error("what ran in a container when the server ended was not logged", "container", s.id, "err", err)
	}
	if !lives {
		k.deaths.end(s, reasonHost, goneError(&s.body, reasonHost), nil, nil)
		return nil
	}
	if unconnected != nil {
		// It goes on without a way out rather than end with the work in it.
		k.opts.Log.Error("a container has lost its network", "container", s.id, "err", unconnected)
		s.network = nil
	}
	k.deaths.check(s)
	go func() { _ = k.networks.connect(s.life, s) }()
	return nil
}
