package assistants

import (
	"maps"
	"math"
	"unicode/utf8"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/internal/rule"
)

// The requests of the Assistants API, as in OpenAI's OpenAPI document.

// assistantTools allows the tools of assistants. To add a tool, add a rule here and a line
// in toolKinds.
var assistantTools = rule.ByType(rule.WithUnsupported(map[string]rule.Rule{
	berth.ToolFunction: rule.Object(rule.Fields{"type": rule.AnyText, "function": rule.Object(rule.Fields{
		"name": rule.Matching("^[a-zA-Z0-9_-]+$", 64), "description": rule.AnyText, "parameters": rule.AnyObject, "strict": rule.Boolean,
	}, "name")}, "function"),
}, "tools", unservedAssistantTools))

var unservedAssistantTools = []string{"code_interpreter", "file_search"}

// toolResources allows empty resources only, because no supported tool has resources.
var toolResources = rule.Object(rule.Fields{
	"code_interpreter": rule.Object(rule.Fields{"file_ids": rule.UnsupportedUnlessEmpty}),
	"file_search":      rule.Object(rule.Fields{"vector_store_ids": rule.UnsupportedUnlessEmpty, "vector_stores": rule.UnsupportedUnlessEmpty}),
})

var messageAttachment = rule.Object(rule.Fields{
	"file_id": rule.Text(1, 256),
	"tools":   rule.List(rule.ByType(rule.WithUnsupported(map[string]rule.Rule{}, "tools", unservedAssistantTools)), 0),
}, "file_id", "tools")

var (
	assistantConfig = rule.Fields{
		"model":            rule.Text(1, 256),
		"name":             rule.Text(0, 256),
		"description":      rule.Text(0, 512),
		"instructions":     rule.Text(0, 256_000),
		"reasoning_effort": rule.OneOf("none", "minimal", "low", "medium", "high", "xhigh", "max"),
		"tools":            rule.List(assistantTools, 128),
		"tool_resources":   toolResources,
		"metadata":         rule.Metadata,
		"temperature":      rule.Decimal(0, 2),
		"top_p":            rule.Decimal(0, 1),
		"response_format":  runFormat,
	}
	assistantRequest = rule.Object(assistantConfig, "model")
	assistantUpdate  = rule.Object(assistantConfig)

	threadFields = rule.Fields{
		"messages": rule.List(messageRequest, 0), "tool_resources": toolResources, "metadata": rule.Metadata,
	}
	threadRequest  = rule.Object(threadFields)
	threadUpdate   = rule.Object(rule.Fields{"tool_resources": toolResources, "metadata": rule.Metadata})
	metadataUpdate = rule.Object(rule.Fields{"metadata": rule.Metadata})

	messageFields = rule.Fields{
		"role": rule.OneOf("user", "assistant"), "content": rule.Anything, "attachments": rule.List(messageAttachment, 0), "metadata": rule.Metadata,
	}
)

// messageRequest checks a message. A message of the assistant may contain only text.
func messageRequest(at string, v any) error {
	if err := messageShape(at, v); err != nil {
		return err
	}
	obj := v.(map[string]any)
	where := rule.Join(at, "content")
	switch content := obj["content"].(type) {
	case string:
		return rule.Text(1, maxMessageText)(where, content)
	case []any:
		if len(content) == 0 {
			return rule.Errorf("empty_array", where, "Invalid '%s': empty array. Expected an array with minimum length 1, but got an empty array instead.", where)
		}
	default:
		return rule.WrongType(where, "one of an array or a string", content)
	}
	kinds := messageParts
	if obj["role"] == "assistant" {
		kinds = map[string]rule.Rule{"text": messageParts["text"]}
	}
	if err := rule.List(rule.ByType(kinds), maxMessageParts)(where, obj["content"]); err != nil {
		return err
	}
	length := 0
	for _, part := range obj["content"].([]any) {
		text, _ := part.(map[string]any)["text"].(string)
		length += utf8.RuneCountInString(text)
	}
	if length > maxMessageText {
		return rule.Errorf("string_above_max_length", where, "Invalid '%s': text too long. Expected parts with a total text length of at most %d, but got a total length of %d instead.", where, maxMessageText, length)
	}
	return nil
}

const (
	maxMessageText  = 256_000 // characters, as at OpenAI
	maxMessageParts = 256
)

var messageShape = rule.Object(messageFields, "role", "content")

