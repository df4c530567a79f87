package container

import (
	"context"
	"errors"
	"fmt"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/audit"
	"github.com/berth-run/berth/store"
)

// A server that was only paused learns of the move from its next call of the driver or the guest, which fails, or when
// it would save the container's end. It then drops the instance and leaves the sandbox alone: deaths.claim marks the
// instance as moved.
//
// The states of a dying instance follow from its death: it is recorded once its end, or its move, is saved; before that
// save looks at the row, as another server may have taken the container over or ended it.

// save saves the end of a container if it is not saved yet.
func (d *deaths) save(ctx context.Context, s *instance) error {
	s.mu.Lock()
	reason, recorded, left, active := s.death.reason, s.death.recorded, s.expiry.snapshot,
		s.lastActiveLocked(d.opts.clock.Now()).Unix()
	s.mu.Unlock()
	if recorded {
		return nil
	}
	if server := s.successor(); server != "" {
		return d.saveMoved(ctx, s, server)
	}
	if err := d.networks.leaveGroup(ctx, s); err != nil {
		return fmt.Errorf("leave group: %w", err)
	}
	var err error
	if reason == reasonDeleted {
		if err = d.checkMoved(ctx, s); err == nil {
			err = d.opts.Store.DeleteContainer(ctx, s.project, s.id)
		}
	} else {
		_, err = d.opts.Store.UpdateContainer(ctx, s.project, s.id, func(c *berth.Container) error {
			if server := d.opts.placement.movedTo(&s.body, c); server != "" {
				return &movedError{server}
			}
			if c.Status != berth.ContainerRunning {
				return errUnchanged // another server has ended it, and its record is kept
			}
			c.Status, c.Berth.Starting, c.Berth.Reason, c.Berth.LastSnapshot = berth.ContainerExpired, false, reason,
				left
			c.Berth.Paused = false
			c.LastActiveAt = max(c.LastActiveAt, active)
			return nil
		})
	}
	if moved, ok := errors.AsType[*movedError](err); ok {
		return d.saveMoved(ctx, s, moved.server)
	}
	if err != nil && !errors.Is(err, errUnchanged) && !errors.Is(err, store.ErrNotFound) {
		return fmt.Errorf("save end: %w", err)
	}
	if err := d.networks.deleteSecrets(ctx, s); err != nil {
		return fmt.Errorf("delete secrets: %w", err)
	}
	if err := d.records.delete(ctx, s); err != nil {
		return fmt.Errorf("delete start record: %w", err)
	}
	if err := d.trail.recordEnded(ctx, s, reason, left); err != nil {
		return fmt.Errorf("audit end: %w", err)
	}
	s.mu.Lock()
	s.death.recorded = true
	s.mu.Unlock()
	if f := d.ended.Load(); f != nil {
		(*f)(s.project, s.id)
	}
	return nil
}

// A movedError means that another server has taken a container over.
type movedError struct{ server string }

func (e *movedError) Error() string { return "server " + e.server + " has taken the container over" }

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
	if !d.opts.placement.moves() || s.project == "" {
		return nil
	}
	rec, err := d.opts.Store.GetContainer(ctx, s.project, s.id)
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	if server := d.opts.placement.movedTo(&s.body, rec.Body); server != "" {
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

// successor returns the server that has taken the container over, as far as deaths.save has found.
func (s *instance) successor() string {
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
		if err == nil && rec.Body.Status == berth.ContainerRunning &&
			svc.opts.placement.movedTo(&s.body, rec.Body) == "" {
			continue
		}
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return fmt.Errorf("read container: %w", err)
		}
		svc.deaths.end(s, reasonHost, goneError(&s.body, reasonHost), nil, nil)
	}
	return nil
}
