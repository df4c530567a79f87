package modeltest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/model"
)

// responsesRequest has every parameter of Responses for stateless requests. Those of
// type any are accepted without checks.
type responsesRequest struct {
	Model             string            `json:"model"`
	Input             []json.RawMessage `json:"input"`
	Instructions      *string           `json:"instructions"`
	Tools             []json.RawMessage `json:"tools"`
	ToolChoice        json.RawMessage   `json:"tool_choice"`
	ParallelToolCalls *bool             `json:"parallel_tool_calls"`
	MaxOutputTokens   *int              `json:"max_output_tokens"`
	MaxToolCalls      *int              `json:"max_tool_calls"`
	Temperature       *float64          `json:"temperature"`
	TopP              *float64          `json:"top_p"`
	TopLogprobs       *int              `json:"top_logprobs"`
	Text              *struct {
		Format    json.RawMessage `json:"format"`
		Verbosity string          `json:"verbosity"`
	} `json:"text"`
	Reasoning *struct {
		Effort  *string `json:"effort"`
		Summary *string `json:"summary"`
	} `json:"reasoning"`
	Include []string `json:"include"`
	Store   *bool    `json:"store"`
	Stream  bool     `json:"stream"`
	User    string   `json:"user"`

	PromptCacheKey       any `json:"prompt_cache_key"`
	PromptCacheRetention any `json:"prompt_cache_retention"`
	PromptCacheOptions   any `json:"prompt_cache_options"`
	Moderation           any `json:"moderation"`
	AccessPrograms       any `json:"access_programs"`
	SafetyIdentifier     any `json:"safety_identifier"`
	ServiceTier          any `json:"service_tier"`
	Metadata             any `json:"metadata"`
	Truncation           any `json:"truncation"`
	StreamOptions        any `json:"stream_options"`
}

type responsesTool struct {
	Type        string          `json:"type"`
	Name        string          `json:"name"`
	Description string          `json:"description"`
	Parameters  json.RawMessage `json:"parameters"`
	Strict      json.RawMessage `json:"strict"`
}

// decodeResponses decodes a request, or returns OpenAI's refusal.
func decodeResponses(body []byte) (*Request, *Refusal) {
	var c check
	var r responsesRequest
	if !c.strictly(body, "Unknown parameter", &r) {
		return nil, c.refusal
	}
	c.want(r.Model != "", "Missing required parameter: 'model'.")
	c.want(r.Stream && r.Store != nil && !*r.Store, "this double only streams and is stateless")
	got := &Request{Model: r.Model, Temperature: r.Temperature, TopP: r.TopP, User: r.User,
		ParallelToolCalls: r.ParallelToolCalls == nil || *r.ParallelToolCalls}
	c.responsesParameters(&r, got)
	c.responsesTools(&r, got)
	if r.Text != nil {
		c.responsesFormat(r.Text.Format, got, r.Input)
		c.want(contains(r.Text.Verbosity, "", "low", "medium", "high"), "text.verbosity: %q", r.Text.Verbosity)
	}
	if r.Instructions != nil {
		got.System = *r.Instructions
	}
	in := responsesInput{check: &c, calls: map[string]int{}, outputs: map[string]Message{}}
	in.read(r.Input, got)
	return got, c.refusal
}

func (c *check) responsesParameters(r *responsesRequest, got *Request) {
	within := func(name string, v *float64, high float64) {
		c.want(v == nil || *v >= 0 && *v <= high, "Invalid '%s': must be between 0 and %g", name, high)
	}
	within("temperature", r.Temperature, 2)
	within("top_p", r.TopP, 1)
	if n := r.MaxOutputTokens; n != nil {
		got.MaxOutputTokens = *n
		c.want(*n >= 16,
			"Invalid 'max_output_tokens': integer below minimum value. Expected a value >= 16, but got %d instead.", *n)
	}
	for _, i := range r.Include {
		c.want(contains(i, "reasoning.encrypted_content", "message.output_text.logprobs", "file_search_call.results",
			"web_search_call.results", "code_interpreter_call.outputs"), "Invalid value: '%s'.", i)
	}
	got.Logprobs = slices.Contains(r.Include, "message.output_text.logprobs")
	if n := r.TopLogprobs; n != nil {
		got.TopLogprobs = *n
		c.want(*n >= 0 && *n <= 20, "Invalid 'top_logprobs'")
	}
	if r.Reasoning != nil {
		if e := r.Reasoning.Effort; e != nil {
			got.Effort = *e
			c.want(contains(*e, "none", "minimal", "low", "medium", "high", "xhigh", "max"), "Invalid value: '%s'.", *e)
		}
		s := r.Reasoning.Summary
		c.want(s == nil || contains(*s, "auto", "concise", "detailed"), "Invalid value for reasoning.summary")
	}
}

