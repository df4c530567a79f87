package main

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/berth-run/berth/internal/conns"
)

// metricsFiles is how many descriptors the metrics may take, half of them for connections.
const metricsFiles = 256

// serveMetrics serves the server's figures on an address of their own until the
// server is closed.
func (s *server) serveMetrics(listen string) error {
	l, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", s.metrics.Handler())
	hs := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: time.Minute,
		ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelDebug)}
	bounded := conns.Limit(l, conns.DefaultLimits(metricsFiles), s.log)
	bounded.Attach(hs)
	go func() { _ = hs.Serve(bounded) }()
	s.later(func(context.Context) error { return hs.Close() })
	s.log.Info("serving metrics", "url", "http://"+l.Addr().String()+"/metrics")
	return nil
}
