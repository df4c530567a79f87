package chat

import (
	"encoding/json"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/internal/rule"
	"github.com/berth-run/berth/tool"
	"github.com/berth-run/berth/tool/shell"
)

// completionTool checks an entry of "tools": a function, or a tool of Responses
// that runs on this server. That is an extension: its calls are made and answered
// here, and the client sees what the model says in the end.
var completionTool = rule.ByType(rule.WithUnsupported(map[string]rule.Rule{
	berth.ToolFunction: rule.Object(rule.Fields{"type": rule.AnyText, "function": rule.StrictFunction(rule.Object(rule.Fields{
		"name": rule.Matching(rule.NamePattern, 64), "description": rule.AnyText, "parameters": rule.AnyObject, "strict": rule.Boolean,
	}, "name"))}, "function"),
	berth.ToolCustom: rule.Object(rule.Fields{"type": rule.AnyText, "custom": rule.Object(rule.Fields{
		"name": rule.Matching(rule.NamePattern, 64), "description": rule.AnyText,
		"format": rule.ByType(map[string]rule.Rule{
			"text": rule.Object(rule.Fields{"type": rule.AnyText}),
			"grammar": rule.Object(rule.Fields{"type": rule.AnyText,
				"grammar": rule.Object(rule.Fields{"syntax": rule.OneOf("lark", "regex"), "definition": rule.Text(1, 1<<16)}, "syntax", "definition"),
			}, "grammar"),
		}),
	}, "name")}, "custom"),
	berth.ToolShell: rule.Object(rule.Fields{"type": rule.AnyText, "environment": rule.ByType(map[string]rule.Rule{
		berth.EnvironmentAuto:      shell.Environments[berth.EnvironmentAuto],
		berth.EnvironmentReference: shell.Environments[berth.EnvironmentReference],
		berth.EnvironmentLocal:     rule.UnsupportedKind("environments of Chat Completions"),
	})}),
}, "tools", notInCompletions))

// notInCompletions are the tools of Responses that have no place here: what is not
// served at all, and what a client would have to answer in a form that Chat
// Completions has not.
var notInCompletions = append([]string{berth.ToolApplyPatch, berth.ToolLocalShell, berth.ToolNamespace}, tool.Unserved...)

// legacyFunction checks an entry of "functions".
var legacyFunction = rule.Object(rule.Fields{
	"name": rule.Matching(rule.NamePattern, 64), "description": rule.AnyText, "parameters": rule.AnyObject,
}, "name")

// completionToolChoice is a mode or an object, whose fields are one level deeper
// than those of Responses.
func completionToolChoice(at string, v any) error {
	if _, ok := v.(string); ok {
		return rule.OneOf("none", "auto", "required")(at, v)
	}
	return completionToolChoices(at, v)
}

var (
	completionTools = rule.WithUnsupported(map[string]rule.Rule{
		berth.ToolFunction: rule.Object(rule.Fields{"type": rule.AnyText, "function": named}, "function"),
		berth.ToolCustom:   rule.Object(rule.Fields{"type": rule.AnyText, "custom": named}, "custom"),
		berth.ToolShell:    rule.Object(rule.Fields{"type": rule.AnyText}),
	}, "tools", notInCompletions)

	named = rule.Object(rule.Fields{"name": rule.Text(1, 64)}, "name")

	completionToolChoices = rule.ByType(rule.Merged(completionTools, map[string]rule.Rule{
		"allowed_tools": rule.Object(rule.Fields{"type": rule.AnyText, "allowed_tools": rule.Object(rule.Fields{
			"mode": rule.OneOf("auto", "required"), "tools": rule.List(rule.ByType(completionTools), 128),
		}, "mode", "tools")}, "allowed_tools"),
	}))
)

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
	"json_schema": rule.Object(rule.Fields{"type": rule.AnyText, "json_schema": rule.StrictFormat(rule.Object(rule.Fields{
		"name": rule.Matching(rule.NamePattern, 64), "description": rule.AnyText, "schema": rule.AnyObject, "strict": rule.Boolean,
	}, "name"))}, "json_schema"),
}

// tools returns the tools as Responses has them: one level up, and functions
// strict only if they say so.
func (c *completionRequest) tools() ([]berth.Tool, error) {
	var out []berth.Tool
	for _, raw := range c.Functions {
		f, err := plainFunction(raw)
		if err != nil {
			return nil, err
		}
		out = append(out, f)
	}
	for _, raw := range c.Tools {
		t, err := plainTool(raw)
		if err != nil {
			return nil, err
		}
		out = append(out, t)
	}
	return out, nil
}

func plainTool(raw json.RawMessage) (berth.Tool, error) {
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
		Environment *berth.ShellToolEnvironment `json:"environment"`
	}
	if err := json.Unmarshal(raw, &t); err != nil {
		return berth.Tool{}, err
	}
	switch t.Type {
	case berth.ToolFunction:
		return plainFunction(t.Function)
	case berth.ToolCustom:
		tool := t.Custom.CustomTool
		tool.Type = t.Type
		if f := t.Custom.Format; f != nil {
			tool.Format = &berth.CustomFormat{Type: f.Type}
			if f.Grammar != nil {
				tool.Format.Syntax, tool.Format.Definition = f.Grammar.Syntax, f.Grammar.Definition
			}
		}
		return berth.NewTool(tool), nil
	}
	if t.Environment == nil { // there is no local shell here that its absence could mean
		t.Environment = &berth.ShellToolEnvironment{Type: berth.EnvironmentAuto}
	}
	return berth.NewTool(berth.ShellTool{Type: t.Type, Environment: t.Environment}), nil
}

func plainFunction(raw json.RawMessage) (berth.Tool, error) {
	var f berth.FunctionTool
	if err := json.Unmarshal(raw, &f); err != nil {
		return berth.Tool{}, err
	}
	f.Type = berth.ToolFunction
	if f.Strict == nil {
		f.Strict = new(bool)
	}
	return berth.NewTool(f), nil
}

// A chosenTool is what tool_choice and function_call name, in both forms.
type chosenTool struct {
	Type     string       `json:"type,omitempty"`
	Name     string       `json:"name,omitempty"`
	Mode     string       `json:"mode,omitempty"`
	Tools    []chosenTool `json:"tools,omitempty"`
	Function *chosenTool  `json:"function,omitempty"`
	Custom   *chosenTool  `json:"custom,omitempty"`
	Allowed  *chosenTool  `json:"allowed_tools,omitempty"`
}

// toolChoice returns tool_choice as Responses has it.
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
		return nil, err
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

// forced reports whether the choice names the one tool to be called.
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
	raw, _ := json.Marshal(f.Schema) // what came as JSON marshals
	return raw
}
