package chat

import (
	"encoding/json"
	"fmt"
	"maps"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/request"
	"github.com/berth-run/berth/internal/rule"
	"github.com/berth-run/berth/tool"
)

// completionRules check and translate completions with the tools of one registry.
type completionRules struct {
	shape   rule.Rule // of the body
	request *request.Rules
	tools   *tool.Registry
}

// newRules returns the rules for the tools of a registry. Functions and custom tools
// belong to Chat Completions. Hosted tools are an extension: the server makes and answers
// their calls, and the client receives only the model's final message. The Kind of a
// hosted tool describes its form here.
func newRules(tools *tool.Registry) *completionRules {
	offered, chosen := maps.Clone(clientTools), maps.Clone(clientChoices)
	for name, chat := range tools.Chat() {
		offered[name], chosen[name] = chat.Tool, chat.Choice
	}
	fields := maps.Clone(completionFields)
	fields["tools"] = rule.List(rule.ByType(offered), 128)
	fields["tool_choice"] = toolChoiceRule(chosen)
	return &completionRules{shape: rule.Object(fields, "model", "messages"), request: request.New(tools), tools: tools}
}

// clientTools check the entries of "tools" that Chat Completions has by itself.
var clientTools = rule.WithUnsupported(map[string]rule.Rule{
	berth.ToolFunction: rule.Object(rule.Fields{"type": rule.AnyText,
		"function": rule.StrictFunction(rule.OpenObject(rule.Fields{
			"name": rule.Matching(rule.NamePattern, 64), "description": rule.AnyText, "parameters": rule.AnyObject,
			"strict": rule.Boolean,
		}, "name"))}, "function"),
	berth.ToolCustom: rule.Object(rule.Fields{"type": rule.AnyText, "custom": rule.Object(rule.Fields{
		"name": rule.Matching(rule.NamePattern, 64), "description": rule.AnyText,
		"format": rule.ByType(map[string]rule.Rule{
			"text": rule.Object(rule.Fields{"type": rule.AnyText}),
			"grammar": rule.Object(rule.Fields{"type": rule.AnyText,
				"grammar": rule.Object(rule.Fields{"syntax": rule.OneOf("lark", "regex"), "definition": rule.Text(1,
					1<<16)}, "syntax", "definition"),
			}, "grammar"),
		}),
	}, "name")}, "custom"),
}, "tools", notInCompletions)

// notInCompletions are the tools of Responses that are refused by name: those that this
// server does not serve, and those whose client would have to answer in a form that Chat
// Completions lacks.
var notInCompletions = append([]string{berth.ToolApplyPatch, berth.ToolLocalShell, berth.ToolNamespace},
	tool.Unserved...)

// legacyFunction checks an entry of "functions".
var legacyFunction = rule.OpenObject(rule.Fields{
	"name": rule.Matching(rule.NamePattern, 64), "description": rule.AnyText, "parameters": rule.AnyObject,
}, "name")

// toolChoiceRule checks "tool_choice": a mode, or an object whose fields are one level
// deeper than those of Responses. tools are the rules for the choice of one tool.
func toolChoiceRule(tools map[string]rule.Rule) rule.Rule {
	mode := rule.OneOf("none", "auto", "required")
	object := rule.ByType(rule.Merged(tools, map[string]rule.Rule{
		"allowed_tools": rule.Object(rule.Fields{"type": rule.AnyText, "allowed_tools": rule.Object(rule.Fields{
			"mode": rule.OneOf("auto", "required"), "tools": rule.List(rule.ByType(tools), 128),
		}, "mode", "tools")}, "allowed_tools"),
	}))
	return func(at string, v any) error {
		if _, ok := v.(string); ok {
			return mode(at, v)
		}
		return object(at, v)
	}
}

// clientChoices check the choice of a tool that Chat Completions has by itself.
var clientChoices = rule.WithUnsupported(map[string]rule.Rule{
	berth.ToolFunction: rule.Object(rule.Fields{"type": rule.AnyText, "function": named}, "function"),
	berth.ToolCustom:   rule.Object(rule.Fields{"type": rule.AnyText, "custom": named}, "custom"),
}, "tools", notInCompletions)

var named = rule.Object(rule.Fields{"name": rule.Text(1, 64)}, "name")

// functionChoice checks the deprecated "function_call".
func functionChoice(at string, v any) error {
	if _, ok := v.(string); ok {
		return rule.OneOf("none", "auto")(at, v)
	}
	return named(at, v)
}

var responseFormats = map[string]rule.Rule{
	"text":        rule.Object(rule.Fields{"type": rule.AnyText}),
	"json_object": rule.Object(rule.Fields{"type": rule.AnyText}),
	"json_schema": rule.Object(rule.Fields{"type": rule.AnyText,
		"json_schema": rule.StrictFormat(rule.Object(rule.Fields{
			"name": rule.Matching(rule.NamePattern, 64), "description": rule.AnyText, "schema": rule.AnyObject,
			"strict": rule.Boolean,
		}, "name"))}, "json_schema"),
}

