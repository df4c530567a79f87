package server

import (
	"log/slog"
	"net"

	"github.com/berth-run/berth/internal/conns"
	"github.com/berth-run/berth/server/config"
)

// bound wraps a listener with the configured limits.
func bound(c config.Server, l net.Listener, log *slog.Logger) *conns.Listener {
	return conns.Limit(l, c.ConnectionLimits(), log)
}
