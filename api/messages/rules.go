package messages

import (
	"maps"
	"math"

	"github.com/berth-run/berth/internal/rule"
)

// Anthropic refuses fields that it does not know, except in what it sent itself. The rules do the same: requests have
// closed objects, and the blocks of earlier answers have open ones. A field that is null counts as absent.
var (
	createRule = rule.Object(messageFields, "model", "messages", "max_tokens")
	countRule  = rule.Object(countFields(), "model", "messages")
)

// messageFields are the rules of the fields of POST /v1/messages.
//
// To add a field, add a rule here and a field to messageRequest.
// display are the forms of thoughts. "updates", which Claude Code asks for, is answered with summaries.
var display = rule.OneOf("summarized", "omitted", "updates")

var messageFields = rule.Fields{
	"model":          rule.Text(1, 256),
	"messages":       rule.AtLeastOne(rule.List(message, 0)),
	"max_tokens":     rule.Integer(1, math.MaxInt32),
	"system":         textOr(map[string]rule.Rule{"text": textBlock}),
	"metadata":       rule.OpenObject(rule.Fields{"user_id": rule.Text(0, 1024)}),
	"stop_sequences": rule.List(rule.Text(1, 1024), 0),
	"stream":         rule.Boolean,
	"temperature":    rule.Decimal(0, 2),
	"top_p":          rule.Decimal(0, 1),
	"top_k":          rule.Integer(0, math.MaxInt32), // ignored: the engine has no such parameter
	"service_tier":   rule.OneOf("auto", "standard_only"),
	"thinking": rule.ByType(map[string]rule.Rule{
		"enabled": rule.OpenObject(rule.Fields{"budget_tokens": rule.Integer(1, math.MaxInt32),
			"display": display}, "budget_tokens"),
		"adaptive": rule.OpenObject(rule.Fields{"display": display}),
		"disabled": rule.OpenObject(rule.Fields{}),
	}),
	"output_config": rule.OpenObject(rule.Fields{"effort": rule.OneOf("low", "medium", "high", "xhigh", "max"),
		"format": outputFormat}),
	"output_format": outputFormat,
	"tools":         rule.List(toolRule, 512),
	"tool_choice": rule.ByType(map[string]rule.Rule{
		"auto": rule.Object(rule.Fields{"type": rule.AnyText, "disable_parallel_tool_use": rule.Boolean}),
		"any":  rule.Object(rule.Fields{"type": rule.AnyText, "disable_parallel_tool_use": rule.Boolean}),
		"none": rule.Object(rule.Fields{"type": rule.AnyText}),
		"tool": rule.Object(rule.Fields{"type": rule.AnyText, "disable_parallel_tool_use": rule.Boolean,
			"name": rule.Text(1, 200)}, "name"),
	}),
	"container": container,
	"thread": rule.ByType(map[string]rule.Rule{
		"create":   rule.OpenObject(rule.Fields{}),
		"continue": rule.OpenObject(rule.Fields{"previous_message_id": rule.AnyText}, "previous_message_id"),
	}),
	"mcp_servers": rule.List(mcpServer, 20),

	// Hints, which do not change answers.
	"billing_policy":        rule.AnyObject,
	"cache_control":         rule.AnyObject,
	"context_management":    contextRule,
	"diagnostics":           rule.AnyObject,
	"inference_geo":         rule.AnyText,
	"speed":                 rule.AnyText,
	"anthropic_beta":        rule.Anything, // some clients put the header here
	"fallbacks":             rule.UnsupportedUnlessEmpty,
	"fallback_credit_token": rule.Unsupported,
	"compaction":            rule.Unsupported,
}

// countFields are the rules of the fields of POST /v1/messages/count_tokens. Clients send the whole request.
func countFields() rule.Fields {
	fields := maps.Clone(messageFields)
	fields["betas"] = rule.Anything
	return fields
}

var outputFormat = rule.ByType(map[string]rule.Rule{
	"json_schema": rule.OpenObject(rule.Fields{"schema": rule.AnyObject, "name": rule.AnyText}, "schema"),
})

var mcpServer = rule.Object(rule.Fields{
	"type": rule.OneOf("url"), "url": rule.WebURL, "name": rule.Matching(rule.NamePattern, 64),
	"authorization_token": rule.Text(0, 16<<10),
	"tool_configuration": rule.Object(rule.Fields{"enabled": rule.Boolean,
		"allowed_tools": rule.List(rule.Text(1, 256), 512)}),
}, "url", "name")

// container allows the id of a container, or an object with it.
func container(at string, v any) error {
	if _, ok := v.(string); ok {
		return rule.Text(1, 256)(at, v)
	}
	return containerObject(at, v)
}

var containerObject = rule.Object(rule.Fields{"id": rule.Text(1, 256),
	"skills": rule.List(rule.Object(rule.Fields{"type": rule.OneOf("custom", "anthropic"),
		"skill_id": rule.Text(1, 256), "version": rule.Text(1, 256)}, "type", "skill_id"), 64)})

// textOr allows a string or a list of the given blocks.
func textOr(blocks map[string]rule.Rule) rule.Rule {
	list := rule.List(rule.ByType(blocks), 0)
	return func(at string, v any) error {
		switch v.(type) {
		case string:
			return nil
		case []any:
			return list(at, v)
		}
		return rule.WrongType(at, "one of a string or array of objects", v)
	}
}

