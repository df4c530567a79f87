package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/cluster"
	"github.com/berth-run/berth/store"
)

// errForOther means that another server is to resume a response.
var errForOther = errors.New("another server resumes the response")

// mayResume returns errForOther if the container of a response is on another server, or if this
// one is still taking it over. The server that has the container resumes the response, because
// only it can tell what became of the calls. If it does not return, its containers are ended or
// taken over, and another server resumes the response.
func (e *Engine) mayResume(ctx context.Context, rec *store.Response) error {
	if rec.Container == "" {
		return nil
	}
	place, err := e.Placement.Where(ctx, cluster.Object{Project: rec.Project, Container: rec.Container},
		cluster.Resume)
	if err != nil {
		return fmt.Errorf("locate container: %w", err)
	}
	if place.Server != "" || place.Taking {
		return errForOther
	}
	return nil
}

// heldElsewhere returns a cluster.ElsewhereError if another server holds the run of a response.
func (e *Engine) heldElsewhere(ctx context.Context, p berth.ProjectID, id berth.ResponseID) error {
	place, err := e.Placement.Where(ctx, cluster.Object{Project: p, Response: id}, cluster.Use)
	if err != nil {
		return fmt.Errorf("locate run: %w", err)
	}
	if place.Server != "" {
		return cluster.Elsewhere("Response '"+string(id)+"'", place.Server)
	}
	return nil
}

// renew renews the lease of a run. If other servers use the store, a lease that may have
// ended is lost: another server may have resumed the run since, and released it. As writes
// are refused unless this server has the lease, nothing of a lost run is stored.
func (e *Engine) renew(ctx context.Context, r *run) error {
	now := time.Now()
	if last := r.leased.Load(); !e.Placement.Alone() && last != nil && now.Sub(*last) > e.Limits.Lease {
		return store.ErrConflict
	}
	if err := e.Runs.RenewRun(ctx, r.record.Project, r.id(), e.lease()); err != nil {
		return err
	}
	r.leased.Store(&now)
	return nil
}

// renewalsAtOnce is how many leases are renewed at the same time.
const renewalsAtOnce = 64

// renewLeases renews the leases of all runs until the engine closes. A run that has lost
// its lease to another server stops without further events.
func (e *Engine) renewLeases() {
	tick := time.NewTicker(e.Limits.Lease / 3)
	defer tick.Stop()
	for {
		select {
		case <-e.base.Done():
			return
		case <-tick.C:
		}
		// Renewals at the same time share a commit. One after the other, those of a thousand
		// runs would take longer than a lease of a database that is not on this machine.
		var all sync.WaitGroup
		slots := make(chan struct{}, renewalsAtOnce)
		for _, r := range e.live.all() {
			slots <- struct{}{}
			all.Go(func() {
				defer func() { <-slots }()
				err := e.renew(e.base, r)
				if err != nil && lost(err) {
					r.cancel(errLeaseLost)
				} else if err != nil && e.base.Err() == nil {
					r.log().Error("failed to renew lease", "err", err)
				}
			})
		}
		all.Wait()
	}
}

// release releases the lease of a run, so that another server can resume it immediately.
func (e *Engine) release(ctx context.Context, r *run) {
	if err := e.Runs.ReleaseRun(ctx, r.record.Project, r.id(), e.Owner); err != nil {
		r.log().Error("failed to release lease", "err", err)
	}
}
