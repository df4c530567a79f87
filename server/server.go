// Package server assembles a server from its parts: it reads the configuration, opens the state
// directory and the driver, creates the services in order of their dependencies, runs background
// work, and stops everything in reverse order.
package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/exchange"
	"github.com/berth-run/berth/audit"
	"github.com/berth-run/berth/egress/proxy"
	"github.com/berth-run/berth/internal/nofile"
	"github.com/berth-run/berth/metrics"
	"github.com/berth-run/berth/project"
	"github.com/berth-run/berth/server/config"
	"github.com/berth-run/berth/server/templates"
	"github.com/berth-run/berth/ssh"
)

// A Server holds all parts of berth serve.
type Server struct {
	log       *slog.Logger
	level     *slog.LevelVar // nil if it does not change
	tls       *tls.Config    // nil for plain HTTP
	config    config.Server
	handler   http.Handler
	metrics   *metrics.Metrics
	open      bool                   // none is required: no key existed at start
	unused    bool                   // no key existed at start
	template  func() (string, error) // name of the default template
	templates *templates.Catalog
	record    *audit.Log
	forwarded forwarders
	data      *blobs
	detach    func(context.Context) error   // detaches from running responses
	close     []func(context.Context) error // in order of creation

	spending func(context.Context) ([]project.Spend, error) // in the present month
	priced   atomic.Bool                                    // any upstream has prices

	ssh *ssh.Door

	reloader reloader
	proxies  *proxy.Selector // nil without proxies
}

// New creates a server and its parts. If it fails, it closes the parts already created.
func New(ctx context.Context, o Options) (s *Server, err error) {
	s = &Server{log: o.Log, level: o.Level, reloader: reloader{started: o.Config, now: o.Config},
		metrics: metrics.New(o.Build.Version), config: o.Config.Server}
	s.priced.Store(o.Config.Priced())
	nofile.Reserve()
	defer func() {
		if err != nil {
			s.Close(context.WithoutCancel(ctx))
		}
	}()
	base, err := s.openBase(ctx, o)
	if err != nil {
		return s, err
	}
	upstreams, err := s.openUpstreams(base)
	if err != nil {
		return s, err
	}
	blobs, err := s.openBlobs(ctx, base, upstreams.forwarder)
	if err != nil {
		return s, err
	}
	s.data = blobs
	containers, err := s.startContainers(ctx, base, blobs)
	if err != nil {
		return s, err
	}
	running, err := s.startEngine(ctx, base, upstreams, blobs, containers)
	if err != nil {
		return s, err
	}
	remover := remover{containers.service, running.engine, base.cluster}
	data := &erasable{db: base.db, containers: remover, responses: responsesRemover{remover}, blobs: blobs}
	s.later(startErasing(base, &project.Eraser{Projects: project.New(project.Options{Objects: base.db}),
		Sources: data.sources(), Audit: base.audit, Held: base.holds.Any}))
	batches := newBatches(base, blobs, running.webhooks)
	planned := newSchedules(base)
	if s.handler, err = s.newHandler(ctx, base, blobs, containers, running, batches, planned); err != nil {
		return s, err
	}
	s.later(base.startOnce("batches", batches.Run))
	s.later(base.startOnce("schedules", planned.Run))
	stop, err := base.cluster.Serve(ctx, o.Config.Cluster.Listen, s.serveForwarded, remover.removeHere,
		containers.service.Access().Visit)
	if err != nil {
		return s, fmt.Errorf("cluster.listen: %w", err)
	}
	s.later(stop)
	return s, s.serveControl(base)
}

// serveForwarded serves a request that another server has forwarded for a caller, or for none that is identified.
func (s *Server) serveForwarded(w http.ResponseWriter, r *http.Request, caller *berth.Caller) {
	s.handler.ServeHTTP(w, r.WithContext(exchange.Forwarded(r.Context(), caller)))
}

// later registers a function that closes a part. Close calls them in reverse order.
func (s *Server) later(f func(context.Context) error) { s.close = append(s.close, f) }

// Close stops the parts of the server. Responses and sandboxes continue at the next start.
func (s *Server) Close(ctx context.Context) {
	for i := len(s.close) - 1; i >= 0; i-- {
		if err := s.close[i](ctx); err != nil {
			s.log.Error("failed to close a part of the server", "err", err)
		}
	}
	s.close = nil
}

// Serve serves on l until ctx ends. Then it first detaches from running responses, so that the
// streams and sockets following them end, and closes the parts that they need last.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	base, end := context.WithCancel(context.Background())
	defer end()
	var handlers sync.WaitGroup // http.Server.Shutdown does not wait for hijacked connections
	hs := &http.Server{ReadHeaderTimeout: 20 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			handlers.Add(1)
			defer handlers.Done()
			s.handler.ServeHTTP(w, r)
		}),
		BaseContext: func(net.Listener) context.Context { return base },
		ErrorLog:    slog.NewLogLogger(s.log.Handler(), slog.LevelDebug)}
	bounded := bound(s.config, l, s.log)
	bounded.Attach(hs)
	s.metrics.Connections(bounded.Counts)
	failed := make(chan error, 1)
	var accepted net.Listener = bounded
	if s.tls != nil {
		accepted = tls.NewListener(bounded, s.tls)
	}
	go func() { failed <- hs.Serve(accepted) }()
	select {
	case err := <-failed:
		s.Close(context.Background())
		return err
	case <-ctx.Done():
	}
	s.log.Info("stopping; responses and sandboxes continue at the next start")
	l.Close()
	grace, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	defer s.Close(grace)
	if err := s.detach(grace); err != nil {
		s.log.Error("failed to detach from running responses", "err", err)
	}
	end()
	if err := hs.Shutdown(grace); err != nil && !errors.Is(err, net.ErrClosed) {
		if err := hs.Close(); err != nil {
			return fmt.Errorf("close HTTP server: %w", err)
		}
		return nil
	}
	ended := make(chan struct{})
	go func() {
		handlers.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-grace.Done():
	}
	return nil
}
