// Package cluster makes a server one of several that share a store.
//
// Every server is a member: a row in the store with a lease that the server renews. A member
// whose lease has ended is silent: other servers resume its runs (package engine), because the
// leases of runs end as well. What a silent member alone can keep, its containers, waits for its
// return. A member that stays silent for Options.Silence is removed (RemoveSilent), and its
// containers end. A server that was only paused finds that it was removed when it next renews its
// lease, and gives up what others have ended (Options.Removed).
//
// There is no leader and no election. Work that one server must do for all is done by the holder
// of a lock (Singleton).
package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/berth-run/berth/internal/backoff"
	"github.com/berth-run/berth/store"
)

// ErrNoMember means that no member has an id: it never joined, or it was removed.
var ErrNoMember = errors.New("no such member")

// ErrTaken means that another server that is alive has the id of this one: one of the two has a copy
// of the other's state directory.
var ErrTaken = errors.New("another server has the id of this one")

// Options are the parts of a Cluster. All but Removed are required.
type Options struct {
	Store   store.Members
	Self    store.Member  // this server; its id must survive a restart
	Lease   time.Duration // of a member, and of a lock
	Silence time.Duration // after which a silent member is removed
	Log     *slog.Logger

	// Removed is called after this server has found that it was removed, and has joined again.
	// It must give up everything that other servers have ended. If it fails, it is
	// called again.
	Removed func(ctx context.Context) error
}

// A Cluster is the membership of one server. It is safe for concurrent use.
type Cluster struct {
	Options

	ctx  context.Context
	stop context.CancelFunc
	wg   sync.WaitGroup

	mu      sync.Mutex
	members map[string]store.Member // as last read
	read    time.Time               // when members was read

	removed bool // Removed has not succeeded since this server was removed; used by one goroutine
}

// Join makes this server a member and keeps it one until Close. If there is a member with its id at
// another address, Join waits until that one's lease ends, as that of a server that crashed and has
// moved. It returns ErrTaken if the lease is renewed.
func Join(ctx context.Context, o Options) (*Cluster, error) {
	if o.Removed == nil {
		o.Removed = func(context.Context) error { return nil }
	}
	c := &Cluster{Options: o}
	if err := c.awaitFormer(ctx); err != nil {
		return nil, fmt.Errorf("join the cluster: %w", err)
	}
	if err := o.Store.JoinMember(ctx, o.Self, o.Lease); err != nil {
		return nil, fmt.Errorf("join the cluster: %w", err)
	}
	if err := c.refresh(ctx); err != nil {
		return nil, err
	}
	c.ctx, c.stop = context.WithCancel(context.Background())
	c.wg.Go(c.renewals)
	return c, nil
}

// awaitFormer waits for the end of the lease of a member with this server's id at another address.
func (c *Cluster) awaitFormer(ctx context.Context) error {
	for until := time.Now().Add(2 * c.Lease); ; {
		list, err := c.Store.ListMembers(ctx)
		if err != nil {
			return fmt.Errorf("list members: %w", err)
		}
		former := slices.IndexFunc(list, func(m store.Member) bool {
			return m.ID == c.Self.ID && m.Alive() && m.Address != c.Self.Address
		})
		if former < 0 {
			return nil
		}
		if time.Now().After(until) {
			return fmt.Errorf(
				"%w: %s is alive at %s; give each server a state directory of its own, and never copy more than seal.key into it",
				ErrTaken, c.Self.ID, list[former].Address)
		}
		if err := backoff.Sleep(ctx, c.Lease/10); err != nil {
			return err
		}
	}
}

// Close ends the lease of this server, so that others continue its runs immediately. The server
// stays a member: its containers wait for its return until Options.Silence is over.
func (c *Cluster) Close(ctx context.Context) error {
	c.stop()
	c.wg.Wait()
	if err := c.Store.RenewMember(ctx, c.Self.ID, 0); err != nil && !errors.Is(err, store.ErrNotFound) {
		return fmt.Errorf("leave the cluster: %w", err)
	}
	return nil
}

// renewals renews the lease of this server until Close.
func (c *Cluster) renewals() {
	for backoff.Sleep(c.ctx, c.Lease/3) == nil {
		if err := c.renew(c.ctx); err != nil && c.ctx.Err() == nil {
			c.Log.Error("failed to renew the membership; will retry", "err", err)
		}
	}
}

// renew renews the lease of this server and reads the members.
func (c *Cluster) renew(ctx context.Context) error {
	err := c.Store.RenewMember(ctx, c.Self.ID, c.Lease)
	if errors.Is(err, store.ErrNotFound) {
		c.Log.Warn("another server has removed this one, which was silent for too long; giving up what was ended meanwhile")
		c.removed = true
		err = c.Store.JoinMember(ctx, c.Self, c.Lease)
	}
	if err != nil {
		return fmt.Errorf("renew lease: %w", err)
	}
	if c.removed {
		if err := c.Removed(ctx); err != nil {
			return fmt.Errorf("give up what was ended: %w", err)
		}
		c.removed = false
	}
	return c.refresh(ctx)
}

// refresh reads the members.
func (c *Cluster) refresh(ctx context.Context) error {
	list, err := c.Store.ListMembers(ctx)
	if err != nil {
		return fmt.Errorf("list members: %w", err)
	}
	members := make(map[string]store.Member, len(list))
	for _, m := range list {
		members[m.ID] = m
	}
	if own, ok := members[c.Self.ID]; ok && own.Address != c.Self.Address {
		c.Log.Error(
			"another server has joined with the id of this one; one of the two has a copy of the other's state directory",
			"server", own.ID, "address", own.Address)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.members, c.read = members, time.Now()
	return nil
}

// RemoveSilent removes the members that have been silent for Options.Silence. From then on they
// keep nothing. It returns their ids. One server at a time should call it.
func (c *Cluster) RemoveSilent(ctx context.Context) (removed []string, err error) {
	if err := c.refresh(ctx); err != nil {
		return nil, err
	}
	for _, m := range c.Members() {
		if m.ID == c.Self.ID || m.Silent < c.Silence {
			continue
		}
		err := c.Store.RemoveMember(ctx, m.ID, c.Silence)
		if errors.Is(err, store.ErrConflict) || errors.Is(err, store.ErrNotFound) {
			continue // it has returned, or another server was faster
		}
		if err != nil {
			return removed, fmt.Errorf("remove member %s: %w", m.ID, err)
		}
		c.Log.Warn("removed a server that has been silent for too long", "server", m.ID, "address", m.Address, "silent",
			m.Silent.Round(time.Second))
		removed = append(removed, m.ID)
	}
	if len(removed) == 0 {
		return nil, nil
	}
	return removed, c.refresh(ctx)
}

// Member returns a member, alive or silent. It returns ErrNoMember if there is none.
func (c *Cluster) Member(ctx context.Context, id string) (store.Member, error) {
	c.mu.Lock()
	m, ok := c.members[id]
	stale := time.Since(c.read) > c.Lease/3
	c.mu.Unlock()
	if ok && !stale {
		return m, nil
	}
	if err := c.refresh(ctx); err != nil {
		return store.Member{}, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if m, ok = c.members[id]; !ok {
		return m, ErrNoMember
	}
	return m, nil
}

// Members returns all members as last read.
func (c *Cluster) Members() []store.Member {
	c.mu.Lock()
	defer c.mu.Unlock()
	var list []store.Member
	for _, m := range c.members {
		list = append(list, m)
	}
	return list
}
