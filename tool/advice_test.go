package tool

import (
	"strings"
	"testing"
)

func TestFamily(t *testing.T) {
	for model, want := range map[string]string{
		"gpt-5.2": "gpt", "openai/gpt-5.2-codex": "gpt", "codex-mini-latest": "gpt", "o3": "gpt", "o4-mini": "gpt",
		"openai/gpt-oss-120b": "other", "claude-sonnet-4-5": "claude", "anthropic/claude-opus-4.1": "claude", "us.anthropic.claude-haiku-v1:0": "claude",
		"gemini-3-pro": "gemini", "models/gemini-2.5-flash": "gemini", "google/gemma-3-27b": "other", "qwen3-coder": "other", "": "other", "olmo-3": "other",
	} {
		if got := Family(model); got != want {
			t.Errorf("%s: got %s, want %s", model, got, want)
		}
	}
}

// Every family has its own words, after what all are told, and no other tool has any.
func TestAdvise(t *testing.T) {
	shell := NewShell(nil, nil, ShellLimits{})
	seen := map[string]bool{}
	for _, model := range []string{"gpt-5", "claude-x", "gemini-3", "llama-4"} {
		got := Advise(shell, model).Description
		if !strings.HasPrefix(got, strings.TrimRight(shell.Spec().Function.Description, "\n")) || seen[got] {
			t.Errorf("%s is told %q", model, got)
		}
		seen[got] = true
	}
	if got, want := Advise(ApplyPatch{}, "gpt-5").Description, (ApplyPatch{}).Spec().Function.Description; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
