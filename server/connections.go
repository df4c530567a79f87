package server

import (
	"cmp"
	"fmt"
	"log/slog"
	"net"

	"github.com/berth-run/berth/internal/conns"
	"github.com/berth-run/berth/internal/nofile"
)

// ServerConfig limits the connections of clients. 0 is the default, which depends on how
// many files the process may have open.
type ServerConfig struct {
	Connections          int `yaml:"connections"`             // in all. Default: half of the files
	PerAddress           int `yaml:"per_address"`             // of one source address. Default: three quarters of these
	WithoutKey           int `yaml:"without_key"`             // that have not shown a valid key. Default: half of these
	WithoutKeyPerAddress int `yaml:"without_key_per_address"` // of one source address that have not. Default: a quarter of these
}

// limits returns the limits of connections.
func (c ServerConfig) limits() conns.Limits {
	l := conns.DefaultLimits(nofile.Limit())
	if c.Connections > 0 {
		l = conns.DefaultLimits(2 * c.Connections)
	}
	return conns.Limits{Total: l.Total, PerAddress: cmp.Or(c.PerAddress, l.PerAddress), WithoutKey: cmp.Or(c.WithoutKey, l.WithoutKey),
		WithoutKeyAddress: cmp.Or(c.WithoutKeyPerAddress, l.WithoutKeyAddress)}
}

func (c ServerConfig) check() error {
	if limit := nofile.Limit(); c.Connections > limit*3/4 {
		return fmt.Errorf("server.connections: %d is more than three quarters of the %d files that this process may have open; raise that (LimitNOFILE, ulimit -n)", c.Connections, limit)
	}
	return nil
}

// defaultEgress is how many connections all containers together may have.
func defaultEgress() int { return max(min(nofile.Limit()/4, 1<<15), 8) }

// bound returns a listener within the configuration's limits.
func (c ServerConfig) bound(l net.Listener, log *slog.Logger) *conns.Listener {
	return conns.Limit(l, c.limits(), log)
}

// fewFiles is how many files a server should be able to have open.
const fewFiles = 8192

// openFiles reports how many files a process may have open, and how many connections that
// allows.
func openFiles() Finding {
	n := nofile.Limit()
	l := conns.DefaultLimits(n)
	f := Finding{What: "open files", OK: true, Says: fmt.Sprintf("%d: %d connections of clients, %d of them without a key; %d of containers", n, l.Total, l.WithoutKey, defaultEgress())}
	if n < fewFiles {
		f.Advice = "few for many clients: set LimitNOFILE=65536 in the unit, or ulimit -n"
	}
	return f
}
