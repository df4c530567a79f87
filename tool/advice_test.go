package tool

import "testing"

func TestFamily(t *testing.T) {
	for model, want := range map[string]string{
		"gpt-5.2": "gpt", "openai/gpt-5.2-codex": "gpt", "codex-mini-latest": "gpt", "o3": "gpt", "o4-mini": "gpt",
		"openai/gpt-oss-120b": "other", "claude-sonnet-4-5": "claude", "anthropic/claude-opus-4.1": "claude",
		"us.anthropic.claude-haiku-v1:0": "claude",
		"gemini-3-pro":                   "gemini", "models/gemini-2.5-flash": "gemini", "google/gemma-3-27b": "other",
		"qwen3-coder": "other", "": "other", "olmo-3": "other",
	} {
		if got := Family(model); got != want {
			t.Errorf("%s: got %s, want %s", model, got, want)
		}
	}
}
