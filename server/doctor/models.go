package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/model"
	"github.com/berth-run/berth/server/config"
	"github.com/berth-run/berth/server/outbound"
	"github.com/berth-run/berth/server/routing"
)

// upstreamWait bounds the check of all upstreams.
const upstreamWait = 10 * time.Second

// maxShownModels bounds the models of an upstream that a finding names.
const maxShownModels = 5

// A probe is an upstream to check, and the models that requests to it name.
type probe struct {
	name   string
	config *config.Upstream
	whole  *config.Config
	models []string
}

// checkUpstreams asks each upstream, with each of its keys, for its models. It takes at most wait.
func checkUpstreams(ctx context.Context, c *config.Config, wait time.Duration) []Finding {
	probes := probesOf(c)
	if len(probes) == 0 {
		return []Finding{{What: "models", Models: true, OK: true, Detail: "only the demo model scripted",
			Advice: "for others, set OPENAI_BASE_URL, ANTHROPIC_API_KEY or GEMINI_API_KEY, or configure models; see " + berth.DocsURL + "models.md"}}
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	found := make([][]Finding, len(probes))
	var all sync.WaitGroup
	for i, p := range probes {
		all.Go(func() { found[i] = p.check(ctx, wait) })
	}
	all.Wait()
	return slices.Concat(found...)
}

// probesOf returns the upstreams of the configuration, or of the environment if it has no models.
func probesOf(c *config.Config) (all []*probe) {
	named := map[string]*probe{}
	for _, name := range slices.Sorted(maps.Keys(c.Upstreams)) {
		named[name] = &probe{name: name, config: c.Upstreams[name], whole: c}
		all = append(all, named[name])
	}
	models := c.Models
	if len(models) == 0 {
		models = config.EnvironmentModels(os.Getenv)
	}
	for i := range models {
		m := &models[i]
		for _, t := range slices.Concat(m.Upstreams, m.Fallbacks) {
			if p := named[t.Name]; p != nil {
				p.add(cmp.Or(t.Model, m.Match))
			}
		}
		if len(m.Upstreams) > 0 {
			continue
		}
		own := m.Inline()
		host := own.ProviderName()
		if base, err := url.Parse(own.BaseURL); err == nil && base.Host != "" {
			host = base.Host
		}
		p := &probe{name: host, config: own, whole: c}
		p.add(cmp.Or(m.UpstreamModel, m.Match))
		all = append(all, p)
	}
	return all
}

// add adds a model, unless it is a pattern.
func (p *probe) add(model string) {
	if !strings.ContainsAny(model, `*?[\`) && !slices.Contains(p.models, model) {
		p.models = append(p.models, model)
	}
}

// check returns a finding for each key of the upstream, and for what else is wrong with it.
func (p *probe) check(ctx context.Context, wait time.Duration) []Finding {
	secrets, err := p.config.Secrets()
	if err != nil {
		return []Finding{{What: "upstream " + p.name, Models: true, Detail: strings.TrimPrefix(err.Error(), "."),
			Advice: "see berth config check"}}
	}
	var all []Finding
	for _, s := range secrets {
		all = append(all, p.checkKey(ctx, s, wait))
	}
	return all
}

func (p *probe) checkKey(ctx context.Context, key config.Secret, wait time.Duration) Finding {
	f := Finding{What: "upstream " + p.name, Models: true}
	listed, err := p.list(ctx, key)
	known, isBerth := errors.AsType[*berth.Error](err)
	switch {
	case ctx.Err() != nil:
		f.Detail = fmt.Sprintf("no answer within %s", config.ShortDuration(wait))
		f.Advice = "check base_url and the network, and that the server runs"
	case errors.Is(err, model.ErrKey):
		f.Detail = known.Message
		f.Advice = "put a valid key into " + key.Name
	case isBerth && known.Code == berth.CodeUnavailable && known.Wire != "": // another refusal, such as 404
		f.OK, f.Detail = true, "it cannot list its models: "+known.Message
		f.Advice = "check that base_url is right if requests fail"
	case isBerth && known.Err != nil:
		f.Detail = strings.TrimSuffix(known.Message, ".") + ": " + known.Err.Error()
		f.Advice = "check base_url and the network, and that the server runs"
	case err != nil:
		f.Detail = err.Error()
		f.Advice = "check base_url and the network, and that the server runs"
	default:
		f.OK, f.Detail = true, p.answered(key, len(listed))
		if missing := p.missing(listed); len(missing) > 0 {
			f.Advice = fmt.Sprintf("it does not list %s, but %s; correct the name in models if requests fail",
				strings.Join(missing, ", "), shownModels(listed))
		}
	}
	return f
}

// answered describes an upstream that has listed its models.
func (p *probe) answered(key config.Secret, models int) string {
	text := fmt.Sprintf("answers and lists %d models", models)
	if models == 1 {
		text = "answers and lists 1 model"
	}
	if key.Value != "" {
		text += "; accepts the key of " + key.Name
	}
	return text
}

// list returns the models of the upstream for one of its keys.
func (p *probe) list(ctx context.Context, key config.Secret) ([]berth.Model, error) {
	proxies, err := outbound.Open(p.whole)
	if err != nil {
		return nil, err
	}
	options, err := routing.UpstreamOptions(p.config, p.name, proxies, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, errors.New(strings.TrimPrefix(err.Error(), "."))
	}
	options.APIKey = key.Value
	provider, err := routing.Providers[p.config.ProviderName()](p.config, options)
	if err != nil {
		return nil, fmt.Errorf("open upstream: %w", err)
	}
	lister, ok := provider.(model.Lister)
	if !ok {
		return nil, nil
	}
	return lister.Models(ctx)
}

// missing returns the models that an upstream does not list. Ollama accepts names without the tag
// latest.
func (p *probe) missing(listed []berth.Model) (missing []string) {
	for _, name := range p.models {
		if !slices.ContainsFunc(listed, func(m berth.Model) bool { return m.ID == name || m.ID == name+":latest" }) {
			missing = append(missing, name)
		}
	}
	return missing
}

// shownModels returns the first models of a list as text.
func shownModels(listed []berth.Model) string {
	if len(listed) == 0 {
		return "none"
	}
	var names []string
	for _, m := range listed[:min(len(listed), maxShownModels)] {
		names = append(names, m.ID)
	}
	if n := len(listed) - len(names); n > 0 {
		names = append(names, fmt.Sprintf("%d more", n))
	}
	return strings.Join(names, ", ")
}
