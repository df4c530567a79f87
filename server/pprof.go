package server

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"runtime"
	"time"

	"github.com/berth-run/berth/server/config"
)

// Sampling of the block and mutex profiles while profiles are served: one sample for each
// blockRate nanoseconds of waiting, and one of mutexFraction contended locks. They cost
// less than a percent.
const (
	blockRate     = 100_000
	mutexFraction = 100
)

// servePprof serves profiles of the process at /debug/pprof/ on a loopback address. They
// show memory of all projects, so other addresses are refused.
func (s *Server) servePprof(listen string) (net.Addr, error) {
	if !config.IsLoopback(listen) {
		return nil, fmt.Errorf("pprof.listen: %s is not a loopback address; use one, such as 127.0.0.1:6060", listen)
	}
	l, err := net.Listen("tcp", listen)
	if err != nil {
		return nil, fmt.Errorf("serve profiles: %w", err)
	}
	runtime.SetBlockProfileRate(blockRate)
	runtime.SetMutexProfileFraction(mutexFraction)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	hs := &http.Server{Handler: noPages(mux, true), ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 10 * time.Second,
		WriteTimeout: 10 * time.Minute,
		ErrorLog:     slog.NewLogLogger(s.log.Handler(), slog.LevelDebug)}
	go func() { _ = hs.Serve(l) }()
	s.later(func(context.Context) error { return hs.Close() })
	s.log.Info("serving profiles", "url", "http://"+l.Addr().String()+"/debug/pprof/")
	return l.Addr(), nil
}
