package container

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/cluster"
	"github.com/berth-run/berth/store"
)

// Sandboxes are on the machine of the server that started them, so each container of a cluster
// belongs to one server: its row names it. If that server stays away, another one ends the
// container (EndLost), or takes it over (move.go). When the server returns, it drops the containers
// that others have ended (GiveUp).

// Running returns the number of a project's containers on this server.
func (svc *Service) Running(p berth.ProjectID) int {
	svc.index.mu.Lock()
	defer svc.index.mu.Unlock()
	return svc.index.countLocked(p)
}

// share reports a registered instance to Options.Shares, and its end.
func (o *Options) share(s *instance) {
	if shares, p := o.Shares, s.project; shares != nil {
		shares.ContainersChanged(p)
		context.AfterFunc(s.life, func() { shares.ContainersChanged(p) })
	}
}

// own returns the containers of this server. In a cluster, one without a server is from before
// the cluster, and belongs to the server that has its sandbox. If sandboxes can be taken over, no
// server has it any more.
func (svc *Service) own(recs []*store.Container, here map[string]bool) []*store.Container {
	if svc.opts.Server == "" {
		return recs
	}
	return slices.DeleteFunc(recs, func(rec *store.Container) bool {
		if rec.Body.Berth.Server == "" {
			return !here[string(rec.Body.ID)] && svc.claimer() == nil
		}
		return svc.opts.elsewhere(rec)
	})
}

// Where returns where a container is, as seen from this server. A container that does not run is on no server.
func (svc *Service) Where(ctx context.Context, p berth.ProjectID, id berth.ContainerID,
	aim cluster.Aim) (cluster.Place, error) {
	registered := svc.index.lookup(p, id) != nil
	if svc.opts.Server == "" || id == "" || aim == cluster.Use && registered {
		return cluster.Place{}, nil
	}
	rec, err := svc.opts.Store.GetContainer(ctx, p, id)
	if errors.Is(err, store.ErrNotFound) {
		return cluster.Place{}, nil
	}
	if err != nil {
		return cluster.Place{}, fmt.Errorf("read container: %w", err)
	}
	switch {
	case rec.Body.Status != berth.ContainerRunning:
		return cluster.Place{}, nil
	case svc.opts.elsewhere(rec):
		return cluster.Place{Server: rec.Body.Berth.Server}, nil
	}
	// A container that this server is taking over cannot be used yet.
	return cluster.Place{Taking: aim == cluster.Resume && svc.claimer() != nil && !registered}, nil
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
		if !svc.opts.elsewhere(rec) || member(rec.Body.Berth.Server) {
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

// GiveUp ends the containers of this server that another one has ended, and removes their
// sandboxes. It forgets those that another one has taken over.
func (svc *Service) GiveUp(ctx context.Context) error {
	for _, s := range svc.index.all() {
		if s.project == "" {
			continue // of a pool
		}
		if r := s.reserved; r != nil && !r.created() {
			continue // no row names it yet; the response that has its id releases it
		}
		rec, err := svc.opts.Store.GetContainer(ctx, s.project, s.id)
		if err == nil && rec.Body.Status == berth.ContainerRunning && svc.deaths.movedTo(s, rec.Body) == "" {
			continue
		}
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return fmt.Errorf("read container: %w", err)
		}
		svc.deaths.end(s, reasonHost, goneError(&s.body, reasonHost), nil, nil)
	}
	return nil
}
