package chat

import (
	"encoding/json"
)

// A moderation is an upstream's moderation of the input and the output of a completion.
type moderation struct {
	Input  *scores `json:"input"`
	Output *scores `json:"output"`
}

// scores are the results of a moderation, or an error.
type scores struct {
	Type    string            `json:"type"` // "moderation_results" or "error"
	Model   string            `json:"model,omitempty"`
	Results []json.RawMessage `json:"results,omitempty"`
	Code    string            `json:"code,omitempty"`
	Message string            `json:"message,omitempty"`
}

// add returns the moderation with that of one more choice, given in the form of the
// Responses API. Choices have a common input and separate outputs.
func (m *moderation) add(raw json.RawMessage) *moderation {
	var one struct{ Input, Output json.RawMessage }
	if len(raw) == 0 || json.Unmarshal(raw, &one) != nil {
		return m
	}
	input, output := newScores(one.Input), newScores(one.Output)
	if m == nil {
		return &moderation{Input: input, Output: output}
	}
	if m.Output != nil && output != nil && m.Output.Type == output.Type {
		m.Output.Results = append(m.Output.Results, output.Results...)
	}
	return m
}

// newScores converts a result of the Responses API to the form of Chat Completions. It
// returns nil if raw is not a result.
func newScores(raw json.RawMessage) *scores {
	var s scores
	if len(raw) == 0 || string(raw) == "null" || json.Unmarshal(raw, &s) != nil {
		return nil
	}
	if s.Type == "error" {
		return &s
	}
	return &scores{Type: "moderation_results", Model: s.Model, Results: []json.RawMessage{raw}}
}
