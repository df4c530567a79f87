package chat

import (
	"testing"

	"github.com/berth-run/berth/model/upstream"
)

// Clients know the fields of Responses, not those of Chat Completions.
func TestParams(t *testing.T) {
	for param, want := range map[string]string{
		"messages[3].content": "input", "messages": "input", "max_tokens": "max_output_tokens",
		"max_completion_tokens":       "max_output_tokens",
		"response_format.json_schema": "text.format", "reasoning_effort": "reasoning.effort",
		"temperature": "temperature", "": "",
	} {
		if got := explain(&upstream.Refusal{Status: 400, Body: []byte(`{"error":{"param":"` + param +
			`"}}`)}).Param; got != want {
			t.Errorf("%q: got %q, want %q", param, got, want)
		}
	}
}
