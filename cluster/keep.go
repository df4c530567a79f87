package cluster

import (
	"context"
	"errors"
	"slices"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/internal/backoff"
	"github.com/berth-run/berth/store"
)

// errStarting means that the containers of this server are not started yet.
var errStarting = errors.New("the containers of this server are not started yet")

// noContainers are the containers of a server that has not started them.
type noContainers struct{}

func (noContainers) Where(context.Context, berth.ProjectID, berth.ContainerID, Aim) (Place, error) {
	return Place{}, errStarting
}
func (noContainers) Running(berth.ProjectID) int                       { return 0 }
func (noContainers) Moves() bool                                       { return false }
func (noContainers) TakeOver(context.Context, func(string) bool) error { return errStarting }
func (noContainers) EndLost(context.Context, func(string) bool) error  { return errStarting }
func (noContainers) GiveUp(context.Context) error                      { return nil }

// kept returns the containers of this server.
func (p *Peers) kept() Containers { return *p.containers.Load() }

// Running implements Node.
func (p *Peers) Running(project berth.ProjectID) int { return p.kept().Running(project) }

// Keep implements Node.
func (p *Peers) Keep(containers Containers) (stop func(context.Context) error) {
	p.containers.Store(&containers)
	if !containers.Moves() {
		return p.Singleton("members", func(ctx context.Context) { p.endLost(ctx, containers) })
	}
	stopRemoving := p.Singleton("members", p.removeLost)
	stopTaking := inBackground(func(ctx context.Context) { p.takeOver(ctx, containers) })
	return func(ctx context.Context) error {
		return errors.Join(stopTaking(ctx), stopRemoving(ctx))
	}
}

// isMember reports whether a server is a member, alive or silent. It assumes so if the store cannot be read.
func (p *Peers) isMember(ctx context.Context) func(server string) bool {
	return func(server string) bool {
		_, err := p.Member(ctx, server)
		return !errors.Is(err, ErrNoMember)
	}
}

// endLost removes servers that do not return, and ends their containers, until ctx ends.
func (p *Peers) endLost(ctx context.Context, containers Containers) {
	for again := true; ; { // a former holder may have died before it ended the containers
		removed, err := p.RemoveSilent(ctx)
		if again = again || len(removed) > 0; again && err == nil {
			err = containers.EndLost(ctx, p.isMember(ctx))
			again = err != nil
		}
		if err != nil && ctx.Err() == nil {
			p.Log.Error("failed to end what silent servers had; will retry", "err", err)
		}
		if backoff.Sleep(ctx, p.Lease/2) != nil {
			return
		}
	}
}

// removeLost removes servers whose leases have ended, until ctx ends.
func (p *Peers) removeLost(ctx context.Context) {
	for {
		if _, err := p.RemoveSilent(ctx); err != nil && ctx.Err() == nil {
			p.Log.Error("failed to remove silent servers; will retry", "err", err)
		}
		if backoff.Sleep(ctx, p.Lease/3) != nil {
			return
		}
	}
}

// takeOver takes the containers of removed servers over, until ctx ends.
func (p *Peers) takeOver(ctx context.Context, containers Containers) {
	var former []store.Member
	for again := true; ; { // a former server may have died before it took the containers over
		present := p.Members()
		if again = again || lost(former, present); again {
			err := containers.TakeOver(ctx, p.isMember(ctx))
			if again = err != nil; again && ctx.Err() == nil {
				p.Log.Error("failed to take over what lost servers had; will retry", "err", err)
			}
		}
		former = present
		if backoff.Sleep(ctx, p.Lease/3) != nil {
			return
		}
	}
}

// lost reports whether a former member is not present.
func lost(former, present []store.Member) bool {
	return slices.ContainsFunc(former, func(f store.Member) bool {
		return !slices.ContainsFunc(present, func(p store.Member) bool { return p.ID == f.ID })
	})
}
