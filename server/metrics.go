package server

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/berth-run/berth/api/exchange"
	"github.com/berth-run/berth/internal/conns"
	"github.com/berth-run/berth/internal/nofile"
	"github.com/berth-run/berth/server/config"
)

// metricsFiles bounds the file descriptors of the metrics server, half of them for connections.
const metricsFiles = 256

// serveMetrics serves the metrics on a separate address until the server is closed.
func (s *Server) serveMetrics(listen string) error {
	l, err := net.Listen("tcp", listen)
	if err != nil {
		return fmt.Errorf("serve metrics: %w", err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", s.metrics.Handler())
	hs := &http.Server{Handler: noPages(mux, config.IsLoopback(l.Addr().String())), ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout: 10 * time.Second, WriteTimeout: time.Minute,
		ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelDebug)}
	bounded := conns.Limit(l, nofile.DefaultConnections(metricsFiles), s.log)
	bounded.Attach(hs)
	go func() { _ = hs.Serve(bounded) }()
	s.later(func(context.Context) error { return hs.Close() })
	s.log.Info("serving metrics", "url", "http://"+l.Addr().String()+"/metrics")
	return nil
}

// noPages refuses requests from web pages: those with another origin and, on a loopback listener,
// those for other host names (DNS rebinding).
func noPages(next http.Handler, loopback bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		site := r.Header.Get("Sec-Fetch-Site")
		switch {
		case loopback && !exchange.LoopbackHost(r.Host):
			http.Error(w, "This address serves localhost and loopback addresses only.", http.StatusForbidden)
		case r.Header.Get("Origin") != "" || site != "" && site != "same-origin" && site != "none":
			http.Error(w, "This address serves no web pages.", http.StatusForbidden)
		default:
			next.ServeHTTP(w, r)
		}
	})
}
