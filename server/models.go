package server

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/model"
	"github.com/berth-run/berth/model/anthropic"
	"github.com/berth-run/berth/model/balance"
	"github.com/berth-run/berth/model/chat"
	"github.com/berth-run/berth/model/gemini"
	"github.com/berth-run/berth/model/openai"
	"github.com/berth-run/berth/model/scripted"
	"github.com/berth-run/berth/model/upstream"
)

// The names of providers in the configuration.
const (
	providerOpenAI    = "openai"
	providerChat      = "chat"
	providerAnthropic = "anthropic"
	providerGemini    = "gemini"
)

// A providerKind is an entry of providers. keys are the dialect's keys that the configuration of
// such an upstream may have.
type providerKind struct {
	make func(*UpstreamConfig, upstream.Options) (model.Provider, error)
	keys []string
}

// providers maps provider names in the configuration to providers.
var providers = map[string]providerKind{
	providerOpenAI: {func(m *UpstreamConfig, up upstream.Options) (model.Provider, error) {
		opts := openai.Options{Options: up, Reasoning: m.Reasoning, CustomTools: m.CustomTools}
		if m.NativeTools != nil {
			opts.NativeTools = append([]string{}, *m.NativeTools...)
		}
		return openai.New(opts)
	}, []string{"reasoning", "custom_tools", "native_tools"}},
	providerChat: {func(m *UpstreamConfig, up upstream.Options) (model.Provider, error) {
		return chat.New(chat.Options{Options: up, SystemRole: m.SystemRole, MaxTokens: m.MaxTokens,
			Reasoning: m.Reasoning, CallIDLength: m.CallIDLength, CustomTools: m.CustomTools})
	}, []string{"system_role", "max_tokens", "reasoning", "call_id_length", "custom_tools"}},
	providerAnthropic: {func(m *UpstreamConfig, up upstream.Options) (model.Provider, error) {
		opts := anthropic.Options{Options: up, MaxTokens: m.MaxOutputTokens, Thinking: m.Thinking,
			Structured: m.Structured, Cache: m.Cache}
		if m.NativeTools != nil {
			opts.NativeTools = append([]string{}, *m.NativeTools...)
		}
		return anthropic.New(opts)
	}, []string{"native_tools", "max_output_tokens", "thinking", "structured", "cache"}},
	providerGemini: {func(m *UpstreamConfig, up upstream.Options) (model.Provider, error) {
		return gemini.New(gemini.Options{Options: up, Thinking: m.Thinking})
	}, []string{"thinking"}},
}

// dialect returns the dialect's keys that are set.
func (m *UpstreamConfig) dialect() (keys []string) {
	for _, k := range []struct {
		name string
		set  bool
	}{
		{"system_role", m.SystemRole != ""}, {"max_tokens", m.MaxTokens != ""}, {"reasoning", m.Reasoning != ""},
		{"call_id_length", m.CallIDLength != 0}, {"custom_tools", m.CustomTools != ""},
		{"native_tools", m.NativeTools != nil},
		{"max_output_tokens", m.MaxOutputTokens != 0}, {"thinking", m.Thinking != ""},
		{"structured", m.Structured != ""}, {"cache", m.Cache != ""},
	} {
		if k.set {
			keys = append(keys, k.name)
		}
	}
	return keys
}

