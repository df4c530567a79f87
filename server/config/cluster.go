package config

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"time"
)

// Cluster makes a server one of several that share a PostgreSQL database and a bucket.
type Cluster struct {
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

// Reachable returns what other servers connect to.
func (c Cluster) Reachable() string { return cmp.Or(c.Address, c.Listen) }

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
	host, port, err := net.SplitHostPort(k.Reachable())
	if ip := net.ParseIP(host); err != nil || host == "" || port == "" || port == "0" || ip != nil &&
		ip.IsUnspecified() {
		wrong = append(wrong,
			fmt.Errorf("cluster.address: %q is not an address that other servers can connect to; set it to host:port",
				k.Reachable()))
	}
	return errors.Join(wrong...)
}
