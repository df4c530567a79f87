package chat

import (
	"github.com/berth-run/berth"
	"github.com/berth-run/berth/model"
	"github.com/berth-run/berth/model/dialogue"
)

// OpenAI's own server has custom tools and enforces their grammars while the model writes.
// The engine sees them as functions; see dialogue.CustomInput.

// The values of Options.CustomTools.
const (
	customNative   = "native"
	customFunction = "function"
)

// custom returns the names of the tools that are sent as custom tools.
func (p *Provider) custom(tools []berth.FunctionTool) map[string]bool {
	if p.opts.CustomTools != customNative {
		return nil
	}
	names := map[string]bool{}
	for _, t := range tools {
		if t.Custom != nil {
			names[t.Name] = true
		}
	}
	return names
}

// newCustomTool returns a custom tool in the form of Chat Completions.
func newCustomTool(t *berth.CustomTool) tool {
	out := &customTool{Name: t.Name, Description: t.Description}
	if f := t.Format; f != nil {
		out.Format = &customFormat{Type: f.Type}
		if f.Type == "grammar" {
			out.Format.Grammar = &customGrammar{Definition: f.Definition, Syntax: f.Syntax}
		}
	}
	return tool{Type: berth.ToolCustom, Custom: out}
}

// newToolCall returns a call of the history.
func newToolCall(id string, c *dialogue.Call, custom bool) toolCall {
	if custom {
		return toolCall{ID: id, Type: berth.ToolCustom,
			Custom: &customCall{Name: c.Name, Input: dialogue.CustomInput(string(c.Arguments))}}
	}
	return toolCall{ID: id, Type: "function", Function: &functionCall{Name: c.Name, Arguments: string(c.Arguments)}}
}

// fromCustom returns a piece of a custom tool's call as one of a function's. first is
// true for the first piece of the call.
func (p *piece) fromCustom(first bool) *piece {
	text := dialogue.Escape(p.Custom.Input)
	if first {
		text = dialogue.CustomStart + text
	}
	return &piece{Index: p.Index, ID: p.ID, Function: pieceBody{Name: p.Custom.Name, Arguments: arguments(text)}}
}

// end appends the ends of the arguments of custom tools' calls.
func (c *calls) end(out []model.Delta) []model.Delta {
	for n, a := range c.all {
		if a.custom {
			out = append(out, model.Call{Index: n, Arguments: dialogue.CustomEnd})
		}
	}
	return out
}
