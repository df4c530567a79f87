package main

import (
	"fmt"
	"log/slog"
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
	providerChat      = "chat"
	providerOpenAI    = "openai"
	providerAnthropic = "anthropic"
	providerGemini    = "gemini"
)

// providers is the table of providers: how each is made from its configuration.
var providers = map[string]func(ModelConfig, upstream.Options) (model.Provider, error){
	providerChat: func(m ModelConfig, up upstream.Options) (model.Provider, error) {
		return chat.New(chat.Options{Options: up, SystemRole: m.SystemRole, MaxTokens: m.MaxTokens, Reasoning: m.Reasoning, CallIDLength: m.CallIDLength})
	},
	providerOpenAI: func(m ModelConfig, up upstream.Options) (model.Provider, error) {
		return openai.New(openai.Options{Options: up, Reasoning: m.Reasoning})
	},
	providerAnthropic: func(_ ModelConfig, up upstream.Options) (model.Provider, error) {
		return anthropic.New(anthropic.Options{Options: up})
	},
	providerGemini: func(_ ModelConfig, up upstream.Options) (model.Provider, error) {
		return gemini.New(gemini.Options{Options: up})
	},
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
	return providers[m.provider()](m, upstream.Options{BaseURL: m.BaseURL, APIKey: key, Headers: m.Headers, Log: log, FirstToken: m.FirstToken, Silence: m.Silence})
}

// provider is the name of the model's provider.
func (m ModelConfig) provider() string {
	if m.Provider == "" {
		return providerChat
	}
	return m.Provider
}

// environmentModels are the upstreams that the vendors' own variables name. Each
// gets the models of its vendor's names; the rest goes to OpenAI, or to
// OPENAI_BASE_URL, which may be any server that speaks Chat Completions.
func environmentModels(getenv func(string) string) []ModelConfig {
	var found []ModelConfig
	if getenv("ANTHROPIC_API_KEY") != "" || getenv("ANTHROPIC_BASE_URL") != "" {
		found = append(found, ModelConfig{Match: "claude-*", Provider: providerAnthropic, BaseURL: getenv("ANTHROPIC_BASE_URL"), APIKeyEnv: "ANTHROPIC_API_KEY"})
	}
	key := "GEMINI_API_KEY"
	if getenv(key) == "" {
		key = "GOOGLE_API_KEY"
	}
	if getenv(key) != "" {
		found = append(found, ModelConfig{Match: "gemini-*", Provider: providerGemini, BaseURL: getenv("GOOGLE_GEMINI_BASE_URL"), APIKeyEnv: key})
	}
	switch url := getenv("OPENAI_BASE_URL"); {
	case url != "" && !strings.HasPrefix(url, openai.BaseURL):
		found = append(found, ModelConfig{Match: "*", BaseURL: url, APIKeyEnv: "OPENAI_API_KEY"})
	case url != "" || getenv("OPENAI_API_KEY") != "":
		found = append(found, ModelConfig{Match: "*", Provider: providerOpenAI, APIKeyEnv: "OPENAI_API_KEY"})
	}
	return found
}
