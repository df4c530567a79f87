package openai

import (
	"github.com/berth-run/berth"
	"github.com/berth-run/berth/model"
	"github.com/berth-run/berth/model/dialogue"
)

// An engine sees a custom tool as a function whose only argument, "input", is the text.
// These functions translate between that and the custom tools of an upstream, which enforces
// their grammars while the model writes.

// custom returns the names of the tools that are sent as custom tools.
func (p *Provider) custom(tools []berth.FunctionTool) map[string]bool {
	names := map[string]bool{}
	for _, t := range tools {
		if t.Custom != nil && p.opts.CustomTools == customNative {
			names[t.Name] = true
		}
	}
	return names
}

// isCustom reports whether the item at index i is a call of a custom tool.
func (w *writer) isCustom(i int) bool {
	if len(w.custom) == 0 {
		return false
	}
	var c berth.FunctionCall
	return w.items[i].Decode(&c) == nil && w.custom[c.Name]
}

// startCustom opens a call of a custom tool.
func (a *answer) startCustom(item *openItem, it berth.Item, out []model.Delta) ([]model.Delta, error) {
	var c berth.CustomToolCall
	if err := it.Decode(&c); err != nil {
		return out, err
	}
	item.call, item.emitted = a.calls, c.Input != ""
	a.calls++
	return append(out, model.Call{Index: item.call, ID: a.ids.For(c.CallID), Name: c.Name,
		Arguments: dialogue.CustomStart + dialogue.Escape(c.Input)}), nil
}

// endCustom ends the arguments of a call, with its text if it had no deltas.
func (a *answer) endCustom(item *openItem, it berth.Item, out []model.Delta) []model.Delta {
	if item == nil {
		return out
	}
	end := dialogue.CustomEnd
	var c berth.CustomToolCall
	if !item.emitted && it.Decode(&c) == nil {
		end = dialogue.Escape(c.Input) + end
	}
	return append(out, model.Call{Index: item.call, Arguments: end})
}
