package chat

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/exchange"
	"github.com/berth-run/berth/api/request"
	"github.com/berth-run/berth/internal/rule"
)

// maxChoices is the maximum of "n". Each choice is a run of its own.
const maxChoices = 8

// completionFields are the rules of the fields of POST /v1/chat/completions, as in
// CreateChatCompletionRequest of OpenAI's OpenAPI document, with include_reasoning added.
// Every field is used or refused; null counts as absent. newRules adds "tools" and
// "tool_choice", whose rules depend on the server's tools.
//
// To add a field, add a rule here and a field to completionRequest.
var completionFields = rule.Fields{
	"frequency_penalty":      rule.Decimal(-2, 2),
	"function_call":          functionChoice,
	"functions":              rule.AtLeastOne(rule.List(legacyFunction, 128)),
	"include_reasoning":      rule.Boolean, // an extension, which some upstreams have too
	"logit_bias":             logitBias,
	"logprobs":               rule.Boolean,
	"max_completion_tokens":  rule.Integer(1, math.MaxInt32),
	"max_tokens":             rule.Integer(1, math.MaxInt32),
	"messages":               rule.AtLeastOne(rule.List(completionMessageRule, 0)),
	"metadata":               rule.Metadata,
	"modalities":             rule.List(onlyText, 2),
	"model":                  rule.Text(1, 256),
	"n":                      rule.Integer(1, maxChoices),
	"parallel_tool_calls":    rule.Boolean,
	"presence_penalty":       rule.Decimal(-2, 2),
	"prompt_cache_key":       rule.Text(0, 1024),
	"prompt_cache_retention": rule.OneOf("in_memory", "in-memory", "24h"),
	"reasoning_effort":       rule.OneOf("none", "minimal", "low", "medium", "high", "xhigh", "max"),
	"response_format":        rule.ByType(responseFormats),
	"safety_identifier":      rule.Text(0, 64),
	"seed":                   rule.Integer(math.MinInt64, math.MaxInt64),
	"service_tier":           rule.OneOf("auto", "default", "flex", "scale", "priority", "fast"),
	"stop":                   stopRule,
	"store":                  rule.Boolean,
	"stream":                 rule.Boolean,
	"stream_options": rule.Object(rule.Fields{"include_usage": rule.Boolean,
		"include_obfuscation": rule.Boolean}),
	"temperature":  rule.Decimal(0, 2),
	"top_logprobs": rule.Integer(0, 20),
	"top_p":        rule.Decimal(0, 1),
	"user":         rule.Text(0, 1024),
	"verbosity":    rule.OneOf("low", "medium", "high"),

	"moderation":           request.Moderation,
	"prompt_cache_options": request.PromptCacheOptions,

	"web_search_options": webSearchRule,

	"audio":      rule.Unsupported,
	"prediction": rule.Unsupported,
}

// A completionRequest is the body of POST /v1/chat/completions. Nil pointers and empty raw
// messages mean that the client omitted the field.
type completionRequest struct {
	Model               string              `json:"model"`
	Messages            []completionMessage `json:"messages"`
	Tools               []json.RawMessage   `json:"tools"`
	ToolChoice          json.RawMessage     `json:"tool_choice"`
	Functions           []json.RawMessage   `json:"functions"`     // the predecessor of tools
	FunctionCall        json.RawMessage     `json:"function_call"` // the predecessor of tool_choice
	ParallelToolCalls   *bool               `json:"parallel_tool_calls"`
	ResponseFormat      json.RawMessage     `json:"response_format"`
	N                   *int                `json:"n"`
	Stream              bool                `json:"stream"`
	StreamOptions       *completionOptions  `json:"stream_options"`
	Store               bool                `json:"store"`
	Metadata            map[string]string   `json:"metadata"`
	Logprobs            bool                `json:"logprobs"`
	TopLogprobs         *int                `json:"top_logprobs"`
	MaxTokens           *int                `json:"max_tokens"`
	MaxCompletionTokens *int                `json:"max_completion_tokens"`
	Temperature         *float64            `json:"temperature"`
	TopP                *float64            `json:"top_p"`
	FrequencyPenalty    *float64            `json:"frequency_penalty"`
	PresencePenalty     *float64            `json:"presence_penalty"`
	Seed                *int64              `json:"seed"`
	LogitBias           map[string]int      `json:"logit_bias"`
	Stop                stops               `json:"stop"`
	ReasoningEffort     *string             `json:"reasoning_effort"`
	IncludeReasoning    bool                `json:"include_reasoning"`
	Verbosity           string              `json:"verbosity"`
	ServiceTier         string              `json:"service_tier"`
	User                *string             `json:"user"`
	SafetyIdentifier    *string             `json:"safety_identifier"`
	PromptCacheKey      *string             `json:"prompt_cache_key"`
	CacheRetention      *string             `json:"prompt_cache_retention"`
	Moderation          json.RawMessage     `json:"moderation"`

	PromptCacheOptions *berth.PromptCacheOptions `json:"prompt_cache_options"`
	WebSearchOptions   *webSearchOptions         `json:"web_search_options"`
}

