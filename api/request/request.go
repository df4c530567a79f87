// Package request checks what a client asks of a response, and gives it its full form: the
// rules of POST /v1/responses and of what shares its fields, its items, tools and prompts.
// The doors that turn requests of their own into those of responses use it as package api
// does.
package request

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"

	"github.com/berth-run/berth"
)

// responseFields are the fields of POST /v1/responses, as in CreateResponse of OpenAI's
// OpenAPI document, without those that depend on the tools: "input", "tools" and
// "tool_choice". Every one is honoured, echoed or refused; a field that is null counts as
// absent.
//
// To serve another field, give it a rule here and a place in
// berth.ResponseRequest.
var responseFields = fields{
	"background":             boolean,
	"client_metadata":        anyObject, // about codex itself; not in the document, and not stored
	"conversation":           conversationRule,
	"include":                list(oneOf(Includable...), 0),
	"instructions":           anyText,
	"max_output_tokens":      integer(16, math.MaxInt32),
	"max_tool_calls":         integer(0, math.MaxInt32),
	"metadata":               metadata,
	"model":                  text(1, 256),
	"parallel_tool_calls":    boolean,
	"previous_response_id":   text(1, 256),
	"prompt":                 promptRule,
	"prompt_cache_key":       text(0, 1024),
	"prompt_cache_retention": oneOf("in_memory", "in-memory", "24h"),
	"reasoning":              reasoning,
	"safety_identifier":      text(0, 64),
	"service_tier":           oneOf("auto", "default", "flex", "scale", "priority", "fast", "ultrafast"),
	"store":                  boolean,
	"stream":                 boolean,
	"stream_options":         object(fields{"include_obfuscation": boolean}),
	"temperature":            decimal(0, 2),
	"text":                   object(fields{"format": byType(textFormats), "verbosity": oneOf("low", "medium", "high")}),
	"top_logprobs":           integer(0, 20),
	"top_p":                  decimal(0, 1),
	"truncation":             oneOf("auto", "disabled"),
	"context_management":     list(byType(contextManagement), 0),
	"user":                   text(0, 1024),
	"berth":                  requestBerth,

	// Hints, which change no answer.
	"access_programs":      accessPrograms,
	"image":                imageOptions,
	"moderation":           Moderation,
	"prompt_cache_options": PromptCacheOptions,
}

var (
	// PromptCacheOptions allows how an upstream is to cache a prompt.
	PromptCacheOptions = object(fields{"mode": oneOf("implicit", "explicit"), "ttl": oneOf("30m", "12h"),
		"comparison_response_id": text(0, 256), // asks for diagnostics, which this server has not
		"prewarm":                onlyFalse})

	// imageOptions allows a policy that no answer depends on. It is in the SDKs and not yet
	// in the document.
	imageOptions = object(fields{"context_compression": compression})

	// accessPrograms is in the SDKs and not yet in the document.
	accessPrograms = object(fields{"cyber": oneOf("standard", "daybreak_blue", "daybreak_red")})

	// Moderation allows scores. A policy that blocks would change the answer.
	Moderation       = object(fields{"model": text(1, 256), "policy": object(fields{"input": moderationPolicy, "output": moderationPolicy})}, "model")
	moderationPolicy = object(fields{"mode": moderationMode}, "mode")
)

func compression(at string, v any) error {
	if err := oneOf("auto", "enabled", "disabled")(at, v); err != nil || v != "enabled" {
		return err
	}
	return wire("unsupported_value", at, "Unsupported value: '%s' cannot be 'enabled': this server compresses no images.", at)
}

func moderationMode(at string, v any) error {
	if err := oneOf("score", "block")(at, v); err != nil || v == "score" {
		return err
	}
	return wire("unsupported_value", at, "Unsupported value: '%s' cannot be 'block'. This server does not moderate; check the input with a moderation service of your own.", at)
}

// Includable are the values of "include". Those about tools that are not served
// ask for nothing; clients send them whatever the tools.
var Includable = []string{
	"file_search_call.results", "web_search_call.results", "web_search_call.action.sources",
	"message.input_image.image_url", "computer_call_output.output.image_url",
	"code_interpreter_call.outputs", "reasoning.encrypted_content", "message.output_text.logprobs",
}

var reasoningEffort = oneOf("none", "minimal", "low", "medium", "high", "xhigh", "max")

var reasoning = object(fields{
	"effort":           reasoningEffort,
	"summary":          oneOf("auto", "concise", "detailed"),
	"generate_summary": unsupported, // the older name of summary
	"context":          unsupported,
	"mode":             unsupported,
})

// contextManagement are the entries of "context_management".
var contextManagement = map[string]rule{
	"compaction": object(fields{"type": anyText, "compact_threshold": integer(1000, math.MaxInt32)}),
}

var textFormats = map[string]rule{
	"text":        object(fields{"type": anyText}),
	"json_object": object(fields{"type": anyText}),
	"json_schema": strictFormat(object(fields{
		"type": anyText, "name": matching("^[a-zA-Z0-9_-]+$", 64), "description": anyText,
		"schema": anyObject, "strict": boolean,
	}, "name", "schema")),
}

// Complete checks what no field shows alone, and fills in the rest.
func (r *Rules) Complete(req *berth.ResponseRequest) error {
	if req.Model == "" && req.Prompt == nil {
		return missing("model")
	}
	if req.Input == nil && req.PreviousResponseID == "" && req.Conversation == nil && req.Prompt == nil {
		return missing("input")
	}
	if err := checkMentionsJSON(req); err != nil {
		return err
	}
	if req.StreamOptions != nil && !req.Stream {
		return berth.Invalid("stream_options", "The 'stream_options' parameter is only allowed when 'stream' is enabled.")
	}
	return r.Fill(req)
}

// Fill checks which fields exclude each other, and gives the request's parts their
// full form: null is as good as absent, items are as Normalize makes them.
func (r *Rules) Fill(req *berth.ResponseRequest) error {
	if err := checkTrigger(req.Input); err != nil {
		return err
	}
	if req.Conversation != nil && req.PreviousResponseID != "" {
		return wire("mutually_exclusive_parameters", "",
			"Mutually exclusive parameters: 'previous_response_id' and 'conversation'. Ensure you are only providing one of: 'previous_response_id' or 'conversation'.")
	}
	if IsNull(req.ToolChoice) {
		req.ToolChoice = nil
	}
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
