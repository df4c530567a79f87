package store

import (
	"context"
	"time"

	"github.com/berth-run/berth"
)

// A Member is a server that shares the store with others.
type Member struct {
	ID      string // its name on leases
	Address string // host:port at which the other servers reach it
	Version string

	// Silent is the time since its lease ended, by the store's clock. It is negative while
	// the member is alive.
	Silent time.Duration
}

// Alive reports whether the lease of the member had not ended when it was read.
func (m Member) Alive() bool { return m.Silent < 0 }

// Members lists the servers that share a store, and the locks that they hold. All its times are
// measured by the store's clock, so that the clocks of the servers need not agree. A store that
// several servers can use concurrently implements it beside Store.
type Members interface {
	// JoinMember adds a member, or replaces the one with its id, with a new lease.
	JoinMember(ctx context.Context, m Member, lease time.Duration) error

	// RenewMember renews the lease of a member. A lease of 0 ends immediately. It returns
	// ErrNotFound if the member was removed: then another server has ended what it kept.
	RenewMember(ctx context.Context, id string, lease time.Duration) error

	// ListMembers returns all members, by id.
	ListMembers(ctx context.Context) ([]Member, error)

	// RemoveMember removes a member whose lease ended at least silent ago, and ends its leases on
	// runs: if it was only paused, it can save nothing of them any more. It returns ErrConflict if
	// the lease ended later or has not ended, and ErrNotFound if there is no such member.
	RemoveMember(ctx context.Context, id string, silent time.Duration) error

	// RunOwner returns the owner of a run's lease, or "" if the lease has ended or was
	// released.
	RunOwner(ctx context.Context, p berth.ProjectID, id berth.ResponseID) (owner string, err error)

	// Lock acquires or renews a named lock. It returns ErrConflict if another owner's lease
	// on it has not ended.
	Lock(ctx context.Context, name, owner string, lease time.Duration) error

	// Unlock releases a lock if owner holds it.
	Unlock(ctx context.Context, name, owner string) error
}