type completionOptions struct {
	IncludeUsage       bool  `json:"include_usage"`
	IncludeObfuscation *bool `json:"include_obfuscation"`
}

// stops is the value of "stop": a string or a list of strings.
type stops []string

func (s *stops) UnmarshalJSON(b []byte) error {
	var one *string
	if json.Unmarshal(b, &one) == nil {
		*s = nil
		if one != nil && *one != "" {
			*s = stops{*one}
		}
		return nil
	}
	return json.Unmarshal(b, (*[]string)(s))
}

// stopRule allows a string or a list of up to four.
func stopRule(at string, v any) error {
	switch v.(type) {
	case string:
		return rule.Text(0, maxStop)(at, v)
	case []any:
		return rule.List(rule.Text(1, maxStop), 4)(at, v)
	}
	return rule.WrongType(at, "one of a string or array of strings", v)
}

const maxStop = 1024

// onlyText refuses modalities other than text.
func onlyText(at string, v any) error {
	if err := rule.OneOf("text", "audio")(at, v); err != nil || v == "text" {
		return err
	}
	return rule.Errorf("unsupported_value", at,
		"Unsupported value: '%s' cannot be 'audio'. This server supports text only.", at)
}

// logitBias allows an object of numbers from -100 to 100 by token id.
func logitBias(at string, v any) error {
	bias, ok := v.(map[string]any)
	if !ok {
		return rule.WrongType(at, "an object", v)
	}
	if len(bias) > 1024 {
		return rule.Errorf("object_above_max_properties", at,
			"Invalid '%s': too many properties. Expected an object with at most 1024 properties, but got an object with %d properties instead.",
			at, len(bias))
	}
	for token, n := range bias {
		if err := rule.Matching("^[0-9]+$", 16)(at, token); err != nil {
			return err
		}
		if err := rule.Integer(-100, 100)(rule.Join(at, token), n); err != nil {
			return err
		}
	}
	return nil
}

// decode reads the body of POST /v1/chat/completions.
func decode(x *exchange.Exchange, r *http.Request, rules *completionRules) (*completionRequest, error) {
	var req completionRequest
	if err := x.Decode(r, rules.shape, &req); err != nil {
		return nil, err
	}
	return &req, req.check()
}

// check checks the dependencies between fields.
func (c *completionRequest) check() error {
	offered := len(c.Tools) + len(c.Functions)
	switch {
	case c.StreamOptions != nil && !c.Stream:
		return berth.Invalid("stream_options",
			"The 'stream_options' parameter is only allowed when 'stream' is enabled.")
	case c.TopLogprobs != nil && !c.Logprobs:
		return berth.Invalid("top_logprobs", "The 'top_logprobs' parameter is only allowed when 'logprobs' is enabled.")
	case c.MaxTokens != nil && c.MaxCompletionTokens != nil:
		return rule.Errorf("invalid_parameter_combination", "max_tokens",
			"Setting 'max_tokens' and 'max_completion_tokens' at the same time is not supported.")
	case len(c.Functions) > 0 && (len(c.Tools) > 0 || given(c.ToolChoice)):
		return berth.Invalid("functions",
			"The deprecated 'functions' cannot be used together with 'tools' and 'tool_choice'.")
	case given(c.ToolChoice) && offered == 0:
		return berth.Invalid("tool_choice",
			"Invalid value for 'tool_choice': 'tool_choice' is only allowed when 'tools' are specified.")
	case given(c.FunctionCall) && len(c.Functions) == 0:
		return berth.Invalid("function_call",
			"Invalid value for 'function_call': 'function_call' is only allowed when 'functions' are specified.")
	case c.ParallelToolCalls != nil && offered == 0:
		return berth.Invalid("parallel_tool_calls",
			"Invalid value for 'parallel_tool_calls': 'parallel_tool_calls' is only allowed when 'tools' are specified.")
	case slices.Contains(c.Stop, ""):
		return berth.Invalid("stop", "Invalid 'stop': empty string.")
	case request.IsJSONObject(c.ResponseFormat) && !slices.ContainsFunc(c.Messages, func(m completionMessage) bool {
		return request.MentionsJSON(m.Content)
	}):
		return berth.Invalid("messages",
			"'messages' must contain the word 'json' in some form, to use 'response_format' of type 'json_object'.")
	}
	return nil
}