// route returns the routes of models, and the upstreams, sorted by name. Those among open are not
// opened again. The error names all upstreams and models that are wrong.
func (r *routing) route(config *Config, open map[[sha256.Size]byte]*balance.Upstream) (*model.Router,
	[]*balance.Upstream, error) {
	rules := []model.Rule{{Match: scripted.Name, Provider: scripted.Provider{},
		About: berth.ModelBerth{Provider: scripted.Name}}}
	var all []*balance.Upstream
	var wrong []error
	named := map[string]*balance.Upstream{}
	for _, name := range slices.Sorted(maps.Keys(config.Upstreams)) {
		u, err := r.open(config.Upstreams[name], name, false, open)
		if err != nil {
			wrong = append(wrong, config.in(fmt.Errorf("upstreams.%s%w", name, err)))
			continue
		}
		named[name] = u
		all = append(all, u)
	}
	models := config.Models
	if len(models) == 0 {
		models = environmentModels(os.Getenv)
	}
	for i := range models {
		m := &models[i]
		if len(m.Upstreams) == 0 {
			u, err := r.open(m.own(), m.Match, true, open)
			if err != nil {
				wrong = append(wrong, config.modelError(i, err))
				continue
			}
			named[""] = u
			all = append(all, u)
		}
		if len(wrong) > 0 { // its upstreams may be missing
			continue
		}
		group, err := m.group(named, r.log)
		if err != nil {
			wrong = append(wrong, config.modelError(i, fmt.Errorf(": %w", err)))
			continue
		}
		rules = append(rules, model.Rule{Match: m.Match, Provider: group, Window: m.ContextWindow,
			About: berth.ModelBerth{Provider: m.kind(config), Modalities: m.Modalities, Tools: m.Tools}})
	}
	if len(wrong) > 0 {
		return nil, nil, errors.Join(wrong...)
	}
	for _, rule := range rules {
		r.patterns = append(r.patterns, rule.Match)
	}
	router, err := model.NewRouter(r.log, rules...)
	return router, all, err
}

// modelError prefixes an error with the key of a model. err continues the key.
func (c *Config) modelError(i int, err error) error {
	if len(c.Models) == 0 {
		return fmt.Errorf("upstream of the environment%w", err)
	}
	return c.in(fmt.Errorf("models[%d]%w", i, err))
}

// own returns the entry's inline upstream.
func (m *ModelConfig) own() *UpstreamConfig {
	own := m.UpstreamConfig
	own.Timeouts.FirstToken = cmp.Or(m.FirstToken, own.Timeouts.FirstToken)
	own.Timeouts.Silence = cmp.Or(m.Silence, own.Timeouts.Silence)
	return &own
}

// group returns the group of a model's upstreams. named holds its inline upstream under "".
func (m *ModelConfig) group(named map[string]*balance.Upstream, log *slog.Logger) (*balance.Group, error) {
	targets := func(list []TargetConfig) (all []balance.Target) {
		for _, t := range list {
			all = append(all, balance.Target{Upstream: named[t.Name], Model: t.Model, Weight: t.Weight})
		}
		return all
	}
	primaries := m.Upstreams
	if len(primaries) == 0 {
		primaries = []TargetConfig{{Model: m.Upstream}}
	}
	return balance.New(balance.Options{Primaries: targets(primaries), Fallbacks: targets(m.Fallbacks),
		HedgeAfter: m.HedgeAfter, Log: log.With("model", m.Match)})
}

// kind returns the name of the provider of the model's first upstream.
func (m *ModelConfig) kind(config *Config) string {
	if len(m.Upstreams) > 0 {
		return config.Upstreams[m.Upstreams[0].Name].provider()
	}
	return m.own().provider()
}

// environmentModels returns routes from the vendors' environment variables. A vendor's upstream
// gets the models with that vendor's names. All others go to OPENAI_BASE_URL, which may be
// OpenAI or any server with Chat Completions.
func environmentModels(getenv func(string) string) []ModelConfig {
	var found []ModelConfig
	key := func(names ...string) (set string) { // "" if no name is set
		for _, name := range slices.Backward(names) {
			if getenv(name) != "" {
				set = name
			}
		}
		return set
	}
	if k, base := key("ANTHROPIC_API_KEY"), getenv("ANTHROPIC_BASE_URL"); k != "" || base != "" {
		found = append(found, ModelConfig{Match: "claude-*",
			UpstreamConfig: UpstreamConfig{Provider: providerAnthropic, BaseURL: base, APIKeyEnv: k}})
	}
	if k, base := key("GEMINI_API_KEY", "GOOGLE_API_KEY"), getenv("GOOGLE_GEMINI_BASE_URL"); k != "" || base != "" {
		found = append(found, ModelConfig{Match: "gemini-*",
			UpstreamConfig: UpstreamConfig{Provider: providerGemini, BaseURL: base, APIKeyEnv: k}})
	}
	if k, base := key("OPENAI_API_KEY"), getenv("OPENAI_BASE_URL"); k != "" || base != "" {
		found = append(found, ModelConfig{Match: "*",
			UpstreamConfig: UpstreamConfig{BaseURL: strings.TrimSuffix(cmp.Or(base, openai.BaseURL), "/"),
				APIKeyEnv: k}})
	}
	return found
}
