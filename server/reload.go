package server

import (
	"context"
	"slices"
	"strings"

	"github.com/berth-run/berth/project"
	"github.com/berth-run/berth/server/config"
	"github.com/berth-run/berth/server/routing"
)

// reloadable are the keys that Reload applies, with all keys below them.
var reloadable = []string{"models", "upstreams", "limits", "log.level", "server.tls.cert_file", "server.tls.key_file"}

// A reloader applies a new configuration to a running server.
type reloader struct {
	started *config.Config // the configuration at the start
	now     *config.Config // in effect
	models  *routing.Routes
	quota   *project.Quota
	certs   *certificates // nil without certificate files
}

// serveReloads reloads the configuration at each request, until ctx ends.
func (s *Server) serveReloads(ctx context.Context, o Options) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-o.Reloads:
		}
		c, err := o.Load()
		if err == nil {
			err = s.Reload(c)
		}
		if err != nil {
			s.log.Error("failed to reload the configuration; the old one stays in effect", "err", err)
		}
	}
}

// Reload applies a configuration: its models and upstreams, limits, log level and certificates. If
// any of these is wrong, it changes nothing and returns an error. Other keys apply at the next
// start; Reload logs those that have changed. Running responses keep their upstream, and upstreams
// that have not changed keep their state. It must not be called concurrently.
func (s *Server) Reload(c *config.Config) error {
	r := &s.reloader
	if err := Verify(c); err != nil {
		return err
	}
	models, err := r.models.Next(c)
	if err != nil {
		return err
	}
	if wrong := routing.Unrouted(models.Router, r.started.Images.Model, r.started.Vectors.EmbeddingModel); len(
		wrong) > 0 {
		return c.In(wrong[0])
	}
	certificate, err := r.certs.read(c.Server.TLS)
	if err != nil {
		return c.In(err)
	}
	// Nothing fails from here on.
	r.models.Adopt(models)
	r.quota.SetLimits(c.ProjectLimits())
	s.priced.Store(c.Priced())
	r.certs.use(certificate)
	if s.level != nil {
		s.level.Set(c.Log.Threshold())
	}
	applied, _ := r.split(c.ChangedFrom(r.now))
	s.log.Info("reloaded the configuration", "changed", applied)
	if _, later := r.split(c.ChangedFrom(r.started)); len(later) > 0 {
		s.log.Warn("some changed keys apply at the next start only", "keys", later)
	}
	r.now = c
	return nil
}

// split separates the keys that Reload applies from others.
func (r *reloader) split(keys []string) (applied, later []string) {
	for _, key := range keys {
		if r.certs == nil && strings.HasPrefix(key, "server.tls.") {
			later = append(later, key)
			continue
		}
		if slices.ContainsFunc(reloadable, func(r string) bool { return key == r || strings.HasPrefix(key, r+".") }) {
			applied = append(applied, key)
		} else {
			later = append(later, key)
		}
	}
	return applied, later
}
