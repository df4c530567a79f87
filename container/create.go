package container

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
)

// A creator creates the containers of plans.
type creator struct {
	opts     *Options
	work     *workers
	index    *index
	trail    *trail
	networks *networks
	records  *startRecords
	volumes  *volumes
	deaths   *deaths
	leases   *leases
	starter  *starter
	pools    *pools
}

// create saves the container of a plan and starts its sandbox in the background.
func (cr *creator) create(ctx context.Context, caller berth.Caller, pl *plan) (*instance, error) {
	p := caller.Project
	if err := cr.opts.Disk.Room(); err != nil {
		return nil, err
	}
	caller, err := cr.opts.admitSubject(ctx, caller)
	if err != nil {
		return nil, err
	}
	most, err := cr.opts.Quota(ctx, p)
	if err != nil {
		return nil, err
	}
	if err := cr.starter.stageSkills(ctx, p, pl); err != nil {
		return nil, err
	}
	s, err := cr.register(ctx, caller, pl, registration{most: most})
	if err != nil {
		cr.starter.discardSkills(p, pl)
	}
	return s, err
}

// A registration is how the container of a plan is registered.
type registration struct {
	most     int          // containers of the project; negative means no limit
	cold     bool         // no pool may give its sandbox
	reserved *reservation // nil for a container that is created immediately
}

// register registers the container of a plan, and saves and starts it unless it is reserved.
func (cr *creator) register(ctx context.Context, caller berth.Caller, pl *plan, how registration) (_ *instance,
	err error) {
	p, body := caller.Project, pl.body
	if err := setEndUser(body, caller); err != nil {
		return nil, err
	}
	var s *instance
	if !how.cold && !pl.withMemory() && len(body.Berth.Volumes) == 0 { // both must be known when the sandbox is created
		s = cr.pools.claim(body.Berth.Template, body.MemoryLimit)
	}
	if s == nil {
		s = cr.leases.newInstance(p, body)
	} else {
		body.ID = s.id
		s.assign(p, body)
	}
	s.requestID = caller.RequestID
	own := pl.network
	if own == nil {
		own, err = cr.networks.parse(body.ID, pl.policy, pl.transforms)
		if own == nil && err == nil {
			own = cr.networks.alone(body)
		}
	}
	s.network.Store(own)
	if how.reserved != nil {
		how.reserved.create = func(ctx context.Context, now time.Time) error {
			pl.requestedAt, pl.body.CreatedAt, pl.body.LastActiveAt = now, now.Unix(), now.Unix()
			return cr.save(ctx, s, pl, caller)
		}
		s.reserved = how.reserved
	}
	if err == nil {
		err = cr.admit(ctx, s, allowance{most: how.most, subject: caller.Subject})
	}
	if err != nil {
		s.reserved = nil
		cr.pools.unclaim(s)
		return nil, err
	}
	if err := cr.volumes.hold(ctx, s); err != nil {
		cr.index.unregister(s)
		return nil, err
	}
	if s.reserved != nil {
		return s, nil
	}
	if err := cr.save(ctx, s, pl, caller); err != nil {
		switch {
		case s.life.Err() != nil: // the server is stopping
		case s.pool != nil:
			cr.pools.discard(s)
		default:
			cr.index.unregister(s)
		}
		return nil, err
	}
	return s, nil
}

// reserve reserves a container that the first use creates.
func (cr *creator) reserve(ctx context.Context, caller berth.Caller, pl *plan, claims bool) error {
	if err := cr.opts.Disk.Room(); err != nil {
		return err
	}
	caller, err := cr.opts.admitSubject(ctx, caller)
	if err != nil {
		return err
	}
	most, err := cr.opts.Quota(ctx, caller.Project)
	if err != nil {
		return err
	}
	reserved := &reservation{promises: 1}
	s, err := cr.register(ctx, caller, pl, registration{most: most, cold: !claims, reserved: reserved})
	if err != nil {
		return err
	}
	s.touch(cr.opts.clock.Now())
	return nil
}

// admit registers the instance of a new container of a project within an allowance.
func (cr *creator) admit(ctx context.Context, s *instance, of allowance) error {
	register := func(most int) error {
		of.most = most
		return cr.index.register(s, cr.opts.Bounds.Containers, of)
	}
	if cr.opts.Shares == nil {
		return register(of.most)
	}
	if err := cr.opts.Shares.AdmitContainer(ctx, s.project, register); err != nil {
		return err
	}
	cr.opts.share(s)
	return nil
}

