package chat

import (
	"encoding/json"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/model"
	"github.com/berth-run/berth/model/dialogue"
)

// request converts a turn to a request of Chat Completions.
func (p *Provider) request(req *model.Request) (*request, error) {
	out := &request{
		Model:           req.Model,
		Stream:          true,
		StreamOptions:   streamOptions{IncludeUsage: true},
		Temperature:     req.Temperature,
		TopP:            req.TopP,
		ReasoningEffort: req.Reasoning.Effort,
		User:            req.User,
		Sampling:        req.Sampling,
		ServiceTier:     req.Hints.ServiceTier,
	}
	if !p.withoutHints.Load() {
		out.hints = hints{req.Hints.PromptCacheKey, req.Hints.PromptCacheRetention, req.Hints.SafetyIdentifier}
	}
	if p.opts.MaxTokens == "max_tokens" {
		out.MaxTokens = req.MaxOutputTokens
	} else {
		out.MaxCompletionTokens = req.MaxOutputTokens
	}
	if req.Text.Verbosity != "medium" { // the default, unknown to some upstreams
		out.Verbosity = req.Text.Verbosity
	}
	if top := req.TopLogprobs; req.Logprobs || top != nil && *top > 0 {
		out.Logprobs, out.TopLogprobs = true, top
	}
	var err error
	if out.ResponseFormat, err = newResponseFormat(req.Text.Format); err != nil {
		return nil, err
	}
	if err := out.setTools(req, p.custom(req.Tools)); err != nil {
		return nil, err
	}
	out.Messages, err = p.messages(req)
	return out, err
}

// noParameters is the schema of a function without parameters. Some upstreams require
// one.
var noParameters = json.RawMessage(`{"type":"object","properties":{}}`)

// setTools adds the tools and the fields that are valid only with tools.
func (r *request) setTools(req *model.Request, custom map[string]bool) error {
	if len(req.Tools) == 0 {
		return nil
	}
	for _, t := range req.Tools {
		if custom[t.Name] {
			r.Tools = append(r.Tools, newCustomTool(t.Custom))
			continue
		}
		f := function{Name: t.Name, Description: t.Description, Parameters: t.Parameters, Strict: t.Strict != nil &&
			*t.Strict}
		if len(f.Parameters) == 0 || string(f.Parameters) == "null" {
			f.Parameters = noParameters
		}
		if !dialogue.IsObject(f.Parameters) {
			return berth.Invalid("tools", "The parameters of function '%s' are not a JSON schema.", t.Name)
		}
		r.Tools = append(r.Tools, tool{Type: "function", Function: &f})
	}
	switch req.ToolChoice.Mode {
	case "none", "required":
		r.ToolChoice = req.ToolChoice.Mode
	case "function":
		r.ToolChoice = namedTool{Type: "function", Function: &toolName{req.ToolChoice.Name}}
		if custom[req.ToolChoice.Name] {
			r.ToolChoice = namedTool{Type: berth.ToolCustom, Custom: &toolName{req.ToolChoice.Name}}
		}
	}
	if !req.ParallelToolCalls { // true is the default and unknown to some upstreams
		r.ParallelToolCalls = new(bool)
	}
	return nil
}

// newResponseFormat converts text.format to response_format, which nests the schema
// one level deeper.
func newResponseFormat(raw json.RawMessage) (*responseFormat, error) {
	if len(raw) == 0 {
		return nil, nil
	}
	var f struct {
		Type string `json:"type"`
		jsonSchema
	}
	if err := json.Unmarshal(raw, &f); err != nil {
		return nil, berth.Invalid("text.format", "Invalid text.format: %v.", err)
	}
	switch f.Type {
	case "json_object":
		return &responseFormat{Type: f.Type}, nil
	case "json_schema":
		return &responseFormat{Type: f.Type, JSONSchema: &f.jsonSchema}, nil
	}
	return nil, nil
}
