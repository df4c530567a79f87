package server

import (
	"log/slog"
	"os"
	"slices"
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

// Every provider of the configuration can be opened, and there are no others.
func TestProviders(t *testing.T) {
	for name := range dialects {
		c, err := readConfig(t, "models: [{match: a, base_url: 'http://x', provider: "+name+"}]")
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if _, err := newRouting(c, nil, slog.New(slog.DiscardHandler)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if len(providers) != len(dialects) {
		t.Errorf("there are %d providers, but the configuration has %d", len(providers), len(dialects))
	}
}

// The values of a dialect reach its provider.
func TestDialectsReachProviders(t *testing.T) {
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
		if _, err := newRouting(c, nil, slog.New(slog.DiscardHandler)); err != nil {
			t.Errorf("%s: %v", provider, err)
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