// save saves a registered container and starts its sandbox.
func (cr *creator) save(ctx context.Context, s *instance, pl *plan, caller berth.Caller) error {
	pl.cause = trace.SpanFromContext(ctx)
	ready := cr.starter.ready(ctx, s, pl)
	if pl.body.Berth.Starting = !ready; ready {
		pl.body.Berth.Start = pl.started(StartPool, cr.opts.clock.Now())
	}
	if err := cr.saveNew(ctx, s, pl, caller.Key); err != nil {
		if pl.body.Berth.EndUser != "" && errors.Is(err, store.ErrNotFound) {
			err = berth.Errorf(berth.CodeConflict, "The end user of the container was forgotten.")
		}
		// It may have been saved nevertheless, but its id is not known to the client.
		return errors.Join(err, ignoreNotFound(cr.opts.Store.DeleteContainer(context.WithoutCancel(ctx), s.project,
			s.id)))
	}
	cr.trail.recordCreated(s, caller.Key)
	if ready {
		cr.opts.Observer.Started(StartPool, cr.opts.clock.Since(pl.requestedAt))
		traceStart(s, pl, StartPool)
		close(s.started)
		return nil
	}
	if !cr.work.spawn(func() { cr.starter.launch(s, pl) }) {
		cr.deaths.end(s, reasonDeleted, errStopping, nil, nil) // the client does not get its id
		return errStopping
	}
	return nil
}

// saveNew saves a container with its start record and secrets in one write, so that a
// crash of the server loses no part of it. A container that has started needs no start record.
func (cr *creator) saveNew(ctx context.Context, s *instance, pl *plan, key berth.KeyID) error {
	var also []*store.Object
	if id := pl.body.Berth.EndUser; id != "" {
		// Without its parent, because the user was forgotten, the container is not created.
		also = append(also, store.EndUserLink(id, string(s.id), pl.body.CreatedAt))
	}
	if pl.body.Berth.Starting {
		start, err := cr.records.object(s, pl)
		if err != nil {
			return fmt.Errorf("encode start record: %w", err)
		}
		also = append(also, start)
	}
	secrets, err := cr.networks.secretsObject(s, s.network.Load())
	if err != nil {
		return fmt.Errorf("encode secrets: %w", err)
	}
	if secrets != nil {
		also = append(also, secrets)
	}
	rec := &store.Container{Project: s.project, Key: key, Body: pl.body}
	if err = cr.createNamed(ctx, rec, also); errors.Is(err, store.ErrExists) && pl.body.Berth.UniqueName {
		return cr.nameTaken(ctx, s.project, pl.body.Name, err)
	}
	return err
}

// createNamed saves a container with its place in its group.
func (cr *creator) createNamed(ctx context.Context, rec *store.Container, also []*store.Object) error {
	place, err := placeObject(rec.Body)
	if err != nil {
		return err
	}
	if place == nil {
		return cr.opts.Store.CreateContainer(ctx, rec, also...)
	}
	err = cr.opts.Store.CreateContainer(ctx, rec, append(slices.Clone(also), place)...)
	if !errors.Is(err, store.ErrExists) {
		return err
	}
	switch claimed := cr.networks.claimPlace(ctx, rec.Project, rec.Body); {
	case errors.Is(claimed, store.ErrNotFound):
		return err // the name of the container is taken
	case claimed != nil:
		return claimed
	}
	return cr.opts.Store.CreateContainer(ctx, rec, also...)
}

// nameTaken returns the client's error for a unique name that a running container has. cause is the
// store's error.
func (cr *creator) nameTaken(ctx context.Context, p berth.ProjectID, name string, cause error) error {
	page := store.Page{Limit: 100}
	for {
		named, more, err := cr.opts.Store.ListContainers(ctx, p, name, page)
		if err != nil {
			return fmt.Errorf("find the container with the name: %w", err)
		}
		for _, c := range named {
			if c.Body.Berth.UniqueName && c.Body.Status == berth.ContainerRunning {
				return &berth.Error{Code: berth.CodeConflict, Param: "name", Err: cause,
					Message: fmt.Sprintf(
						"The name '%s' is taken by container with id '%s'. Delete it, or choose another name.", name,
						c.Body.ID)}
			}
		}
		if !more || len(named) == 0 {
			return &berth.Error{Code: berth.CodeConflict, Param: "name", Err: cause,
				Message: fmt.Sprintf(
					"The name '%s' was taken by a container that has just ended. Send the request again.", name)}
		}
		page.After = string(named[len(named)-1].Body.ID)
	}
}