// message checks an entry of "messages".
var message = rule.ByField("role", map[string]rule.Rule{
	"user":      messageOf(userBlocks),
	"assistant": messageOf(assistantBlocks),
	"system":    messageOf(map[string]rule.Rule{"text": textBlock}),
})

func messageOf(blocks map[string]rule.Rule) rule.Rule {
	return rule.OpenObject(rule.Fields{"role": rule.AnyText, "content": textOr(blocks)}, "content")
}

// block returns the rule of a block with these fields beside those of all blocks.
func block(own rule.Fields, required ...string) rule.Rule {
	all := rule.Fields{"type": rule.AnyText, "cache_control": rule.AnyObject}
	maps.Copy(all, own)
	return rule.Object(all, required...)
}

var (
	cited = rule.OpenObject(rule.Fields{"enabled": rule.Boolean})

	textBlock = block(rule.Fields{"text": rule.AnyText, "citations": rule.List(rule.AnyObject, 0)}, "text")

	imageBlock = block(rule.Fields{"source": rule.ByType(map[string]rule.Rule{
		"base64": rule.Object(rule.Fields{"type": rule.AnyText, "data": rule.Base64,
			"media_type": rule.OneOf("image/jpeg", "image/png", "image/gif", "image/webp")}, "data", "media_type"),
		"url":  urlSource,
		"file": fileSource,
	})}, "source")

	urlSource  = rule.Object(rule.Fields{"type": rule.AnyText, "url": rule.WebURL}, "url")
	fileSource = rule.Object(rule.Fields{"type": rule.AnyText, "file_id": rule.Text(1, 256)}, "file_id")

	documentBlock = block(rule.Fields{"title": rule.AnyText, "context": rule.AnyText, "citations": cited,
		"source": rule.ByType(map[string]rule.Rule{
			"base64": rule.Object(rule.Fields{"type": rule.AnyText, "data": rule.Base64,
				"media_type": rule.OneOf("application/pdf")}, "data"),
			"text": rule.Object(rule.Fields{"type": rule.AnyText, "data": rule.AnyText,
				"media_type": rule.OneOf("text/plain")}, "data"),
			"content": rule.Object(rule.Fields{"type": rule.AnyText,
				"content": textOr(map[string]rule.Rule{"text": textBlock, "image": imageBlock})}, "content"),
			"url":  urlSource,
			"file": fileSource,
		})}, "source")

	searchResult = block(rule.Fields{"source": rule.AnyText, "title": rule.AnyText, "citations": cited,
		"content": rule.List(rule.ByType(map[string]rule.Rule{"text": textBlock}), 0)}, "source", "title", "content")

	toolResult = block(rule.Fields{"tool_use_id": toolUseID, "is_error": rule.Boolean, "toolset_name": rule.AnyText,
		"content": textOr(map[string]rule.Rule{"text": textBlock, "image": imageBlock, "document": documentBlock,
			"search_result": searchResult, "tool_reference": answered("tool_name")}),
	}, "tool_use_id")

	toolUseID = rule.Matching("^[a-zA-Z0-9_-]+$", 256)

	userBlocks = map[string]rule.Rule{"text": textBlock, "image": imageBlock, "document": documentBlock,
		"search_result": searchResult, "tool_result": toolResult,
		"container_upload": block(rule.Fields{"file_id": rule.Text(1, 256)}, "file_id")}

	// Blocks of earlier answers may have fields that this server does not know.
	assistantBlocks = map[string]rule.Rule{
		"text":              answered("text"),
		"thinking":          answered("thinking"),
		"redacted_thinking": answered("data"),
		"tool_use":          call, "server_tool_use": call, "mcp_tool_use": call,
		"web_search_tool_result":                 serverResult,
		"web_fetch_tool_result":                  serverResult,
		"code_execution_tool_result":             serverResult,
		"bash_code_execution_tool_result":        serverResult,
		"text_editor_code_execution_tool_result": serverResult,
		"tool_search_tool_result":                serverResult,
		"advisor_tool_result":                    serverResult,
		"mcp_tool_result":                        serverResult,
		"container_upload":                       answered(),
		"fallback":                               answered(),
		"compaction":                             compactionBlock,
		"search_result":                          searchResult, "document": documentBlock, "image": imageBlock,
	}

	compactionBlock = rule.OpenObject(rule.Fields{"content": rule.AnyText, "encrypted_content": rule.AnyText})

	call         = answered("id", "name", "input")
	serverResult = answered("tool_use_id")
)

// answered returns the rule of a block of an earlier answer.
func answered(required ...string) rule.Rule {
	return rule.OpenObject(rule.Fields{"text": rule.AnyText, "title": rule.AnyText, "context": rule.AnyText,
		"id": toolUseID, "name": rule.Text(1, 200), "input": rule.AnyObject, "server_name": rule.AnyText,
		"tool_use_id": toolUseID, "tool_name": rule.AnyText, "is_error": rule.Boolean, "thinking": rule.AnyText,
		"signature": rule.AnyText, "data": rule.AnyText, "file_id": rule.AnyText, "type": rule.AnyText,
		"caller": rule.OpenObject(rule.Fields{"type": rule.AnyText, "tool_id": rule.AnyText}),
		"source": rule.Anything, "content": rule.Anything}, required...)
}
