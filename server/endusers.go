package server

import (
	"context"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/completions"
	"github.com/berth-run/berth/conversations"
	"github.com/berth-run/berth/enduser"
	"github.com/berth-run/berth/traces"
)

// newEndUsers returns the service of end users. newHandler sets its Removers.
func newEndUsers(b *base) *enduser.Service {
	c := b.Config.EndUsers
	return enduser.New(enduser.Options{Objects: b.db, Audit: b.audit, Held: b.holds.EndUser, Enabled: c.Enabled,
		Sources: enduser.Sources{User: c.User, Chat: c.Chat}, Computer: berth.EndUserComputer(c.Computer),
		IdleMinutes: int(c.Idle / time.Minute), Currency: b.Config.Currency, Log: b.Log,
		Limits: berth.EndUserLimits{Containers: c.Containers, CostPerMonth: (*berth.Amount)(c.CostPerMonth)}})
}

// continueDeletions continues the deletions of end users that an error or a crash stopped.
func continueDeletions(b *base) (stop func(context.Context) error) {
	first := b.cluster.Alone() // nobody else works on what a former process left
	return b.startOneWorker("end-users", 0, sweepInterval, func(ctx context.Context) {
		now := time.Now()
		if first {
			first, now = false, now.Add(enduser.DeletionLease)
		}
		if err := b.users.Sweep(ctx, now); err != nil && ctx.Err() == nil {
			b.Log.Error("failed to delete the data of end users; will retry", "err", err)
		}
	})
}

// setRemovers gives the service of end users what deletes their objects.
func setRemovers(b *base, data *blobs, r *engineParts, of remover) {
	b.users.Snapshots = data.snapshots.List
	b.users.Removers = enduser.Remove{Containers: of.Delete, Responses: responsesRemover{of}.Delete,
		Snapshots: data.snapshots.Delete, Files: data.files.Delete,
		Conversations: conversations.New(r.engine, b.db).Delete, Completions: completions.New(b.db).Delete,
		Traces: traces.New(b.db).Delete}.Removers()
}
