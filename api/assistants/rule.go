package assistants

import (
	"maps"
	"math"
	"unicode/utf8"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/internal/rule"
	"github.com/berth-run/berth/threads"
	"github.com/berth-run/berth/vectorstore"
)

// The requests of the Assistants API, as in OpenAI's OpenAPI document.

// assistantTools allows the tools of assistants. To add a tool, add a rule here and a line
// in toolKinds.
var assistantTools = rule.ByType(map[string]rule.Rule{
	berth.ToolFunction: rule.Object(rule.Fields{"type": rule.AnyText, "function": rule.OpenObject(rule.Fields{
		"name": rule.Matching("^[a-zA-Z0-9_-]+$", 64), "description": rule.AnyText, "parameters": rule.AnyObject,
		"strict": rule.Boolean,
	}, "name")}, "function"),
	berth.ToolCode: typeOnly,
	berth.ToolFileSearch: rule.Object(rule.Fields{"type": rule.AnyText, "file_search": rule.Object(rule.Fields{
		"max_num_results": rule.Integer(1, 50),
		"ranking_options": rule.Object(rule.Fields{
			"ranker": rule.OneOf("auto", "default_2024_08_21"), "score_threshold": rule.Decimal(0, 1),
		}, "score_threshold"),
	})}),
})

var typeOnly = rule.Object(rule.Fields{"type": rule.AnyText})

var (
	codeResources  = rule.Object(rule.Fields{"file_ids": rule.List(rule.Text(1, 256), threads.MaxCodeFiles)})
	vectorStoreIDs = rule.List(rule.Text(1, 256), 1)
	newVectorStore = rule.Object(rule.Fields{
		"file_ids": rule.List(rule.Text(1, 256), 10_000), "chunking_strategy": vectorstore.ChunkingRule,
		"metadata": rule.Metadata,
	})

	// newResources may create a vector store, toolResources only name one.
	newResources = rule.Object(rule.Fields{
		"code_interpreter": codeResources,
		"file_search":      searchResources,
	})
	toolResources = rule.Object(rule.Fields{
		"code_interpreter": codeResources,
		"file_search":      rule.Object(rule.Fields{"vector_store_ids": vectorStoreIDs}),
	})
)

// searchResources allows the id of a vector store or the description of a new one.
func searchResources(at string, v any) error {
	if err := searchShape(at, v); err != nil {
		return err
	}
	obj := v.(map[string]any)
	ids, _ := obj["vector_store_ids"].([]any)
	described, _ := obj["vector_stores"].([]any)
	if len(ids) > 0 && len(described) > 0 {
		return berth.Invalid(at, "Invalid '%s': set 'vector_store_ids' or 'vector_stores', not both.", at)
	}
	return nil
}

var searchShape = rule.Object(rule.Fields{"vector_store_ids": vectorStoreIDs, "vector_stores": rule.List(newVectorStore,
	1)})

var messageAttachment = rule.Object(rule.Fields{
	"file_id": rule.Text(1, 256),
	"tools": rule.List(rule.ByType(map[string]rule.Rule{berth.ToolCode: typeOnly,
		berth.ToolFileSearch: typeOnly}), 0),
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
	assistantRequest = rule.Object(with(assistantConfig, rule.Fields{"tool_resources": newResources}), "model")
	assistantUpdate  = rule.Object(assistantConfig)

	threadFields = rule.Fields{
		"messages": rule.List(messageRequest, 0), "tool_resources": newResources, "metadata": rule.Metadata,
	}
	threadRequest  = rule.Object(threadFields)
	threadUpdate   = rule.Object(rule.Fields{"tool_resources": toolResources, "metadata": rule.Metadata})
	metadataUpdate = rule.Object(rule.Fields{"metadata": rule.Metadata})

	messageFields = rule.Fields{
		"role": rule.OneOf("user", "assistant"), "content": rule.Anything, "attachments": rule.List(messageAttachment,
			0), "metadata": rule.Metadata,
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
			return rule.Errorf("empty_array", where,
				"Invalid '%s': empty array. Expected an array with minimum length 1, but got an empty array instead.",
				where)
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
		return rule.Errorf("string_above_max_length", where,
			"Invalid '%s': text too long. Expected parts with a total text length of at most %d, but got a total length of %d instead.",
			where, maxMessageText, length)
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
		"tool_outputs": rule.List(rule.Object(rule.Fields{"tool_call_id": rule.Text(1, 256), "output": rule.AnyText}),
			0), "stream": rule.Boolean,
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

var truncationShape = rule.Object(rule.Fields{"type": rule.OneOf("auto", "last_messages"),
	"last_messages": rule.Integer(1, math.MaxInt32)}, "type")

// runToolChoice allows a mode or one tool.
func runToolChoice(at string, v any) error {
	if _, ok := v.(string); ok {
		return rule.OneOf("none", "auto", "required")(at, v)
	}
	return runToolChoices(at, v)
}

var runToolChoices = rule.ByType(map[string]rule.Rule{
	berth.ToolFunction: rule.Object(rule.Fields{"type": rule.AnyText,
		"function": rule.Object(rule.Fields{"name": rule.Text(1, 64)}, "name")}, "function"),
	berth.ToolCode:       typeOnly,
	berth.ToolFileSearch: typeOnly,
})

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
		"name": rule.Matching("^[a-zA-Z0-9_-]+$", 64), "description": rule.AnyText, "schema": rule.AnyObject,
		"strict": rule.Boolean,
	}, "name")}, "json_schema"),
})

// stepIncludable are the values of "include" of steps: the content of search results.
var stepIncludable = []string{"step_details.tool_calls[*].file_search.results[*].content"}
