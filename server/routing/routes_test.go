package routing

import (
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/berth-run/berth/model"
	"github.com/berth-run/berth/model/openai"
	"github.com/berth-run/berth/model/scripted"
	"github.com/berth-run/berth/server/config"
)

func TestEnvironmentModels(t *testing.T) {
	for name, c := range map[string]struct {
		env  map[string]string
		want map[string]string // provider by model
	}{
		"nothing": {nil, map[string]string{"gpt-5": "", "scripted": "scripted"}},
		"all": {map[string]string{"OPENAI_API_KEY": "a", "ANTHROPIC_API_KEY": "b", "GEMINI_API_KEY": "c"},
			map[string]string{"gpt-5": config.ProviderOpenAI, "claude-sonnet-4-5": config.ProviderAnthropic,
				"gemini-3-pro": config.ProviderGemini, "o5": config.ProviderOpenAI}},
		"local": {map[string]string{"OPENAI_BASE_URL": "http://localhost:8000/v1"},
			map[string]string{"claude-sonnet-4-5": config.ProviderChat, "qwen3": config.ProviderChat}},
		"OpenAI's server by name": {map[string]string{"OPENAI_BASE_URL": "https://api.openai.com/v1/"},
			map[string]string{"gpt-5": config.ProviderOpenAI}},
		"a gateway to Google": {map[string]string{"GOOGLE_GEMINI_BASE_URL": "http://localhost:1"},
			map[string]string{"gemini-3-pro": config.ProviderGemini}},
		"google's other name": {map[string]string{"GOOGLE_API_KEY": "c"},
			map[string]string{"gemini-3-pro": config.ProviderGemini, "gpt-5": ""}},
	} {
		t.Run(name, func(t *testing.T) {
			for _, key := range []string{"OPENAI_API_KEY", "OPENAI_BASE_URL", "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL",
				"GEMINI_API_KEY", "GOOGLE_API_KEY", "GOOGLE_GEMINI_BASE_URL"} {
				t.Setenv(key, c.env[key])
			}
			r, err := Open(&config.Config{}, nil, slog.New(slog.DiscardHandler))
			if err != nil {
				t.Fatal(err)
			}
			models := config.EnvironmentModels(os.Getenv)
			for id, want := range c.want {
				got := ""
				if n := slices.IndexFunc(models, func(m config.Model) bool {
					return model.Matches(m.Match, id)
				}); n >= 0 {
					got = models[n].ProviderName()
				}
				if id == scripted.Name {
					got = id
				}
				if _, _, err := r.Router.Route(id); got != want || (err == nil) != (want != "") {
					t.Errorf("%s goes to %q, %v, want %q", id, got, err, want)
				}
			}
		})
	}
}

// Every provider of the configuration can be opened, and there are no others.
func TestProviders(t *testing.T) {
	for name := range config.Dialects {
		c, err := configOf(t, "models: [{match: a, base_url: 'http://x', provider: "+name+"}]")
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if _, err := Open(c, nil, slog.New(slog.DiscardHandler)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if config.OpenAIBase != openai.BaseURL {
		t.Errorf("got %s, want %s", config.OpenAIBase, openai.BaseURL)
	}
	if len(Providers) != len(config.Dialects) {
		t.Errorf("there are %d providers, but the configuration has %d", len(Providers), len(config.Dialects))
	}
}

// The values of a dialect reach its provider.
func TestDialectsReachProviders(t *testing.T) {
	for provider, lines := range map[string]string{
		config.ProviderOpenAI:    "reasoning: all, custom_tools: native, native_tools: [computer]",
		config.ProviderChat:      "base_url: http://x, system_role: developer, max_tokens: max_tokens, reasoning: reasoning, call_id_length: 9, custom_tools: native",
		config.ProviderAnthropic: "native_tools: [shell], max_output_tokens: 9, thinking: budget, structured: tool, cache: 1h",
		config.ProviderGemini:    "thinking: level",
	} {
		c, err := configOf(t, "models: [{match: a, provider: "+provider+", "+lines+"}]")
		if err != nil {
			t.Errorf("%s: %v", provider, err)
			continue
		}
		if _, err := Open(c, nil, slog.New(slog.DiscardHandler)); err != nil {
			t.Errorf("%s: %v", provider, err)
		}
	}
	c, err := configOf(t, "models: [{match: a, provider: gemini, thinking: adaptive}]")
	if err == nil {
		_, err = Open(c, nil, slog.New(slog.DiscardHandler))
	}
	if err == nil {
		t.Error("a value of another vendor was accepted")
	}
}

// configOf reads a configuration.
func configOf(t *testing.T, text string) (*config.Config, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "berth.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return config.Load(config.Sources{Path: path})
}
