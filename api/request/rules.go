package request

import (
	"encoding/json"
	"maps"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/internal/rule"
	"github.com/berth-run/berth/tool"
)

// Rules check and complete requests with the tools of one registry.
type Rules struct {
	// Create checks the body of POST /v1/responses.
	Create rule.Rule
	// Compact checks the body of POST /v1/responses/compact, as
	// CompactResponseMethodPublicBody of OpenAI's OpenAPI document.
	Compact rule.Rule
	// InputTokens checks the body of POST /v1/responses/input_tokens, as TokenCountsBody of
	// OpenAI's OpenAPI document: the fields of a request that contribute to its context. All
	// are optional.
	InputTokens rule.Rule
	// Template checks the template of a prompt: the fields of a response request, except
	// those that concern a single request.
	Template rule.Rule

	tools      *tool.Registry
	items      rule.Rule // for items with a type
	toolChoice rule.Rule // for tool choices that are objects
}

// New returns the rules for the tools of a registry.
func New(tools *tool.Registry) *Rules {
	r := &Rules{tools: tools, toolChoice: tools.ChoiceRule()}
	r.items = rule.ByType(rule.Merged(rule.WithUnsupported(ownItems(tools), "items", unservedItems), tools.ItemRules()))
	known := maps.Clone(responseFields)
	known["input"], known["tools"], known["tool_choice"] = r.input, rule.List(tools.ToolRule(), 128), r.choice
	r.Create = rule.Object(known)
	r.Compact = rule.Object(some(known, rule.Fields{"prompt_cache_key": rule.Text(0, 64)},
		"input", "instructions", "model", "previous_response_id", "prompt_cache_options",
		"prompt_cache_retention", "service_tier"), "model")
	r.InputTokens = rule.Object(some(known, rule.Fields{"personality": rule.Unsupported},
		"conversation", "input", "instructions", "model", "parallel_tool_calls", "previous_response_id",
		"reasoning", "text", "tool_choice", "tools", "truncation"))
	inPrompt := maps.Clone(known)
	for _, name := range []string{"background", "conversation", "metadata", "previous_response_id", "prompt",
		"safety_identifier",
		"store", "stream", "stream_options", "user", "berth"} {
		delete(inPrompt, name)
	}
	r.Template = rule.Object(inPrompt)
	return r
}

// some returns more with the named rules of all added.
func some(all, more rule.Fields, names ...string) rule.Fields {
	for _, name := range names {
		more[name] = all[name]
	}
	return more
}

// choice checks "tool_choice": a mode or an object. The engine checks that the chosen tool
// is one of the request's.
func (r *Rules) choice(at string, v any) error {
	if _, ok := v.(string); ok {
		return rule.OneOf("none", "auto", "required")(at, v)
	}
	return r.toolChoice(at, v)
}

// canonicalChoice returns a "tool_choice" with the types of tools in place of their aliases.
func (r *Rules) canonicalChoice(choice json.RawMessage) json.RawMessage {
	var t berth.Tool
	if json.Unmarshal(choice, &t) != nil { // absent, or a mode
		return choice
	}
	if t.Type() != "allowed_tools" {
		return r.tools.Canonical(t).Raw()
	}
	var allowed struct {
		Type  string       `json:"type"`
		Mode  string       `json:"mode"`
		Tools []berth.Tool `json:"tools"`
	}
	if t.Decode(&allowed) != nil {
		return choice
	}
	changed := false
	for i, one := range allowed.Tools {
		allowed.Tools[i] = r.tools.Canonical(one)
		changed = changed || allowed.Tools[i].Type() != one.Type()
	}
	if !changed {
		return choice
	}
	return berth.NewTool(allowed).Raw()
}

// prefix returns the prefix of the ids of items of a type.
func (r *Rules) prefix(t berth.ItemType) string {
	if own, ok := idPrefixes[t]; ok {
		return own
	}
	return r.tools.IDPrefix(t)
}
