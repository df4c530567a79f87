package openai

import (
	"encoding/json"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/model"
	"github.com/berth-run/berth/model/dialogue"
)

// A request is the body of POST /responses. It omits what the client did not set.
type request struct {
	Model                string            `json:"model"`
	Input                []json.RawMessage `json:"input"`
	Instructions         string            `json:"instructions,omitempty"`
	Tools                []any             `json:"tools,omitempty"`       // of tool, berth.CustomTool or berth.Tool
	ToolChoice           any               `json:"tool_choice,omitempty"` // a mode or a namedTool
	ParallelToolCalls    *bool             `json:"parallel_tool_calls,omitempty"`
	MaxOutputTokens      int               `json:"max_output_tokens,omitempty"`
	MaxToolCalls         int               `json:"max_tool_calls,omitempty"`
	Truncation           string            `json:"truncation,omitempty"`
	Temperature          *float64          `json:"temperature,omitempty"`
	TopP                 *float64          `json:"top_p,omitempty"`
	TopLogprobs          *int              `json:"top_logprobs,omitempty"`
	Text                 *text             `json:"text,omitempty"`
	Reasoning            *reasoning        `json:"reasoning,omitempty"`
	Include              []string          `json:"include"`
	Store                bool              `json:"store"` // false: Berth stores the state
	Stream               bool              `json:"stream"`
	User                 string            `json:"user,omitempty"`
	PromptCacheKey       string            `json:"prompt_cache_key,omitempty"`
	PromptCacheRetention string            `json:"prompt_cache_retention,omitempty"`
	SafetyIdentifier     string            `json:"safety_identifier,omitempty"`
	ServiceTier          string            `json:"service_tier,omitempty"`

	PromptCacheOptions *berth.PromptCacheOptions `json:"prompt_cache_options,omitempty"`
	AccessPrograms     json.RawMessage           `json:"access_programs,omitempty"`
	Moderation         json.RawMessage           `json:"moderation,omitempty"`
}

// A tool is a function. The wire requires parameters and strict even if they are null.
type tool struct {
	Type        string          `json:"type"` // function
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	Parameters  json.RawMessage `json:"parameters"`
	Strict      *bool           `json:"strict"`
}

type namedTool struct {
	Type string `json:"type"` // function, custom, or the type of the upstream's own tool
	Name string `json:"name,omitempty"`
}

type text struct {
	Format    json.RawMessage `json:"format,omitempty"`
	Verbosity string          `json:"verbosity,omitempty"`
}

type reasoning struct {
	Effort  *string `json:"effort,omitempty"`
	Summary *string `json:"summary,omitempty"`
}

// minOutput is the least max_output_tokens that OpenAI accepts.
const minOutput = 16

// request converts a turn to a request of Responses.
func (p *Provider) request(req *model.Request) (*request, error) {
	if err := model.RefuseSampling(req.Sampling); err != nil {
		return nil, err
	}
	out := &request{
		Model:                req.Model,
		Instructions:         req.Instructions,
		Temperature:          req.Temperature,
		TopP:                 req.TopP,
		Text:                 newText(req.Text),
		Include:              []string{"reasoning.encrypted_content"},
		Stream:               true,
		User:                 req.User,
		PromptCacheKey:       req.Hints.PromptCacheKey,
		PromptCacheRetention: req.Hints.PromptCacheRetention,
		SafetyIdentifier:     req.Hints.SafetyIdentifier,
		ServiceTier:          req.Hints.ServiceTier,
		PromptCacheOptions:   req.Hints.PromptCacheOptions,
		AccessPrograms:       req.Hints.AccessPrograms,
		Moderation:           req.Hints.Moderation,
	}
	if req.MaxOutputTokens > 0 { // the rest of a budget may be less than the minimum
		out.MaxOutputTokens = max(req.MaxOutputTokens, minOutput)
	}
	if top := req.TopLogprobs; req.Logprobs || top != nil && *top > 0 {
		out.TopLogprobs = top
		out.Include = append(out.Include, "message.output_text.logprobs")
	}
	if req.Reasoning.Effort != nil || req.Reasoning.Summary != nil {
		out.Reasoning = &reasoning{req.Reasoning.Effort, req.Reasoning.Summary}
	}
	custom := p.custom(req.Tools)
	if err := out.setTools(req, custom); err != nil {
		return nil, err
	}
	var err error
	out.Input, err = p.input(req.Items, custom)
	return out, err
}

// newText omits the defaults, which not every server knows.
func newText(t berth.TextConfig) *text {
	var format struct {
		Type string `json:"type"`
	}
	out := text{Format: t.Format, Verbosity: t.Verbosity}
	if len(t.Format) == 0 || json.Unmarshal(t.Format, &format) == nil && format.Type == "text" {
		out.Format = nil
	}
	if t.Verbosity == "medium" {
		out.Verbosity = ""
	}
	if out.Format == nil && out.Verbosity == "" {
		return nil
	}
	return &out
}

// setTools adds the tools and the tool choice.
func (r *request) setTools(req *model.Request, custom map[string]bool) error {
	if len(req.Tools) == 0 {
		return nil
	}
	for _, t := range req.Tools {
		if t.Native != nil {
			r.Tools = append(r.Tools, t.Native)
			r.MaxToolCalls = req.MaxToolCalls
			if t.Native.Type() == berth.ToolComputerPreview {
				r.Truncation = "auto" // OpenAI requires it
			}
			continue
		}
		if custom[t.Name] {
			r.Tools = append(r.Tools, t.Custom)
			continue
		}
		out := tool{Type: "function", Name: t.Name, Description: t.Description, Parameters: t.Parameters,
			Strict: t.Strict}
		if len(out.Parameters) == 0 || string(out.Parameters) == "null" {
			out.Parameters, out.Strict = json.RawMessage(`{"type":"object","properties":{}}`), new(bool)
		}
		if !dialogue.IsObject(out.Parameters) {
			return berth.Invalid("tools", "The parameters of function '%s' are not a JSON schema.", t.Name)
		}
		r.Tools = append(r.Tools, out)
	}
	switch req.ToolChoice.Mode {
	case "none", "required":
		r.ToolChoice = req.ToolChoice.Mode
	case "function":
		choice := namedTool{"function", req.ToolChoice.Name}
		if custom[req.ToolChoice.Name] {
			choice.Type = berth.ToolCustom
		}
		for _, t := range req.Tools {
			if t.Name == req.ToolChoice.Name && t.Native != nil {
				choice = namedTool{Type: t.Native.Type()}
			}
		}
		r.ToolChoice = choice
	}
	if !req.ParallelToolCalls {
		r.ParallelToolCalls = new(bool)
	}
	return nil
}
