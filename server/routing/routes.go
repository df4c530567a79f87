package routing

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/model"
	"github.com/berth-run/berth/model/balance"
	"github.com/berth-run/berth/model/scripted"
	"github.com/berth-run/berth/server/config"
)

// route returns the routes of models, and the upstreams, sorted by name. Those among open are not
// opened again. The error names all upstreams and models that are wrong.
func (r *Routes) route(conf *config.Config, open map[[sha256.Size]byte]*balance.Upstream) (*model.Router,
	[]*balance.Upstream, error) {
	rules := []model.Rule{{Match: scripted.Name, Provider: scripted.Provider{},
		About: berth.ModelBerth{Provider: scripted.Name}}}
	var all []*balance.Upstream
	var wrong []error
	named := map[string]*balance.Upstream{}
	for _, name := range slices.Sorted(maps.Keys(conf.Upstreams)) {
		u, err := r.open(conf.Upstreams[name], name, false, open)
		if err != nil {
			wrong = append(wrong, conf.In(fmt.Errorf("upstreams.%s%w", name, err)))
			continue
		}
		named[name] = u
		all = append(all, u)
	}
	models := conf.Models
	if len(models) == 0 {
		models = config.EnvironmentModels(os.Getenv)
	}
	for i := range models {
		m := &models[i]
		if len(m.Upstreams) == 0 {
			u, err := r.open(m.Inline(), m.Match, true, open)
			if err != nil {
				wrong = append(wrong, modelError(conf, i, err))
				continue
			}
			named[""] = u
			all = append(all, u)
		}
		if len(wrong) > 0 { // its upstreams may be missing
			continue
		}
		group, err := group(m, named, r.log)
		if err != nil {
			wrong = append(wrong, modelError(conf, i, fmt.Errorf(": %w", err)))
			continue
		}
		rules = append(rules, model.Rule{Match: m.Match, Provider: group, Window: m.ContextWindow,
			About: berth.ModelBerth{Provider: kindOf(m, conf), Modalities: m.Modalities, Tools: m.Tools}})
	}
	if len(wrong) > 0 {
		return nil, nil, errors.Join(wrong...)
	}
	for _, rule := range rules {
		r.Patterns = append(r.Patterns, rule.Match)
	}
	router, err := model.NewRouter(r.log, rules...)
	return router, all, err
}

// group returns the group of a model's upstreams. named holds its inline upstream under "".
func group(m *config.Model, named map[string]*balance.Upstream, log *slog.Logger) (*balance.Group, error) {
	targets := func(list []config.Target) (all []balance.Target) {
		for _, t := range list {
			all = append(all, balance.Target{Upstream: named[t.Name], Model: t.Model, Weight: t.Weight})
		}
		return all
	}
	primaries := m.Upstreams
	if len(primaries) == 0 {
		primaries = []config.Target{{Model: m.UpstreamModel}}
	}
	return balance.New(balance.Options{Primaries: targets(primaries), Fallbacks: targets(m.Fallbacks),
		HedgeAfter: m.HedgeAfter, Log: log.With("model", m.Match)})
}

// kindOf returns the name of the provider of the model's first upstream.
func kindOf(m *config.Model, config *config.Config) string {
	if len(m.Upstreams) > 0 {
		return config.Upstreams[m.Upstreams[0].Name].ProviderName()
	}
	return m.Inline().ProviderName()
}

// modelError prefixes an error with the key of a model. err continues the key.
func modelError(c *config.Config, i int, err error) error {
	if len(c.Models) == 0 {
		return fmt.Errorf("upstream of the environment%w", err)
	}
	return c.In(fmt.Errorf("models[%d]%w", i, err))
}
