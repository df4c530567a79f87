// Package routing opens the model servers of a configuration, and routes the names of models to them.
package routing

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/egress/proxy"
	"github.com/berth-run/berth/model"
	"github.com/berth-run/berth/model/balance"
	"github.com/berth-run/berth/server/config"
	"github.com/berth-run/berth/server/outbound"
)

// A Routes holds the routes of models to upstreams, and the upstreams.
type Routes struct {
	Router    *model.Router
	Patterns  []string                            // of models, in their order
	Upstreams atomic.Pointer[[]*balance.Upstream] // sorted by name
	opened    map[[sha256.Size]byte]*balance.Upstream

	currency   string // of the prices; it does not change
	firstToken func(upstream, model string, took time.Duration)
	proxies    *proxy.Selector // of the server; they do not change
	log        *slog.Logger
}

// Open opens the configured upstreams. firstToken, if not nil, is called at the first token
// of each turn.
func Open(config *config.Config, firstToken func(upstream, model string, took time.Duration),
	log *slog.Logger) (*Routes, error) {
	proxies, err := outbound.Open(config)
	if err != nil {
		return nil, err
	}
	r := &Routes{currency: config.Currency, firstToken: firstToken, proxies: proxies, log: log}
	return r.Next(config)
}

// Next returns the routing for another configuration. It shares the upstreams that have not
// changed, with their breakers and limits.
func (r *Routes) Next(config *config.Config) (*Routes, error) {
	n := &Routes{opened: map[[sha256.Size]byte]*balance.Upstream{}, currency: r.currency, firstToken: r.firstToken,
		proxies: r.proxies,
		log:     r.log}
	router, all, err := n.route(config, r.opened)
	n.Router = router
	n.Upstreams.Store(&all)
	return n, err
}

// Adopt replaces the routes by those of another routing.
func (r *Routes) Adopt(next *Routes) {
	r.Router.Adopt(next.Router)
	r.Upstreams.Store(next.Upstreams.Load())
	r.opened = next.opened
}

// Statuses returns the status of each upstream.
func (r *Routes) Statuses() []berth.Upstream {
	all := *r.Upstreams.Load()
	list := make([]berth.Upstream, len(all))
	for i, u := range all {
		list[i] = u.Status()
	}
	return list
}

// open returns the upstream of a configuration: one of those that are open already, or a new one.
func (r *Routes) open(u *config.Upstream, name string, anonymous bool,
	open map[[sha256.Size]byte]*balance.Upstream) (*balance.Upstream, error) {
	print, err := fingerprint(u, name, anonymous)
	if err != nil {
		return nil, err
	}
	opened := open[print]
	if opened == nil {
		if opened, err = openUpstream(u, name, anonymous, r.currency, r.proxies, r.firstToken, r.log); err != nil {
			return nil, err
		}
	}
	r.opened[print] = opened
	return opened, nil
}

// fingerprint returns a digest of the upstream's configuration with its keys and files.
func fingerprint(u *config.Upstream, name string, anonymous bool) (digest [sha256.Size]byte, err error) {
	text, err := yaml.Marshal(u)
	if err != nil {
		return digest, fmt.Errorf(": %w", err)
	}
	keys, err := u.Secrets()
	if err != nil {
		return digest, err
	}
	h := sha256.New()
	fmt.Fprintf(h, "%q %v %q %q", name, anonymous, text, keys)
	for _, path := range []string{u.TLS.CAFile, u.TLS.CertFile, u.TLS.KeyFile} {
		content, err := os.ReadFile(path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // open reports a missing file with its key
			return digest, fmt.Errorf(".tls: %w", err)
		}
		fmt.Fprintf(h, " %q", content)
	}
	h.Sum(digest[:0])
	return digest, nil
}

// Unrouted returns an error for each model that the server itself uses and that no upstream has. An
// empty name is no model.
func Unrouted(router *model.Router, images, embeddings string) (wrong []error) {
	for _, used := range []struct{ key, model string }{{"image_generation.model", images},
		{"vector_stores.embedding_model", embeddings}} {
		if used.model == "" {
			continue
		}
		if _, _, err := router.Route(used.model); err != nil {
			wrong = append(wrong, fmt.Errorf("%s: no entry of models matches %q", used.key, used.model))
		}
	}
	return wrong
}
