package modeltest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/model"
)

// chatRequest has every parameter that OpenAI documents for Chat Completions. Those of
// type any are accepted without checks.
type chatRequest struct {
	Model               string            `json:"model"`
	Messages            []json.RawMessage `json:"messages"`
	Stream              bool              `json:"stream"`
	StreamOptions       *chatStreamOption `json:"stream_options"`
	Tools               []chatTool        `json:"tools"`
	ToolChoice          json.RawMessage   `json:"tool_choice"`
	ParallelToolCalls   *bool             `json:"parallel_tool_calls"`
	MaxTokens           *int              `json:"max_tokens"`
	MaxCompletionTokens *int              `json:"max_completion_tokens"`
	Temperature         *float64          `json:"temperature"`
	TopP                *float64          `json:"top_p"`
	Logprobs            bool              `json:"logprobs"`
	TopLogprobs         *int              `json:"top_logprobs"`
	ResponseFormat      *chatFormat       `json:"response_format"`
	ReasoningEffort     *string           `json:"reasoning_effort"`
	Verbosity           *string           `json:"verbosity"`
	User                string            `json:"user"`
	Stop                []string          `json:"stop"`

	FrequencyPenalty any `json:"frequency_penalty"`
	PresencePenalty  any `json:"presence_penalty"`
	LogitBias        any `json:"logit_bias"`
	Metadata         any `json:"metadata"`
	N                any `json:"n"`
	Seed             any `json:"seed"`
	ServiceTier      any `json:"service_tier"`
	Store            any `json:"store"`
	PromptCacheKey   any `json:"prompt_cache_key"`
	SafetyIdentifier any `json:"safety_identifier"`

	PromptCacheRetention any `json:"prompt_cache_retention"`
}

type chatStreamOption struct {
	IncludeUsage       bool `json:"include_usage"`
	IncludeObfuscation bool `json:"include_obfuscation"`
}

type chatTool struct {
	Type     string       `json:"type"`
	Function chatFunction `json:"function"`
}

type chatFunction struct {
	Name        string          `json:"name"`
	Description string          `json:"description"`
	Parameters  json.RawMessage `json:"parameters"`
	Strict      *bool           `json:"strict"`
}

type chatFormat struct {
	Type       string          `json:"type"`
	JSONSchema *chatJSONSchema `json:"json_schema"`
}

type chatJSONSchema struct {
	Name        string          `json:"name"`
	Description string          `json:"description"`
	Schema      json.RawMessage `json:"schema"`
	Strict      *bool           `json:"strict"`
}