// tools returns the tools in the form of Responses, whose fields are one level up. A
// function is strict only if the client sets "strict".
func (c *completionRequest) tools(hosted *tool.Registry) ([]berth.Tool, error) {
	var out []berth.Tool
	for _, raw := range c.Functions {
		f, err := plainFunction(raw)
		if err != nil {
			return nil, err
		}
		out = append(out, f)
	}
	for _, raw := range c.Tools {
		t, err := plainTool(raw, hosted)
		if err != nil {
			return nil, err
		}
		out = append(out, t)
	}
	if c.WebSearchOptions != nil {
		out = append(out, c.WebSearchOptions.tool())
	}
	return out, nil
}

func plainTool(raw json.RawMessage, hosted *tool.Registry) (berth.Tool, error) {
	var t struct {
		Type     string          `json:"type"`
		Function json.RawMessage `json:"function"`
		Custom   struct {
			berth.CustomTool
			Format *struct {
				Type    string              `json:"type"`
				Grammar *berth.CustomFormat `json:"grammar"`
			} `json:"format"`
		} `json:"custom"`
	}
	if err := json.Unmarshal(raw, &t); err != nil {
		return berth.Tool{}, fmt.Errorf("decode tool: %w", err)
	}
	switch t.Type {
	case berth.ToolFunction:
		return plainFunction(t.Function)
	case berth.ToolCustom:
		custom := t.Custom.CustomTool
		custom.Type = t.Type
		if f := t.Custom.Format; f != nil {
			custom.Format = &berth.CustomFormat{Type: f.Type}
			if f.Grammar != nil {
				custom.Format.Syntax, custom.Format.Definition = f.Grammar.Syntax, f.Grammar.Definition
			}
		}
		return berth.NewTool(custom), nil
	}
	return hosted.FromChat(t.Type, raw)
}

func plainFunction(raw json.RawMessage) (berth.Tool, error) {
	var f berth.FunctionTool
	if err := json.Unmarshal(raw, &f); err != nil {
		return berth.Tool{}, fmt.Errorf("decode function: %w", err)
	}
	f.Type = berth.ToolFunction
	if f.Strict == nil {
		f.Strict = new(bool)
	}
	return berth.NewTool(f), nil
}

// A chosenTool is a tool_choice or a function_call, in the form of Chat Completions or
// of Responses.
type chosenTool struct {
	Type     string       `json:"type,omitempty"`
	Name     string       `json:"name,omitempty"`
	Mode     string       `json:"mode,omitempty"`
	Tools    []chosenTool `json:"tools,omitempty"`
	Function *chosenTool  `json:"function,omitempty"`
	Custom   *chosenTool  `json:"custom,omitempty"`
	Allowed  *chosenTool  `json:"allowed_tools,omitempty"`
}

// toolChoice returns tool_choice in the form of Responses.
func (c *completionRequest) toolChoice() (json.RawMessage, error) {
	raw := c.ToolChoice
	if given(c.FunctionCall) {
		raw = c.FunctionCall
	}
	if !given(raw) {
		return nil, nil
	}
	if raw[0] == '"' {
		return raw, nil
	}
	var choice chosenTool
	if err := json.Unmarshal(raw, &choice); err != nil {
		return nil, fmt.Errorf("decode tool_choice: %w", err)
	}
	if given(c.FunctionCall) {
		choice.Type = berth.ToolFunction
	}
	return json.Marshal(choice.flat())
}

func (t chosenTool) flat() chosenTool {
	switch {
	case t.Function != nil:
		return chosenTool{Type: t.Type, Name: t.Function.Name}
	case t.Custom != nil:
		return chosenTool{Type: t.Type, Name: t.Custom.Name}
	case t.Allowed == nil:
		return t
	}
	out := chosenTool{Type: t.Type, Mode: t.Allowed.Mode, Tools: []chosenTool{}}
	for _, one := range t.Allowed.Tools {
		out.Tools = append(out.Tools, one.flat())
	}
	return out
}

// forced reports whether the choice names the one tool that the model must call.
func (c *completionRequest) forced() bool {
	var choice chosenTool
	if given(c.FunctionCall) {
		return json.Unmarshal(c.FunctionCall, &choice) == nil && choice.Name != ""
	}
	return json.Unmarshal(c.ToolChoice, &choice) == nil && (choice.Function != nil || choice.Custom != nil)
}

// format returns response_format as text.format.
func (c *completionRequest) format() json.RawMessage {
	if !given(c.ResponseFormat) {
		return nil
	}
	var f struct {
		Type   string                     `json:"type"`
		Schema map[string]json.RawMessage `json:"json_schema"`
	}
	if json.Unmarshal(c.ResponseFormat, &f) != nil || f.Schema == nil {
		return c.ResponseFormat
	}
	if f.Schema["schema"] == nil {
		f.Schema["schema"] = json.RawMessage("{}")
	}
	f.Schema["type"] = berth.StringDelta(f.Type)
	raw, _ := json.Marshal(f.Schema) // decoded from JSON, so it always marshals
	return raw
}
