package config

import (
	"cmp"
	"fmt"

	"github.com/berth-run/berth/internal/nofile"
)

// Server configures the address of the API and the connections of its clients. A limit of 0
// selects the default, which depends on how many files the process may have open.
type Server struct {
	// address of the API; one that is not loopback needs an API key first. Default: 127.0.0.1:8080
	Listen string `yaml:"listen"`

	// AwaitKey makes a server without an API key start at any address and refuse every request until there is one.
	AwaitKey bool      `yaml:"await_key"`
	TLS      ServerTLS `yaml:"tls"`

	Connections int `yaml:"connections"` // in total. Default: half of the file limit
	// from one source address. Default: three quarters of connections
	PerAddress int `yaml:"per_address"`
	// without a valid key so far. Default: half of connections
	WithoutKey int `yaml:"without_key"`
	// from one source address without a valid key. Default: a quarter of connections
	WithoutKeyPerAddress int `yaml:"without_key_per_address"`
}

// NeedsKey reports whether the server must not start without an API key.
func (c Server) NeedsKey() bool { return !c.AwaitKey && !IsLoopback(c.Listen) }

// ConnectionLimits returns the limits of connections.
func (c Server) ConnectionLimits() nofile.Connections {
	l := nofile.DefaultConnections(nofile.Limit())
	if c.Connections > 0 {
		l = nofile.DefaultConnections(2 * c.Connections)
	}
	return nofile.Connections{Total: l.Total, PerAddress: cmp.Or(c.PerAddress, l.PerAddress),
		WithoutKey: cmp.Or(c.WithoutKey,
			l.WithoutKey),
		WithoutKeyAddress: cmp.Or(c.WithoutKeyPerAddress, l.WithoutKeyAddress)}
}

func (c Server) check() error {
	if limit := nofile.Limit(); c.Connections > limit*3/4 {
		return fmt.Errorf(
			"server.connections: %d is more than three quarters of the %d files that this process may open; raise the file limit (LimitNOFILE, ulimit -n)",
			c.Connections, limit)
	}
	return nil
}
