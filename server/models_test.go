package server

import (
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/berth-run/berth/model"
	"github.com/berth-run/berth/model/scripted"
)

func TestEnvironmentModels(t *testing.T) {
	for name, c := range map[string]struct {
		env  map[string]string
		want map[string]string // provider by model
	}{
		"nothing": {nil, map[string]string{"gpt-5": "", "scripted": "scripted"}},
		"all": {map[string]string{"OPENAI_API_KEY": "a", "ANTHROPIC_API_KEY": "b", "GEMINI_API_KEY": "c"},
			map[string]string{"gpt-5": providerOpenAI, "claude-sonnet-4-5": providerAnthropic,
				"gemini-3-pro": providerGemini, "o5": providerOpenAI}},
		"local": {map[string]string{"OPENAI_BASE_URL": "http://localhost:8000/v1"},
			map[string]string{"claude-sonnet-4-5": providerChat, "qwen3": providerChat}},
		"OpenAI's server by name": {map[string]string{"OPENAI_BASE_URL": "https://api.openai.com/v1/"},
			map[string]string{"gpt-5": providerOpenAI}},
		"a gateway to Google": {map[string]string{"GOOGLE_GEMINI_BASE_URL": "http://localhost:1"},
			map[string]string{"gemini-3-pro": providerGemini}},
		"google's other name": {map[string]string{"GOOGLE_API_KEY": "c"},
			map[string]string{"gemini-3-pro": providerGemini, "gpt-5": ""}},
	} {
		t.Run(name, func(t *testing.T) {
			for _, key := range []string{"OPENAI_API_KEY", "OPENAI_BASE_URL", "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL",
				"GEMINI_API_KEY", "GOOGLE_API_KEY", "GOOGLE_GEMINI_BASE_URL"} {
				t.Setenv(key, c.env[key])
			}
			r, err := newRouting(&Config{}, nil, slog.New(slog.DiscardHandler))
			if err != nil {
				t.Fatal(err)
			}
			models := environmentModels(os.Getenv)
			for id, want := range c.want {
				got := ""
				if n := slices.IndexFunc(models, func(m ModelConfig) bool {
					return model.Matches(m.Match, id)
				}); n >= 0 {
					got = models[n].provider()
				}
				if id == scripted.Name {
					got = id
				}
				if _, _, err := r.router.Route(id); got != want || (err == nil) != (want != "") {
					t.Errorf("%s goes to %q, %v, want %q", id, got, err, want)
				}
			}
		})
	}
}

// Every key of a dialect belongs to a provider and reaches it.
func TestDialects(t *testing.T) {
	for provider, lines := range map[string]string{
		providerOpenAI:    "reasoning: all, custom_tools: native, native_tools: [computer]",
		providerChat:      "base_url: http://x, system_role: developer, max_tokens: max_tokens, reasoning: reasoning, call_id_length: 9, custom_tools: native",
		providerAnthropic: "native_tools: [shell], max_output_tokens: 9, thinking: budget, structured: tool, cache: 1h",
		providerGemini:    "thinking: level",
	} {
		c, err := readConfig(t, "models: [{match: a, provider: "+provider+", "+lines+"}]")
		if err != nil {
			t.Errorf("%s: %v", provider, err)
			continue
		}
		if got, want := c.Models[0].dialect(), providers[provider].keys; !slices.Equal(got, want) {
			t.Errorf("%s: got keys %v, want %v", provider, got, want)
		}
		if _, err := newRouting(c, nil, slog.New(slog.DiscardHandler)); err != nil {
			t.Errorf("%s: %v", provider, err)
		}
	}
	for text, want := range map[string]string{
		"{match: a, provider: anthropic, system_role: system}": "models[0].system_role is not supported by provider anthropic",
		"{match: a, base_url: http://x, cache: 1h}":            "models[0].cache is not supported by provider chat",
		"{match: a, provider: gemini, structured: tool}":       "models[0].structured is not supported by provider gemini",
		"{match: a, provider: bard}":                           `"bard" must be anthropic, chat, gemini or openai`,
	} {
		if _, err := readConfig(t, "models: ["+text+"]"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", text, err, want)
		}
	}
	c, err := readConfig(t, "models: [{match: a, provider: gemini, thinking: adaptive}]")
	if err == nil {
		_, err = newRouting(c, nil, slog.New(slog.DiscardHandler))
	}
	if err == nil {
		t.Error("a value of another vendor was accepted")
	}
}