var messageParts = map[string]rule.Rule{
	"text": rule.Object(rule.Fields{"type": rule.AnyText, "text": rule.Text(1, maxMessageText)}, "text"),
	"image_file": rule.Object(rule.Fields{"type": rule.AnyText, "image_file": rule.Object(rule.Fields{
		"file_id": rule.Text(1, 256), "detail": rule.OneOf("auto", "low", "high"),
	}, "file_id")}, "image_file"),
	"image_url": rule.Object(rule.Fields{"type": rule.AnyText, "image_url": rule.Object(rule.Fields{
		"url": rule.Matching("^https?://", 8192), "detail": rule.OneOf("auto", "low", "high"),
	}, "url")}, "image_url"),
}

// The requests that create or continue a run.
var (
	runFields = rule.Fields{
		"assistant_id":          rule.Text(1, 256),
		"model":                 rule.Text(1, 256),
		"instructions":          rule.Text(0, 256_000),
		"tools":                 rule.List(assistantTools, 20),
		"metadata":              rule.Metadata,
		"temperature":           rule.Decimal(0, 2),
		"top_p":                 rule.Decimal(0, 1),
		"stream":                rule.Boolean,
		"max_prompt_tokens":     rule.Integer(256, math.MaxInt32),
		"max_completion_tokens": rule.Integer(256, math.MaxInt32),
		"truncation_strategy":   truncationStrategy,
		"tool_choice":           runToolChoice,
		"parallel_tool_calls":   rule.Boolean,
		"response_format":       runFormat,
	}
	runRequest = rule.Object(with(runFields, rule.Fields{
		"additional_instructions": rule.Text(0, 256_000),
		"additional_messages":     rule.List(messageRequest, 0),
		"reasoning_effort":        assistantConfig["reasoning_effort"],
	}), "assistant_id")
	threadRunRequest = rule.Object(with(runFields, rule.Fields{
		"thread": threadRequest, "tool_resources": toolResources,
	}), "assistant_id")

	toolOutputsRequest = rule.Object(rule.Fields{
		"tool_outputs": rule.List(rule.Object(rule.Fields{"tool_call_id": rule.Text(1, 256), "output": rule.AnyText}), 0), "stream": rule.Boolean,
	}, "tool_outputs")
)

func with(known, more rule.Fields) rule.Fields {
	all := maps.Clone(known)
	maps.Copy(all, more)
	return all
}

// truncationStrategy requires last_messages for the type of that name.
func truncationStrategy(at string, v any) error {
	if err := truncationShape(at, v); err != nil {
		return err
	}
	obj := v.(map[string]any)
	if obj["type"] == "last_messages" && obj["last_messages"] == nil {
		return rule.Missing(rule.Join(at, "last_messages"))
	}
	return nil
}

var truncationShape = rule.Object(rule.Fields{"type": rule.OneOf("auto", "last_messages"), "last_messages": rule.Integer(1, math.MaxInt32)}, "type")

// runToolChoice allows a mode or one tool.
func runToolChoice(at string, v any) error {
	if _, ok := v.(string); ok {
		return rule.OneOf("none", "auto", "required")(at, v)
	}
	return runToolChoices(at, v)
}

var runToolChoices = rule.ByType(rule.WithUnsupported(map[string]rule.Rule{
	berth.ToolFunction: rule.Object(rule.Fields{"type": rule.AnyText, "function": rule.Object(rule.Fields{"name": rule.Text(1, 64)}, "name")}, "function"),
}, "tools", unservedAssistantTools))

// runFormat allows "auto" or a format.
func runFormat(at string, v any) error {
	if _, ok := v.(string); ok {
		return rule.OneOf("auto")(at, v)
	}
	return runFormats(at, v)
}

var runFormats = rule.ByType(map[string]rule.Rule{
	"text":        rule.Object(rule.Fields{"type": rule.AnyText}),
	"json_object": rule.Object(rule.Fields{"type": rule.AnyText}),
	"json_schema": rule.Object(rule.Fields{"type": rule.AnyText, "json_schema": rule.Object(rule.Fields{
		"name": rule.Matching("^[a-zA-Z0-9_-]+$", 64), "description": rule.AnyText, "schema": rule.AnyObject, "strict": rule.Boolean,
	}, "name")}, "json_schema"),
})

// stepIncludable are the values of "include" of steps. They have no effect, because the tool
// that they concern is not supported.
var stepIncludable = []string{"step_details.tool_calls[*].file_search.results[*].content"}
