package openai

import (
	"encoding/json"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/model"
	"github.com/berth-run/berth/model/dialogue"
)

// A request is the body of POST /responses. What was not asked for is not sent.
type request struct {
	Model                string            `json:"model"`
	Input                []json.RawMessage `json:"input"`
	Instructions         string            `json:"instructions,omitempty"`
	Tools                []tool            `json:"tools,omitempty"`
	ToolChoice           any               `json:"tool_choice,omitempty"` // a mode or a namedTool
	ParallelToolCalls    *bool             `json:"parallel_tool_calls,omitempty"`
	MaxOutputTokens      int               `json:"max_output_tokens,omitempty"`
	Temperature          *float64          `json:"temperature,omitempty"`
	TopP                 *float64          `json:"top_p,omitempty"`
	TopLogprobs          *int              `json:"top_logprobs,omitempty"`
	Text                 *text             `json:"text,omitempty"`
	Reasoning            *reasoning        `json:"reasoning,omitempty"`
	Include              []string          `json:"include"`
	Store                bool              `json:"store"` // false: Berth keeps the state
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

// A tool is a function; the wire wants its schema and strict even when they are null.
type tool struct {
	Type        string          `json:"type"` // function
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	Parameters  json.RawMessage `json:"parameters"`
	Strict      *bool           `json:"strict"`
}

type namedTool struct {
	Type string `json:"type"` // function
	Name string `json:"name"`
}

type text struct {
	Format    json.RawMessage `json:"format,omitempty"`
	Verbosity string          `json:"verbosity,omitempty"`
}

type reasoning struct {
	Effort  *string `json:"effort,omitempty"`
	Summary *string `json:"summary,omitempty"`
}

// minOutput is the least that OpenAI takes for max_output_tokens.
const minOutput = 16

// request writes a turn in the words of Responses.
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
	if req.MaxOutputTokens > 0 { // what is left of a bound may be less
		out.MaxOutputTokens = max(req.MaxOutputTokens, minOutput)
	}
	if top := req.TopLogprobs; req.Logprobs || top != nil && *top > 0 {
		out.TopLogprobs = top
		out.Include = append(out.Include, "message.output_text.logprobs")
	}
	if req.Reasoning.Effort != nil || req.Reasoning.Summary != nil {
		out.Reasoning = &reasoning{req.Reasoning.Effort, req.Reasoning.Summary}
	}
	if err := out.offer(req); err != nil {
		return nil, err
	}
	var err error
	out.Input, err = p.input(req.Items)
	return out, err
}

// newText leaves out the defaults, which not every server knows.
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

// offer adds the tools and how to choose among them.
func (r *request) offer(req *model.Request) error {
	if len(req.Tools) == 0 {
		return nil
	}
	for _, t := range req.Tools {
		out := tool{Type: "function", Name: t.Name, Description: t.Description, Parameters: t.Parameters, Strict: t.Strict}
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
		r.ToolChoice = namedTool{"function", req.ToolChoice.Name}
	}
	if !req.ParallelToolCalls {
		r.ParallelToolCalls = new(bool)
	}
	return nil
}
