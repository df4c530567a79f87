package main

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
)

func TestEnvironmentModels(t *testing.T) {
	for name, c := range map[string]struct {
		env  map[string]string
		want map[string]string // provider by model
	}{
		"nothing": {nil, map[string]string{"gpt-5": "", "scripted": "scripted"}},
		"all": {map[string]string{"OPENAI_API_KEY": "a", "ANTHROPIC_API_KEY": "b", "GEMINI_API_KEY": "c"},
			map[string]string{"gpt-5": providerOpenAI, "claude-sonnet-4-5": providerAnthropic, "gemini-3-pro": providerGemini, "o3": providerOpenAI}},
		"local": {map[string]string{"OPENAI_BASE_URL": "http://localhost:8000/v1"},
			map[string]string{"claude-sonnet-4-5": providerChat, "qwen3": providerChat}},
		"google's other name": {map[string]string{"GOOGLE_API_KEY": "c"}, map[string]string{"gemini-3-pro": providerGemini, "gpt-5": ""}},
	} {
		t.Run(name, func(t *testing.T) {
			for _, key := range []string{"OPENAI_API_KEY", "OPENAI_BASE_URL", "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", "GEMINI_API_KEY", "GOOGLE_API_KEY", "GOOGLE_GEMINI_BASE_URL"} {
				t.Setenv(key, c.env[key])
			}
			r, err := newRouter(&Config{}, slog.New(slog.DiscardHandler))
			if err != nil {
				t.Fatal(err)
			}
			for id, want := range c.want {
				got := ""
				if p, _, err := r.Route(id); err == nil {
					got = strings.TrimLeft(fmt.Sprintf("%T", p), "*")
				}
				if want != "" {
					want += ".Provider"
				}
				if got != want {
					t.Errorf("%s goes to %q, want %q", id, got, want)
				}
			}
		})
	}
}
