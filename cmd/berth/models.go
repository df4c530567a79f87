package main

import (
	"cmp"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"strings"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/model"
	"github.com/berth-run/berth/model/anthropic"
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

// A providerKind is how providers of a name are made, and which keys of their
// dialect the configuration may have.
type providerKind struct {
	make func(ModelConfig, upstream.Options) (model.Provider, error)
	keys []string
}

// providers is the table of providers.
var providers = map[string]providerKind{
	providerOpenAI: {func(m ModelConfig, up upstream.Options) (model.Provider, error) {
		return openai.New(openai.Options{Options: up, Reasoning: m.Reasoning})
	}, []string{"reasoning"}},
	providerChat: {func(m ModelConfig, up upstream.Options) (model.Provider, error) {
		return chat.New(chat.Options{Options: up, SystemRole: m.SystemRole, MaxTokens: m.MaxTokens, Reasoning: m.Reasoning, CallIDLength: m.CallIDLength})
	}, []string{"system_role", "max_tokens", "reasoning", "call_id_length"}},
	providerAnthropic: {func(m ModelConfig, up upstream.Options) (model.Provider, error) {
		return anthropic.New(anthropic.Options{Options: up, MaxTokens: m.MaxOutputTokens, Thinking: m.Thinking, Structured: m.Structured, Cache: m.Cache})
	}, []string{"max_output_tokens", "thinking", "structured", "cache"}},
	providerGemini: {func(m ModelConfig, up upstream.Options) (model.Provider, error) {
		return gemini.New(gemini.Options{Options: up, Thinking: m.Thinking})
	}, []string{"thinking"}},
}

// dialect returns the keys of a dialect that are set.
func (m ModelConfig) dialect() (keys []string) {
	for _, k := range []struct {
		name string
		set  bool
	}{
		{"system_role", m.SystemRole != ""}, {"max_tokens", m.MaxTokens != ""}, {"reasoning", m.Reasoning != ""}, {"call_id_length", m.CallIDLength != 0},
		{"max_output_tokens", m.MaxOutputTokens != 0}, {"thinking", m.Thinking != ""}, {"structured", m.Structured != ""}, {"cache", m.Cache != ""},
	} {
		if k.set {
			keys = append(keys, k.name)
		}
	}
	return keys
}

// newRouter makes the providers and says which models go to which.
func newRouter(config *Config, log *slog.Logger) (*model.Router, error) {
	rules := []model.Rule{{Match: scripted.Name, Provider: scripted.Provider{}, About: berth.ModelBerth{Provider: scripted.Name}}}
	upstreams := config.Models
	if len(upstreams) == 0 {
		upstreams = environmentModels(os.Getenv)
	}
	for _, m := range upstreams {
		p, err := newProvider(m, log)
		if err != nil {
			return nil, fmt.Errorf("model %s: %w", m.Match, err)
		}
		rules = append(rules, model.Rule{Match: m.Match, Provider: p, Upstream: m.Upstream, Window: m.ContextWindow,
			About: berth.ModelBerth{Provider: m.provider(), Modalities: m.Modalities, Tools: m.Tools}})
	}
	if len(upstreams) == 0 {
		log.Warn("no model upstream: only the recital 'scripted' answers; set OPENAI_BASE_URL, ANTHROPIC_API_KEY or GEMINI_API_KEY, or name models in --config")
	}
	return model.NewRouter(log, rules...)
}

func newProvider(m ModelConfig, log *slog.Logger) (model.Provider, error) {
	key := m.APIKey
	if m.APIKeyEnv != "" {
		key = os.Getenv(m.APIKeyEnv)
	}
	return providers[m.provider()].make(m, upstream.Options{BaseURL: m.BaseURL, APIKey: key, Headers: m.Headers, Log: log, FirstToken: m.FirstToken, Silence: m.Silence})
}

// provider is the name of the model's provider. OpenAI's own server is spoken to in
// its own tongue, any other in the one that most know.
func (m ModelConfig) provider() string {
	if m.Provider != "" {
		return m.Provider
	}
	if u, err := url.Parse(m.BaseURL); err == nil && u.Hostname() == "api.openai.com" {
		return providerOpenAI
	}
	return providerChat
}

// environmentModels are the upstreams that the vendors' own variables name. Each
// gets the models of its vendor's names; the rest goes to OPENAI_BASE_URL, which is
// OpenAI's or may be any server that speaks Chat Completions.
func environmentModels(getenv func(string) string) []ModelConfig {
	var found []ModelConfig
	if getenv("ANTHROPIC_API_KEY") != "" || getenv("ANTHROPIC_BASE_URL") != "" {
		found = append(found, ModelConfig{Match: "claude-*", Provider: providerAnthropic, BaseURL: getenv("ANTHROPIC_BASE_URL"), APIKeyEnv: "ANTHROPIC_API_KEY"})
	}
	key := "GEMINI_API_KEY"
	if getenv(key) == "" {
		key = "GOOGLE_API_KEY"
	}
	if getenv(key) != "" || getenv("GOOGLE_GEMINI_BASE_URL") != "" {
		found = append(found, ModelConfig{Match: "gemini-*", Provider: providerGemini, BaseURL: getenv("GOOGLE_GEMINI_BASE_URL"), APIKeyEnv: key})
	}
	if base := getenv("OPENAI_BASE_URL"); base != "" || getenv("OPENAI_API_KEY") != "" {
		found = append(found, ModelConfig{Match: "*", BaseURL: strings.TrimSuffix(cmp.Or(base, openai.BaseURL), "/"), APIKeyEnv: "OPENAI_API_KEY"})
	}
	return found
}
