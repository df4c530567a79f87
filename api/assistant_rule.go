package api

import (
	"maps"
	"math"
	"unicode/utf8"

	"github.com/berth-run/berth"
)

// The requests of the Assistants API, as in OpenAI's OpenAPI document.

// assistantTools are the tools that assistants may have, by their type: to serve
// another, give it a rule here and a line in package assistants, toolKinds.
var assistantTools = byType(withUnsupported(map[string]rule{
	berth.ToolFunction: object(fields{"type": anyText, "function": object(fields{
		"name": matching("^[a-zA-Z0-9_-]+$", 64), "description": anyText, "parameters": anyObject, "strict": boolean,
	}, "name")}, "function"),
}, "tools", unservedAssistantTools))

var unservedAssistantTools = []string{"code_interpreter", "file_search"}

// toolResources are those of tools, of which none that is served has any.
var toolResources = object(fields{
	"code_interpreter": object(fields{"file_ids": unsupportedUnlessEmpty}),
	"file_search":      object(fields{"vector_store_ids": unsupportedUnlessEmpty, "vector_stores": unsupportedUnlessEmpty}),
})

var messageAttachment = object(fields{
	"file_id": text(1, 256),
	"tools":   list(byType(withUnsupported(map[string]rule{}, "tools", unservedAssistantTools)), 0),
}, "file_id", "tools")

var (
	assistantConfig = fields{
		"model":            text(1, 256),
		"name":             text(0, 256),
		"description":      text(0, 512),
		"instructions":     text(0, 256_000),
		"reasoning_effort": oneOf("none", "minimal", "low", "medium", "high", "xhigh", "max"),
		"tools":            list(assistantTools, 128),
		"tool_resources":   toolResources,
		"metadata":         metadata,
		"temperature":      decimal(0, 2),
		"top_p":            decimal(0, 1),
		"response_format":  runFormat,
	}
	assistantRequest = object(assistantConfig, "model")
	assistantUpdate  = object(assistantConfig)

	threadFields = fields{
		"messages": list(messageRequest, 0), "tool_resources": toolResources, "metadata": metadata,
	}
	threadRequest  = object(threadFields)
	threadUpdate   = object(fields{"tool_resources": toolResources, "metadata": metadata})
	metadataUpdate = object(fields{"metadata": metadata})

	messageFields = fields{
		"role": oneOf("user", "assistant"), "content": anything, "attachments": list(messageAttachment, 0), "metadata": metadata,
	}
)

// messageRequest checks a message by its role: the model says text only.
func messageRequest(at string, v any) error {
	if err := messageShape(at, v); err != nil {
		return err
	}
	obj := v.(map[string]any)
	where := join(at, "content")
	switch content := obj["content"].(type) {
	case string:
		return text(1, maxMessageText)(where, content)
	case []any:
		if len(content) == 0 {
			return wire("empty_array", where, "Invalid '%s': empty array. Expected an array with minimum length 1, but got an empty array instead.", where)
		}
	default:
		return wrongType(where, "one of an array or a string", content)
	}
	kinds := messageParts
	if obj["role"] == "assistant" {
		kinds = map[string]rule{"text": messageParts["text"]}
	}
	if err := list(byType(kinds), maxMessageParts)(where, obj["content"]); err != nil {
		return err
	}
	length := 0
	for _, part := range obj["content"].([]any) {
		said, _ := part.(map[string]any)["text"].(string)
		length += utf8.RuneCountInString(said)
	}
	if length > maxMessageText {
		return wire("string_above_max_length", where, "Invalid '%s': the text of a message can have %d characters together, but it has %d.", where, maxMessageText, length)
	}
	return nil
}

const (
	maxMessageText  = 256_000 // characters, as the hosted service has it
	maxMessageParts = 256
)

var messageShape = object(messageFields, "role", "content")

var messageParts = map[string]rule{
	"text": object(fields{"type": anyText, "text": text(1, maxMessageText)}, "text"),
	"image_file": object(fields{"type": anyText, "image_file": object(fields{
		"file_id": text(1, 256), "detail": oneOf("auto", "low", "high"),
	}, "file_id")}, "image_file"),
	"image_url": object(fields{"type": anyText, "image_url": object(fields{
		"url": matching("^https?://", 8192), "detail": oneOf("auto", "low", "high"),
	}, "url")}, "image_url"),
}

// The requests that make a run.
var (
	runFields = fields{
		"assistant_id":          text(1, 256),
		"model":                 text(1, 256),
		"instructions":          text(0, 256_000),
		"tools":                 list(assistantTools, 20),
		"metadata":              metadata,
		"temperature":           decimal(0, 2),
		"top_p":                 decimal(0, 1),
		"stream":                boolean,
		"max_prompt_tokens":     integer(256, math.MaxInt32),
		"max_completion_tokens": integer(256, math.MaxInt32),
		"truncation_strategy":   truncationStrategy,
		"tool_choice":           runToolChoice,
		"parallel_tool_calls":   boolean,
		"response_format":       runFormat,
	}
	runRequest = object(with(runFields, fields{
		"additional_instructions": text(0, 256_000),
		"additional_messages":     list(messageRequest, 0),
		"reasoning_effort":        assistantConfig["reasoning_effort"],
	}), "assistant_id")
	threadRunRequest = object(with(runFields, fields{
		"thread": threadRequest, "tool_resources": toolResources,
	}), "assistant_id")

	toolOutputsRequest = object(fields{
		"tool_outputs": list(object(fields{"tool_call_id": text(1, 256), "output": anyText}), 0), "stream": boolean,
	}, "tool_outputs")
)

func with(known, more fields) fields {
	all := maps.Clone(known)
	maps.Copy(all, more)
	return all
}

// truncationStrategy asks for the number of messages with the type that needs it.
func truncationStrategy(at string, v any) error {
	if err := truncationShape(at, v); err != nil {
		return err
	}
	obj := v.(map[string]any)
	if obj["type"] == "last_messages" && obj["last_messages"] == nil {
		return missing(join(at, "last_messages"))
	}
	return nil
}

var truncationShape = object(fields{"type": oneOf("auto", "last_messages"), "last_messages": integer(1, math.MaxInt32)}, "type")

// runToolChoice is a mode or one tool.
func runToolChoice(at string, v any) error {
	if _, ok := v.(string); ok {
		return oneOf("none", "auto", "required")(at, v)
	}
	return runToolChoices(at, v)
}

var runToolChoices = byType(withUnsupported(map[string]rule{
	berth.ToolFunction: object(fields{"type": anyText, "function": object(fields{"name": text(1, 64)}, "name")}, "function"),
}, "tools", unservedAssistantTools))

// runFormat is "auto" or a format.
func runFormat(at string, v any) error {
	if _, ok := v.(string); ok {
		return oneOf("auto")(at, v)
	}
	return runFormats(at, v)
}

var runFormats = byType(map[string]rule{
	"text":        object(fields{"type": anyText}),
	"json_object": object(fields{"type": anyText}),
	"json_schema": object(fields{"type": anyText, "json_schema": object(fields{
		"name": matching("^[a-zA-Z0-9_-]+$", 64), "description": anyText, "schema": anyObject, "strict": boolean,
	}, "name")}, "json_schema"),
})

// stepIncludable are the values of "include" of steps. They ask for what a tool finds
// that is not served.
var stepIncludable = []string{"step_details.tool_calls[*].file_search.results[*].content"}
