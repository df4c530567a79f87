// Package request checks requests for responses and completes them: the rules of
// POST /v1/responses, of related endpoints, and of items, tools and prompts. Package api
// and the doors that translate their own requests into those of responses use it.
package request

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/internal/rule"
)

// responseFields are the rules of the fields of POST /v1/responses, as in CreateResponse of
// OpenAI's OpenAPI document, except those that depend on the tools: "input", "tools" and
// "tool_choice". Every field is used, echoed or refused. A field that is null counts as
// absent.
//
// To add a field, add a rule here and a field to berth.ResponseRequest.
var responseFields = rule.Fields{
	"background":             rule.Boolean,
	"client_metadata":        rule.AnyObject, // sent by codex; not in the document, and not stored
	"conversation":           conversationRule,
	"include":                rule.List(rule.OneOf(Includable...), 0),
	"instructions":           rule.AnyText,
	"max_output_tokens":      rule.Integer(16, math.MaxInt32),
	"max_tool_calls":         rule.Integer(0, math.MaxInt32),
	"metadata":               rule.Metadata,
	"model":                  rule.Text(1, 256),
	"parallel_tool_calls":    rule.Boolean,
	"previous_response_id":   rule.Text(1, 256),
	"prompt":                 promptRule,
	"prompt_cache_key":       rule.Text(0, 1024),
	"prompt_cache_retention": rule.OneOf("in_memory", "in-memory", "24h"),
	"reasoning":              reasoning,
	"safety_identifier":      rule.Text(0, 64),
	"service_tier":           rule.OneOf("auto", "default", "flex", "scale", "priority", "fast", "ultrafast"),
	"store":                  rule.Boolean,
	"stream":                 rule.Boolean,
	"stream_options":         rule.Object(rule.Fields{"include_obfuscation": rule.Boolean}),
	"temperature":            rule.Decimal(0, 2),
	"text": rule.Object(rule.Fields{"format": rule.ByType(textFormats), "verbosity": rule.OneOf("low",
		"medium", "high")}),
	"top_logprobs":       rule.Integer(0, 20),
	"top_p":              rule.Decimal(0, 1),
	"truncation":         rule.OneOf("auto", "disabled"),
	"context_management": rule.List(rule.ByType(contextManagement), 0),
	"user":               rule.Text(0, 1024),
	"berth":              requestBerth,

	// Hints, which do not change answers.
	"access_programs":      accessPrograms,
	"image":                imageOptions,
	"moderation":           Moderation,
	"prompt_cache_options": PromptCacheOptions,
}

var (
	// PromptCacheOptions allows "prompt_cache_options".
	PromptCacheOptions = rule.Object(rule.Fields{"mode": rule.OneOf("implicit", "explicit"), "ttl": rule.OneOf("30m",
		"12h"),
		"comparison_response_id": rule.Text(0, 256), // requests diagnostics, which this server does not have
		"prewarm":                rule.OnlyFalse})

	// imageOptions allows "image". It is in the SDKs, but not yet in the document.
	imageOptions = rule.Object(rule.Fields{"context_compression": compression})

	// accessPrograms allows "access_programs". It is in the SDKs, but not yet in the document.
	accessPrograms = rule.Object(rule.Fields{"cyber": rule.OneOf("standard", "daybreak_blue", "daybreak_red")})

	// Moderation allows "moderation" with scores, but not a policy that blocks.
	Moderation = rule.Object(rule.Fields{"model": rule.Text(1, 256),
		"policy": rule.Object(rule.Fields{"input": moderationPolicy, "output": moderationPolicy})}, "model")
	moderationPolicy = rule.Object(rule.Fields{"mode": moderationMode}, "mode")
)

func compression(at string, v any) error {
	if err := rule.OneOf("auto", "enabled", "disabled")(at, v); err != nil || v != "enabled" {
		return err
	}
	return rule.Errorf("unsupported_value", at,
		"Unsupported value: '%s' cannot be 'enabled'. This server does not compress images.", at)
}

func moderationMode(at string, v any) error {
	if err := rule.OneOf("score", "block")(at, v); err != nil || v == "score" {
		return err
	}
	return rule.Errorf("unsupported_value", at,
		"Unsupported value: '%s' cannot be 'block'. This server does not moderate; check the input with a moderation service of your own.", at)
}

