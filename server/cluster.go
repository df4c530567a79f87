package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/berth-run/berth/cluster"
	"github.com/berth-run/berth/store"
)

// ClusterConfig makes a server one of several that share a PostgreSQL database and a bucket.
type ClusterConfig struct {
	// Listen is the address at which the other servers reach this one. Default: there are no
	// others.
	Listen string `yaml:"listen"`

	// Address is what the others connect to: host:port. Default: Listen, if its host is one.
	Address string `yaml:"address"`

	// Lease is how long a server may be silent before others continue its responses.
	// Default: 15s.
	Lease time.Duration `yaml:"lease"`

	// Absence is how long a silent server's containers wait for its return before they end.
	// Default: 5m.
	Absence time.Duration `yaml:"absence"`
}

// address returns what other servers connect to.
func (c ClusterConfig) address() string { return cmp.Or(c.Address, c.Listen) }

// checkCluster checks what a cluster needs.
func (c *Config) checkCluster() error {
	k := c.Cluster
	if k.Listen == "" {
		if k.Address != "" {
			return errors.New("cluster.address: it needs cluster.listen, such as 0.0.0.0:7443")
		}
		return nil
	}
	var wrong []error
	if c.Store.URL == "" {
		wrong = append(wrong,
			errors.New("cluster: servers share a database: set store to the URL of a PostgreSQL database"))
	}
	if c.Blobs == "" {
		wrong = append(wrong,
			errors.New("cluster: servers share files and snapshots: set blobs to the URL of a bucket"))
	}
	host, port, err := net.SplitHostPort(k.address())
	if ip := net.ParseIP(host); err != nil || host == "" || port == "" || port == "0" || ip != nil &&
		ip.IsUnspecified() {
		wrong = append(wrong,
			fmt.Errorf("cluster.address: %q is not an address that other servers can connect to; set it to host:port",
				k.address()))
	}
	return errors.Join(wrong...)
}

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
	if movable[b.Config.Driver] {
		silence = 0 // its containers need not wait
	}
	peers, err := cluster.Connect(ctx, b.key, cluster.Options{Store: db,
		Self:  store.Member{ID: b.node, Address: config.address(), Version: b.Build.Version},
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
