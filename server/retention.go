package server

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/completions"
	"github.com/berth-run/berth/conversations"
	"github.com/berth-run/berth/internal/clock"
	"github.com/berth-run/berth/retention"
	"github.com/berth-run/berth/threads"
	"github.com/berth-run/berth/traces"
)

// guardHolds puts the guard of legal holds around the store.
func (b *base) guardHolds() {
	b.unguarded = b.db
	b.holds = &retention.Holds{Objects: b.db, Clock: clock.System}
	b.db = retention.NewGuard(b.db, b.holds)
}

// newRetention returns the service of retention. setSources sets what it deletes.
func newRetention(b *base) *retention.Service {
	b.holds.Audit = b.audit
	policies := map[berth.ProjectID]retention.Policy{"": policyOfRetention(b, "")}
	for id := range b.Config.Retention {
		if p := berth.ProjectID(id); p.Valid() == nil {
			policies[p] = policyOfRetention(b, p)
		}
	}
	return retention.New(retention.Options{Objects: b.db, Audit: b.audit, Holds: b.holds, Server: b.node,
		Policies: policies, Projects: b.projectIDs, Log: b.Log})
}

func policyOfRetention(b *base, p berth.ProjectID) retention.Policy {
	r := b.Config.Retention.Of(p)
	return retention.Policy{ExpireAfter: r.Lives(), Store: r.Store}
}

// setSources gives the service of retention what lists and deletes the objects of projects.
func setSources(b *base, data *blobs, r *engineParts, of remover, planned *threads.Service) {
	b.retention.Sources = retention.Sources(b.db, retention.Remove{Containers: of.Delete,
		Responses: responsesRemover{of}.Delete, Snapshots: data.snapshots.Delete, Files: data.files.Delete,
		Conversations: conversations.New(r.engine, b.db).Delete, Completions: completions.New(b.db).Delete,
		Threads: planned.DeleteThread, Traces: traces.New(b.db).Delete})
}

// startRetention ends what has reached its age: objects on one server of the cluster, and the audit record on each.
func (s *Server) startRetention(b *base) {
	s.later(b.startOneWorker("retention", 0, sweepInterval, func(ctx context.Context) {
		if err := b.retention.Sweep(ctx); err != nil && ctx.Err() == nil {
			b.Log.Error("failed to end objects that are too old; will retry", "err", err)
		}
	}))
	life := b.Config.Retention.Of("").Audit
	if life == 0 {
		return
	}
	s.later(startWorker(0, sweepInterval, func(ctx context.Context) {
		if err := s.trimRecord(ctx, b, life); err != nil && ctx.Err() == nil {
			b.Log.Error("failed to remove the oldest entries of the audit record; will retry", "err", err)
		}
	}))
}

// trimRecord removes the entries of the audit record that are too old and have reached all targets. A hold of any
// project retains the whole record.
func (s *Server) trimRecord(ctx context.Context, b *base, life time.Duration) error {
	projects, err := b.projectIDs(ctx)
	if err != nil {
		return err
	}
	for _, p := range projects {
		if err := b.holds.Any(ctx, p); retention.IsHeld(err) {
			return nil
		} else if err != nil {
			return err
		}
	}
	upTo := int64(math.MaxInt64)
	for _, f := range s.forwarded.all {
		upTo = min(upTo, f.Next())
	}
	_, err = b.audit.Trim(ctx, time.Now().Add(-life), upTo,
		fmt.Sprintf("server after %d seconds", int64(life/time.Second)))
	return err
}
