package openai

import (
	"encoding/json"
	"strings"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/model"
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

// customInput returns the text of a call's arguments.
func customInput(arguments string) string {
	var a struct {
		Input *string `json:"input"`
	}
	if json.Unmarshal([]byte(arguments), &a) != nil || a.Input == nil {
		return arguments
	}
	return *a.Input
}

// startCustom opens a call of a custom tool.
func (a *answer) startCustom(item *openItem, it berth.Item, out []model.Delta) ([]model.Delta, error) {
	var c berth.CustomToolCall
	if err := it.Decode(&c); err != nil {
		return out, err
	}
	item.call = a.calls
	a.calls++
	return append(out, model.Call{Index: item.call, ID: a.ids.For(c.CallID), Name: c.Name, Arguments: `{"input":"` + escaped(c.Input)}), nil
}

// endCustom ends the arguments of a call, with its text if it had no deltas.
func (a *answer) endCustom(item *openItem, it berth.Item, out []model.Delta) []model.Delta {
	if item == nil {
		return out
	}
	end := `"}`
	var c berth.CustomToolCall
	if !item.emitted && it.Decode(&c) == nil {
		end = escaped(c.Input) + end
	}
	return append(out, model.Call{Index: item.call, Arguments: end})
}

// escaped returns a text as the inside of a JSON string.
func escaped(text string) string {
	var quoted strings.Builder
	enc := json.NewEncoder(&quoted)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(text); err != nil {
		panic(err) // a string, written to memory
	}
	return strings.TrimSuffix(quoted.String()[1:], "\"\n")
}
