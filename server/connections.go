package server

import (
	"log/slog"
	"net"

	"github.com/berth-run/berth/internal/conns"
)

// bound wraps a listener with the configured limits.
func bound(c ServerConfig, l net.Listener, log *slog.Logger) *conns.Listener {
	return conns.Limit(l, c.limits(), log)
}
