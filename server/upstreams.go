package server

import (
	"github.com/berth-run/berth/engine"
	"github.com/berth-run/berth/server/config"
	"github.com/berth-run/berth/server/routing"
)

// upstreams are the servers of models, and what passes requests to them.
type upstreams struct {
	routes    *routing.Routes
	forwarder *engine.Forwarder
}

// openUpstreams opens the configured upstreams. It returns an error if none has a model that this server itself uses.
func (s *Server) openUpstreams(b *base) (*upstreams, error) {
	routes, err := routing.Open(b.Config, s.metrics.FirstToken, b.Log)
	if err != nil {
		return nil, err
	}
	for _, err := range routing.Unrouted(routes.Router, b.Config.Images.Model, b.Config.Vectors.EmbeddingModel) {
		return nil, b.Config.In(err)
	}
	s.reloader.models = routes
	return &upstreams{routes, engine.NewForwarder(engine.ForwarderOptions{Models: routes.Router, Usages: b.db,
		Quota: b.quota, Retry: retryOf(b.Config), Log: b.Log})}, nil
}

// retryOf returns how requests to upstreams are repeated.
func retryOf(config *config.Config) engine.Retry {
	return engine.Retry{Attempts: config.Retry.Attempts, Patience: config.Retry.Patience,
		Final: config.Retry.Continue == "fail"}
}
