package chat

import (
	"encoding/json"
)

// A moderation is what an upstream says of the input and the output of a completion.
type moderation struct {
	Input  *scores `json:"input"`
	Output *scores `json:"output"`
}

// scores are the results of a moderation, or why there are none.
type scores struct {
	Type    string            `json:"type"` // "moderation_results" or "error"
	Model   string            `json:"model,omitempty"`
	Results []json.RawMessage `json:"results,omitempty"`
	Code    string            `json:"code,omitempty"`
	Message string            `json:"message,omitempty"`
}

// add returns the moderation with that of one more choice, which is in the form of
// Responses. Choices share their input; each has an output of its own.
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

// newScores returns a result of Responses in the form of Chat Completions, nil if it is
// none.
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
