package routing

import (
	"github.com/berth-run/berth/model"
	"github.com/berth-run/berth/model/anthropic"
	"github.com/berth-run/berth/model/chat"
	"github.com/berth-run/berth/model/gemini"
	"github.com/berth-run/berth/model/openai"
	"github.com/berth-run/berth/model/upstream"
	"github.com/berth-run/berth/server/config"
)

// A ProviderFunc opens a provider.
type ProviderFunc func(*config.Upstream, upstream.Options) (model.Provider, error)

// Providers maps provider names in the configuration to providers. To add a provider, add its line, and in
// package config its dialect.
var Providers = map[string]ProviderFunc{
	config.ProviderOpenAI: func(m *config.Upstream, up upstream.Options) (model.Provider, error) {
		opts := openai.Options{Options: up, Reasoning: m.Reasoning, CustomTools: m.CustomTools}
		if m.NativeTools != nil {
			opts.NativeTools = append([]string{}, *m.NativeTools...)
		}
		return openai.New(opts)
	},
	config.ProviderChat: func(m *config.Upstream, up upstream.Options) (model.Provider, error) {
		return chat.New(chat.Options{Options: up, SystemRole: m.SystemRole, MaxTokens: m.MaxTokens,
			Reasoning: m.Reasoning, CallIDLength: m.CallIDLength, CustomTools: m.CustomTools})
	},
	config.ProviderAnthropic: func(m *config.Upstream, up upstream.Options) (model.Provider, error) {
		opts := anthropic.Options{Options: up, MaxTokens: m.MaxOutputTokens, Thinking: m.Thinking,
			Structured: m.Structured, Cache: m.Cache}
		if m.NativeTools != nil {
			opts.NativeTools = append([]string{}, *m.NativeTools...)
		}
		return anthropic.New(opts)
	},
	config.ProviderGemini: func(m *config.Upstream, up upstream.Options) (model.Provider, error) {
		return gemini.New(gemini.Options{Options: up, Thinking: m.Thinking})
	},
}
