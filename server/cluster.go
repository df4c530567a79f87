package server

import (
	"context"
	"errors"
	"fmt"

	"github.com/berth-run/berth/cluster"
	"github.com/berth-run/berth/server/driver"
	"github.com/berth-run/berth/store"
)

// joinCluster makes the server a member, if the configuration says so.
func (s *Server) joinCluster(ctx context.Context, b *base) error {
	config := b.Config.Cluster
	b.cluster = cluster.Solo{}
	if config.Listen == "" {
		return nil
	}
	db, ok := b.disk.(store.Members)
	if !ok {
		return errors.New("cluster: the database cannot be shared")
	}
	silence := config.Absence
	if driver.Movable[b.Config.Driver] {
		silence = 0 // its containers need not wait
	}
	peers, err := cluster.Connect(ctx, b.keys.Current(), cluster.Options{Store: db,
		Self:  store.Member{ID: b.node, Address: config.Reachable(), Version: b.Build.Version},
		Lease: config.Lease, Silence: silence, Log: b.Log})
	if err != nil {
		return err
	}
	b.cluster = peers
	s.later(b.cluster.Close)
	return nil
}

// shareLimits makes the limits of projects hold for all servers of the cluster together.
func (s *Server) shareLimits(ctx context.Context, b *base) error {
	if b.cluster.Alone() {
		return nil
	}
	db, ok := b.disk.(store.Shares)
	if !ok {
		return errors.New("cluster: the database cannot divide limits")
	}
	until, stop := context.WithCancel(context.WithoutCancel(ctx))
	s.later(func(context.Context) error { stop(); return nil })
	if err := b.quota.Share(until, db, b.node, b.cluster.Running, b.Log); err != nil {
		return fmt.Errorf("cluster: %w", err)
	}
	b.cluster.OnRemoved(func(context.Context) error { b.quota.ForgetShares(); return nil })
	return nil
}