// given reports whether a raw field is present and not null.
func given(raw json.RawMessage) bool { return len(raw) > 0 && !request.IsNull(raw) }

// legacy reports whether the client uses the predecessors of tools.
func (c *completionRequest) legacy() bool { return len(c.Functions) > 0 }

// response returns the request for the response of one choice. The response is not stored;
// see Door.save.
func (c *completionRequest) response(rules *completionRules) (*berth.ResponseRequest, error) {
	store := false
	r := &berth.ResponseRequest{
		Model:                c.Model,
		ParallelToolCalls:    c.ParallelToolCalls,
		MaxOutputTokens:      c.MaxCompletionTokens,
		Temperature:          c.Temperature,
		TopP:                 c.TopP,
		TopLogprobs:          c.TopLogprobs,
		Store:                &store,
		ServiceTier:          c.ServiceTier,
		User:                 c.User,
		SafetyIdentifier:     c.SafetyIdentifier,
		PromptCacheKey:       c.PromptCacheKey,
		PromptCacheRetention: c.CacheRetention,
		PromptCacheOptions:   c.PromptCacheOptions,
		Sampling: berth.Sampling{Stop: c.Stop, FrequencyPenalty: c.FrequencyPenalty, PresencePenalty: c.PresencePenalty,
			Seed: c.Seed, LogitBias: c.LogitBias},
	}
	if given(c.Moderation) {
		r.Moderation = c.Moderation
	}
	if c.MaxTokens != nil {
		r.MaxOutputTokens = c.MaxTokens
	}
	if format := c.format(); format != nil || c.Verbosity != "" {
		r.Text = &berth.TextConfig{Format: format, Verbosity: c.Verbosity}
	}
	if c.Logprobs {
		r.Include = []string{"message.output_text.logprobs"}
	}
	if c.ReasoningEffort != nil {
		r.Reasoning = &berth.ReasoningConfig{Effort: c.ReasoningEffort}
	}
	var err error
	if r.Tools, err = c.tools(rules.tools); err != nil {
		return nil, err
	}
	if r.ToolChoice, err = c.toolChoice(); err != nil {
		return nil, err
	}
	if c.legacy() {
		r.ParallelToolCalls = new(bool) // a message can contain only one function_call
	}
	if r.Input, err = c.input(rules.request); err != nil {
		return nil, err
	}
	return r, nil
}

// parameters maps the names of a response request's fields to those of a completion's.
var parameters = []struct{ response, completion string }{
	{"input", "messages"},
	{"max_output_tokens", "max_completion_tokens"},
	{"text.format", "response_format"},
	{"text.verbosity", "verbosity"},
	{"reasoning.effort", "reasoning_effort"},
}

// param returns the field of the completion request that corresponds to a field of the
// response request.
func (c *completionRequest) param(param string) string {
	for _, p := range parameters {
		if rest, ok := strings.CutPrefix(param, p.response); ok && (rest == "" || strings.ContainsAny(rest[:1], ".[")) {
			return p.completion + rest
		}
	}
	if c.WebSearchOptions != nil && strings.HasPrefix(param, fmt.Sprintf("tools[%d]", len(c.Tools)+len(c.Functions))) {
		return "web_search_options"
	}
	place, isName := strings.CutSuffix(param, "].name")
	if rest, ok := strings.CutPrefix(place, "tools["); ok && isName {
		if c.legacy() {
			return "functions[" + rest + "].name"
		}
		return place + "].function.name"
	}
	return param
}
