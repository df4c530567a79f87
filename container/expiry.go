package container

import (
	"context"
	"errors"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/container/snapshot"
)

// A failed snapshot of an expiring container is retried.
const (
	snapshotAttempts = 3
	snapshotRetry    = time.Minute
)

// An expirer ends idle containers.
type expirer struct {
	opts      *Options
	work      *workers
	deaths    *deaths
	pauser    *pauser
	snapshots *Snapshots

	neighbours *neighbours
}

// expire ends a container, unless it was used after it was found idle.
func (ex *expirer) expire(ctx context.Context, s *instance) {
	ex.neighbours.used(ctx, s)
	if s.body.Berth.OnExpiry == berth.OnExpirySnapshot || ex.opts.Snapshots != nil && ex.held(s) {
		ex.expireToSnapshot(s)
		return
	}
	ex.deaths.end(s, reasonExpired, goneError(&s.body, reasonExpired), nil, func() bool {
		return s.idleLocked(ex.opts.clock.Now())
	})
}

// held reports whether the files of a container must not be deleted, also if that is not known now.
func (ex *expirer) held(s *instance) bool {
	if ex.opts.Held == nil {
		return false
	}
	ctx, cancel := ex.opts.clock.WithTimeout(s.life, statsTimeout)
	defer cancel()
	return ex.opts.held(ctx, s.project, s.id) != nil
}

// held returns an error for the client if a container must not be deleted.
func (o *Options) held(ctx context.Context, p berth.ProjectID, id berth.ContainerID) error {
	if o.Held == nil {
		return nil
	}
	return o.Held(ctx, p, string(id))
}

// expireToSnapshot makes a snapshot of an idle container in the background, and ends the
// container if it was not used during it. A failed snapshot is retried a few times.
func (ex *expirer) expireToSnapshot(s *instance) {
	if !s.expiry.running.CompareAndSwap(false, true) {
		return
	}
	spawned := ex.work.spawn(func() {
		defer s.expiry.running.Store(false)
		s.mu.Lock()
		since := s.usage.active
		if !since.Equal(s.expiry.tried) {
			s.expiry.tried, s.expiry.attempts = since, 0
		}
		s.mu.Unlock()
		expires := ex.opts.clock.Now().Add(ex.opts.Expiry.SnapshotLife).Unix()
		if err := ex.pauser.resume(s.life, s); err != nil {
			ex.snapshotFailed(s, err)
			return
		}
		made, err := ex.snapshots.make(s.life, s, &berth.Snapshot{Name: s.body.Name, Cause: berth.SnapshotExpired,
			ExpiresAt: &expires})
		if err != nil {
			ex.snapshotFailed(s, err)
			return
		}
		body := s.body
		body.Berth.LastSnapshot = made.ID
		ended := ex.deaths.end(s, reasonExpired, goneError(&body, reasonExpired), nil, func() bool {
			if !s.idleLocked(ex.opts.clock.Now()) || !s.usage.active.Equal(since) {
				return false
			}
			s.expiry.snapshot = made.ID
			return true
		})
		if ended {
			return
		}
		ex.snapshots.discard(s.project, made.ID)
	})
	if !spawned {
		s.expiry.running.Store(false)
	}
}

// snapshotFailed counts a failed attempt. After the last one the container expires.
func (ex *expirer) snapshotFailed(s *instance, err error) {
	if s.life.Err() != nil {
		return // it has ended for another reason
	}
	s.mu.Lock()
	// its files remain until the snapshot can be stored
	if berth.ErrorCode(err) != berth.CodeInsufficientStorage && !errors.Is(err, snapshot.ErrUnavailable) {
		s.expiry.attempts++
	}
	last := s.expiry.attempts >= snapshotAttempts
	if !last {
		s.usage.graceUntil = ex.opts.clock.Now().Add(snapshotRetry)
	}
	s.mu.Unlock()
	ex.opts.Log.Error("failed to make a snapshot of an expiring container", "container", s.id, "project", s.project,
		"retry", !last, "err", err)
	if last {
		ex.deaths.end(s, reasonExpired, goneError(&s.body, reasonExpired), err, func() bool {
			return s.idleLocked(ex.opts.clock.Now())
		})
	}
}
