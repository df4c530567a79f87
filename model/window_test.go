package model_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/model"
)

// Error messages of upstreams, from their sources and documentation.
func TestMatchesTooLong(t *testing.T) {
	for upstream, words := range map[string][2]string{
		"OpenAI": {"context_length_exceeded", "Your input exceeds the context window of this model."},
		"vLLM": {"400",
			"This model's maximum context length is 4096 tokens. However, you requested 5000 tokens."},
		"llama.cpp": {"400", "the request exceeds the available context size, try increasing it"},
		"SGLang":    {"", "The input (5000 tokens) is longer than the model's context length (4096 tokens)."},
		"TGI":       {"", "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096."},
		"LM Studio": {"",
			"Trying to keep the first 5000 tokens when context the overflows. However, the model is loaded with context length of only 4096 tokens"},
		"Mistral":   {"3051", "Prompt contains 40000 tokens, too large for model with 32768 maximum context length"},
		"Anthropic": {"invalid_request_error", "prompt is too long: 210000 tokens > 200000 maximum"},
		"Gemini": {"INVALID_ARGUMENT",
			"The input token count (1100000) exceeds the maximum number of tokens allowed (1048576)."},
		"OpenRouter": {"400", "This endpoint's maximum context length is 8192 tokens."},
	} {
		if !model.MatchesTooLong(words[0], words[1]) {
			t.Errorf("%s is not recognized", upstream)
		}
	}
	for _, words := range []string{"Too hot.",
		"max_tokens is too large: this model supports at most 4096 completion tokens.", "field required", ""} {
		if model.MatchesTooLong("bad", words) {
			t.Errorf("%q matches", words)
		}
	}
}

func TestTooLong(t *testing.T) {
	if err := fmt.Errorf("turn: %w", model.TooLong("")); !model.IsTooLong(err) ||
		berth.ErrorCode(err) != berth.CodeInvalid {
		t.Errorf("got %v", err)
	}
	for _, err := range []error{nil, errors.New("context_length_exceeded"), berth.Invalid("input",
		"context_length_exceeded")} {
		if model.IsTooLong(err) {
			t.Errorf("IsTooLong(%v) is true", err)
		}
	}
}
