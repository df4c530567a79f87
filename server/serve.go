package server

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"path/filepath"
	"sync"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/server/config"
	"github.com/berth-run/berth/server/state"
)

// Options are the options of a server.
type Options struct {
	State  string // directory of all state
	Config *config.Config
	Build  berth.Build
	Log    *slog.Logger
	Level  *slog.LevelVar // of the log; nil if it does not change

	// Reloads receives requests to reload the configuration with Load. Nil disables them.
	Reloads <-chan struct{}
	Load    func() (*config.Config, error)

	start *start // prepared state directory; New prepares it if it is nil, and closes it
}

// Run serves until ctx ends, and then stops gracefully. It returns an error if the server cannot
// start. Without an API key it serves on loopback addresses only.
func Run(ctx context.Context, o Options) error {
	dir, err := filepath.Abs(o.State)
	if err != nil {
		return err
	}
	o.State = dir
	c, log := o.Config, o.Log
	listen := c.Server.Listen
	if err := Verify(c); err != nil {
		return err
	}
	if !state.HasDatabase(dir) {
		log.Info("creating a new state directory", "state", dir) // the operator may have mistyped it
	}
	if o.start, err = prepare(dir, c, log); err != nil {
		return err
	}
	l, err := listenFor(ctx, dir, c.Store.URL, c.Server)
	if err != nil {
		return errors.Join(err, o.start.close())
	}
	s, err := New(ctx, o)
	if err != nil {
		l.Close()
		if ctx.Err() != nil {
			return nil // stopped before it was ready
		}
		return err
	}
	if s.unused && c.Server.NeedsKey() { // the last key was revoked since listenFor
		l.Close()
		s.Close(context.WithoutCancel(ctx))
		return state.NoKeyError(dir, listen)
	}
	if s.tls, err = s.startTLS(c.Server.TLS, dir); err != nil {
		l.Close()
		s.Close(context.WithoutCancel(ctx))
		return c.In(err)
	}
	if err := s.serveInside(c.Metrics.Listen, c.Pprof.Listen); err != nil {
		l.Close()
		s.Close(context.WithoutCancel(ctx))
		return err
	}
	if err := s.serveSSH(c.SSH.Listen); err != nil {
		l.Close()
		s.Close(context.WithoutCancel(ctx))
		return err
	}
	if o.Reloads != nil {
		ctx, cancel := context.WithCancel(ctx)
		var reloading sync.WaitGroup
		reloading.Go(func() { s.serveReloads(ctx, o) })
		defer reloading.Wait()
		defer cancel()
	}
	s.announce(o, l.Addr().String(), s.startBuild(ctx, o))
	return s.Serve(ctx, l)
}

// scheme returns the scheme of the API's address.
func (s *Server) scheme() string {
	if s.tls != nil {
		return "https"
	}
	return "http"
}

// serveInside serves metrics and profiles, unless their address is empty.
func (s *Server) serveInside(metrics, pprof string) error {
	if metrics != "" {
		if err := s.serveMetrics(metrics); err != nil {
			return err
		}
	}
	if pprof != "" {
		if _, err := s.servePprof(pprof); err != nil {
			return err
		}
	}
	return nil
}

// listenFor listens on an address. Without an API key it must be a loopback address, or the server waits for a key.
func listenFor(ctx context.Context, dir, store string, c config.Server) (net.Listener, error) {
	unused, err := withoutKeys(ctx, dir, store)
	if err != nil {
		return nil, err
	}
	if unused && c.NeedsKey() {
		return nil, state.NoKeyError(dir, c.Listen)
	}
	return net.Listen("tcp", c.Listen)
}

// withoutKeys reports whether the store has no key.
func withoutKeys(ctx context.Context, dir, store string) (bool, error) {
	db, err := state.OpenDatabase(ctx, dir, state.Use{URL: store})
	if err != nil {
		return false, err
	}
	defer db.Close()
	keys, err := db.ListKeys(ctx)
	return len(keys) == 0, err
}