// Includable are the values of "include". Those of unsupported tools have no effect;
// clients send them with any tools.
var Includable = []string{
	"file_search_call.results", "web_search_call.results", "web_search_call.action.sources",
	"message.input_image.image_url", "computer_call_output.output.image_url",
	"code_interpreter_call.outputs", "reasoning.encrypted_content", "message.output_text.logprobs",
}

var reasoningEffort = rule.OneOf("none", "minimal", "low", "medium", "high", "xhigh", "max")

var reasoning = rule.Object(rule.Fields{
	"effort":           reasoningEffort,
	"summary":          rule.OneOf("auto", "concise", "detailed"),
	"generate_summary": rule.Unsupported, // the older name of summary
	"context":          rule.Unsupported,
	"mode":             rule.Unsupported,
})

// contextManagement are the rules of entries of "context_management", by type.
var contextManagement = map[string]rule.Rule{
	"compaction": rule.Object(rule.Fields{"type": rule.AnyText, "compact_threshold": rule.Integer(1000,
		math.MaxInt32)}),
}

var textFormats = map[string]rule.Rule{
	"text":        rule.Object(rule.Fields{"type": rule.AnyText}),
	"json_object": rule.Object(rule.Fields{"type": rule.AnyText}),
	"json_schema": rule.StrictFormat(rule.Object(rule.Fields{
		"type": rule.AnyText, "name": rule.Matching("^[a-zA-Z0-9_-]+$", 64), "description": rule.AnyText,
		"schema": rule.AnyObject, "strict": rule.Boolean,
	}, "name", "schema")),
}

// Complete checks the dependencies between fields and completes the request as Fill does.
func (r *Rules) Complete(req *berth.ResponseRequest) error {
	inherits := req.Berth != nil && req.Berth.Inherit
	if inherits && req.PreviousResponseID == "" {
		return berth.Invalid("berth.inherit",
			"Invalid 'berth.inherit': there is no response to inherit from. Set 'previous_response_id'.")
	}
	if req.Model == "" && req.Prompt == nil && !inherits {
		return rule.Missing("model")
	}
	if req.Input == nil && req.PreviousResponseID == "" && req.Conversation == nil && req.Prompt == nil {
		return rule.Missing("input")
	}
	if err := checkMentionsJSON(req); err != nil {
		return err
	}
	if req.StreamOptions != nil && !req.Stream {
		return berth.Invalid("stream_options",
			"The 'stream_options' parameter is only allowed when 'stream' is enabled.")
	}
	return r.Fill(req)
}

// Fill checks for fields that exclude each other and completes the request: null becomes
// absent, and items get their full form.
func (r *Rules) Fill(req *berth.ResponseRequest) error {
	if err := checkTrigger(req.Input); err != nil {
		return err
	}
	if req.Conversation != nil && req.PreviousResponseID != "" {
		return rule.Errorf("mutually_exclusive_parameters", "",
			"Mutually exclusive parameters: 'previous_response_id' and 'conversation'. Ensure you are only providing one of: 'previous_response_id' or 'conversation'.")
	}
	if IsNull(req.ToolChoice) {
		req.ToolChoice = nil
	}
	for i, t := range req.Tools {
		req.Tools[i] = r.tools.Canonical(t)
	}
	req.ToolChoice = r.canonicalChoice(req.ToolChoice)
	if req.Text != nil && IsNull(req.Text.Format) {
		req.Text.Format = nil
	}
	for i, it := range req.Input {
		var err error
		if req.Input[i], err = r.Normalize(it); err != nil {
			return fmt.Errorf("input[%d]: %w", i, err)
		}
		if req.Conversation == nil || req.Input[i].Type() == berth.ItemReference {
			continue
		}
		if err := r.CheckItemID(fmt.Sprintf("input[%d].id", i), req.Input[i]); err != nil {
			return err
		}
	}
	return nil
}

// IsNull reports whether a raw value is null.
func IsNull(raw json.RawMessage) bool { return strings.TrimSpace(string(raw)) == "null" }