// functionName matches names that OpenAI accepts for functions and schemas.
var functionName = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`)

// A check records the first fault of a request.
type check struct{ refusal *Refusal }

// want records a fault unless ok. It returns ok.
func (c *check) want(ok bool, format string, args ...any) bool {
	if !ok && c.refusal == nil {
		c.refusal = &Refusal{Status: http.StatusBadRequest, Message: fmt.Sprintf(format, args...)}
	}
	return ok
}

// strictly decodes raw and records unknown fields as a fault.
func (c *check) strictly(raw []byte, path string, into any) bool {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	err := d.Decode(into)
	return c.want(err == nil, "%s: %v", path, err)
}

// decode decodes a request, or returns OpenAI's refusal.
func (h *ChatHandler) decode(body []byte) (*Request, *Refusal) {
	var c check
	var r chatRequest
	if !c.strictly(body, "the body", &r) {
		return nil, c.refusal
	}
	c.want(r.Model != "", "you must provide a model parameter")
	if len(h.Models) > 0 && !slices.Contains(h.Models, r.Model) {
		return nil, &Refusal{Status: http.StatusNotFound, Code: "model_not_found",
			Message: fmt.Sprintf("The model `%s` does not exist", r.Model)}
	}
	c.want(r.Stream, "this double streams only")
	got := &Request{Model: r.Model, Temperature: r.Temperature, TopP: r.TopP, Logprobs: r.Logprobs, User: r.User,
		Stop: r.Stop, ParallelToolCalls: true}
	c.parameters(&r, got)
	c.tools(&r, got)
	c.format(r.ResponseFormat, got, body)
	m := chatMessages{check: &c, reasoning: h.Reasoning}
	m.read(r.Messages, got)
	return got, c.refusal
}

func (c *check) parameters(r *chatRequest, got *Request) {
	within := func(name string, v *float64, high float64) {
		c.want(v == nil || *v >= 0 && *v <= high, "%s must be between 0 and %g", name, high)
	}
	within("temperature", r.Temperature, 2)
	within("top_p", r.TopP, 1)
	if r.TopLogprobs != nil {
		got.TopLogprobs = *r.TopLogprobs
		c.want(r.Logprobs, "top_logprobs needs logprobs")
		c.want(*r.TopLogprobs >= 0 && *r.TopLogprobs <= 20, "top_logprobs must be between 0 and 20")
	}
	c.want(r.MaxTokens == nil || r.MaxCompletionTokens == nil,
		"max_tokens and max_completion_tokens exclude each other")
	for _, n := range []*int{r.MaxTokens, r.MaxCompletionTokens} {
		if n != nil {
			got.MaxOutputTokens = *n
			c.want(*n >= 1, "the maximum of tokens must be at least 1")
		}
	}
	if r.ReasoningEffort != nil {
		got.Effort = *r.ReasoningEffort
		c.want(slices.Contains([]string{"none", "minimal", "low", "medium", "high", "xhigh"}, *r.ReasoningEffort),
			"reasoning_effort %q", *r.ReasoningEffort)
	}
	c.want(r.Verbosity == nil || slices.Contains([]string{"low", "medium", "high"}, *r.Verbosity),
		"verbosity is not low, medium or high")
}

func (c *check) tools(r *chatRequest, got *Request) {
	c.want(r.Tools == nil || len(r.Tools) > 0, "tools must not be empty")
	names := map[string]bool{}
	for i, t := range r.Tools {
		f := t.Function
		c.want(t.Type == "function", "tools[%d].type is %q", i, t.Type)
		c.want(functionName.MatchString(f.Name), "tools[%d].function.name %q", i, f.Name)
		c.want(!names[f.Name], "tools[%d]: %s is there twice", i, f.Name)
		names[f.Name] = true
		var schema struct{ Type string }
		if c.want(len(f.Parameters) > 0 && json.Unmarshal(f.Parameters, &schema) == nil, "tools[%d]: no parameters",
			i) {
			c.want(schema.Type == "object", "tools[%d]: the schema's type is %q, not object", i, schema.Type)
		}
		if f.Strict != nil && *f.Strict {
			c.strictSchema(fmt.Sprintf("tools[%d]", i), f.Parameters)
		}
		got.Tools = append(got.Tools, berth.FunctionTool{Type: t.Type, Name: f.Name, Description: f.Description,
			Parameters: f.Parameters, Strict: f.Strict})
	}
	if r.ParallelToolCalls != nil {
		c.want(len(r.Tools) > 0, "parallel_tool_calls goes only with tools")
		got.ParallelToolCalls = *r.ParallelToolCalls
	}
	if r.ToolChoice == nil {
		return
	}
	c.want(len(r.Tools) > 0, "tool_choice goes only with tools")
	if json.Unmarshal(r.ToolChoice, &got.ToolChoice.Mode) == nil {
		c.want(slices.Contains([]string{"auto", "none", "required"}, got.ToolChoice.Mode), "tool_choice %q",
			got.ToolChoice.Mode)
		return
	}
	var named struct {
		Type     string `json:"type"`
		Function struct {
			Name string `json:"name"`
		} `json:"function"`
	}
	c.strictly(r.ToolChoice, "tool_choice", &named)
	c.want(named.Type == "function" && names[named.Function.Name], "tool_choice names %q, which is no tool",
		named.Function.Name)
	got.ToolChoice = model.ToolChoice{Mode: "function", Name: named.Function.Name}
}

// strictSchema checks the two rules of strict schemas that are broken most often.
func (c *check) strictSchema(path string, raw json.RawMessage) {
	var schema struct {
		Properties           map[string]json.RawMessage `json:"properties"`
		Required             []string                   `json:"required"`
		AdditionalProperties any                        `json:"additionalProperties"`
	}
	if !c.want(json.Unmarshal(raw, &schema) == nil, "%s: not a schema", path) {
		return
	}
	c.want(schema.AdditionalProperties == false, "%s: a strict schema needs additionalProperties: false", path)
	for name := range schema.Properties {
		c.want(slices.Contains(schema.Required, name), "%s: a strict schema requires all properties; %s is not", path,
			name)
	}
}

func (c *check) format(f *chatFormat, got *Request, body []byte) {
	if f == nil || f.Type == "text" {
		return
	}
	format := map[string]any{"type": f.Type}
	switch f.Type {
	case "json_object":
		c.want(bytes.Contains(bytes.ToLower(body[:bytes.LastIndex(body, []byte("response_format"))]), []byte("json")),
			"the messages must contain the word json")
	case "json_schema":
		s := f.JSONSchema
		if !c.want(s != nil && functionName.MatchString(s.Name) && len(s.Schema) > 0,
			"json_schema needs a name and a schema") {
			return
		}
		format["name"], format["schema"] = s.Name, s.Schema
		if s.Description != "" {
			format["description"] = s.Description
		}
		if s.Strict != nil {
			format["strict"] = *s.Strict
			if *s.Strict {
				c.strictSchema("response_format", s.Schema)
			}
		}
	default:
		c.want(false, "response_format.type %q", f.Type)
	}
	got.Format, _ = json.Marshal(format) // decoded from JSON
}

// isImage reports whether url is an address or data that OpenAI accepts as an image.
func isImage(url string) bool {
	return strings.HasPrefix(url, "https://") || strings.HasPrefix(url, "http://") ||
		strings.HasPrefix(url, "data:image/") && strings.Contains(url, ";base64,")
}