func (c *check) responsesTools(r *responsesRequest, got *Request) {
	names := map[string]bool{}
	for i, raw := range r.Tools {
		path := fmt.Sprintf("tools[%d]", i)
		if own := c.ownTool(raw); own != nil {
			names[own.Name] = true
			got.Tools = append(got.Tools, *own)
			continue
		}
		var t responsesTool
		c.strictly(raw, path, &t)
		c.want(t.Type == "function", "Invalid value: '%s'.", t.Type)
		c.want(functionName.MatchString(t.Name), "Invalid '%s.name': string does not match pattern.", path)
		c.want(!names[t.Name], "%s: %s is there twice", path, t.Name)
		names[t.Name] = true
		c.want(len(t.Parameters) > 0 && len(t.Strict) > 0,
			"Missing required parameter: '%s.parameters' or '%s.strict'.", path, path)
		var schema struct{ Type string }
		if string(t.Parameters) != "null" {
			c.want(json.Unmarshal(t.Parameters, &schema) == nil && schema.Type == "object",
				"Invalid schema for function '%s': schema must be of type object.", t.Name)
		}
		var strict *bool
		if c.want(json.Unmarshal(t.Strict, &strict) == nil, "%s.strict", path) && strict != nil && *strict {
			c.strictSchema(path, t.Parameters)
		}
		got.Tools = append(got.Tools, berth.FunctionTool{Type: t.Type, Name: t.Name, Description: t.Description,
			Parameters: t.Parameters, Strict: strict})
	}
	if r.ToolChoice == nil {
		return
	}
	if json.Unmarshal(r.ToolChoice, &got.ToolChoice.Mode) == nil {
		c.want(contains(got.ToolChoice.Mode, "auto", "none", "required"), "Invalid value: '%s'.", got.ToolChoice.Mode)
		c.want(len(r.Tools) > 0 || got.ToolChoice.Mode != "required",
			"Tool choice 'required' must be specified with 'tools' parameter.")
		return
	}
	var named struct {
		Type string `json:"type"`
		Name string `json:"name"`
	}
	c.strictly(r.ToolChoice, "tool_choice", &named)
	if named.Name == "" && ownCalls[named.Type] != "" {
		named.Type, named.Name = "function", named.Type
	}
	c.want((named.Type == "function" || named.Type == "custom") && names[named.Name],
		"Tool choice '%s' not found in 'tools' parameter.", named.Name)
	got.ToolChoice = model.ToolChoice{Mode: "function", Name: named.Name}
}

func (c *check) responsesFormat(raw json.RawMessage, got *Request, input []json.RawMessage) {
	if len(raw) == 0 {
		return
	}
	var f struct {
		Type        string          `json:"type"`
		Name        string          `json:"name"`
		Description string          `json:"description"`
		Schema      json.RawMessage `json:"schema"`
		Strict      *bool           `json:"strict"`
	}
	c.strictly(raw, "text.format", &f)
	switch f.Type {
	case "text":
		return
	case "json_object":
		msg := bytes.ToLower(bytes.Join(slices.Collect(func(yield func([]byte) bool) {
			for _, in := range input {
				if !yield(in) {
					return
				}
			}
		}), nil))
		c.want(bytes.Contains(msg, []byte("json")),
			"Response input messages must contain the word 'json' in some form to use 'text.format' of type 'json_object'.")
	case "json_schema":
		c.want(functionName.MatchString(f.Name) && len(f.Schema) > 0,
			"Missing required parameter: 'text.format.name' or 'text.format.schema'.")
		if f.Strict != nil && *f.Strict {
			c.strictSchema("text.format", f.Schema)
		}
	default:
		c.want(false, "Invalid value: '%s'.", f.Type)
	}
	got.Format = raw
}
