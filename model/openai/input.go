package openai

import (
	"bytes"
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/model/dialogue"
)

// input returns the items for the upstream. Items stay unchanged and in order, except
// those that a server refuses if it has not seen them before: calls without outputs,
// outputs without calls, repeated ids, reasoning that another vendor sealed, and
// reasoning that nothing follows.
//
// custom holds the names of the custom tools. Their calls are sent as such.
func (p *Provider) input(items []berth.Item, custom map[string]bool) ([]json.RawMessage, error) {
	w := &writer{p: p, items: items, custom: custom, pairs: dialogue.Pair(items), ids: dialogue.IDs{Length: 64},
		idOf: map[int]string{}, computers: map[string]string{}}
	for i, it := range items {
		if err := w.add(i, it); err != nil {
			return nil, err
		}
	}
	return append(append([]json.RawMessage{}, w.out...), w.missing...), nil
}

type writer struct {
	p     *Provider
	items []berth.Item
	pairs dialogue.Pairs
	ids   dialogue.IDs
	idOf  map[int]string // call ids for the upstream, by index of the call
	out   []json.RawMessage

	custom map[string]bool // names of custom tools

	computers map[string]string // call ids for the upstream of computer calls, by their own

	missing []json.RawMessage // outputs for calls without one, added after the model's turn
}

// isOutput holds the types of items, besides messages, that a model writes.
var isOutput = map[berth.ItemType]bool{berth.ItemReasoning: true, berth.ItemFunctionCall: true,
	berth.ItemImageGenerationCall: true, berth.ItemComputerCall: true}

func (w *writer) add(i int, it berth.Item) error {
	if output := it.Role() == "assistant" || isOutput[it.Type()]; !output {
		w.out, w.missing = append(w.out, w.missing...), nil
	}
	switch it.Type() {
	case berth.ItemMessage, "":
		return w.message(it)
	case berth.ItemReasoning:
		return w.reasoning(i, it)
	case berth.ItemImageGenerationCall, berth.ItemComputerCall, berth.ItemComputerCallOutput:
		return w.native(it)
	case berth.ItemFunctionCall:
		return w.call(i, it)
	case berth.ItemFunctionCallOutput:
		place, paired := w.pairs.CallOf[i]
		if !paired {
			w.p.up.Log.Debug("turned output without call into user message", "call_id", it.CallID())
			content, err := dialogue.Orphan(it)
			if err != nil {
				return err
			}
			return w.write(berth.NewItem(berth.Message{Type: berth.ItemMessage, Role: "user", Content: content}), nil)
		}
		if w.idOf[place] == "" { // the output precedes its call
			w.idOf[place] = w.ids.For(it.CallID())
		}
		change := map[string]any{"call_id": w.idOf[place], "id": nil}
		if w.isCustom(place) {
			change["type"] = berth.ItemCustomToolCallOutput
		}
		return w.write(it, change)
	}
	w.out = append(w.out, it.Raw())
	return nil
}

// write adds an item after applying changes to its fields; nil removes a field.
func (w *writer) write(it berth.Item, change map[string]any) error {
	var all map[string]json.RawMessage
	if err := it.Decode(&all); err != nil {
		return berth.Invalid("input", "Invalid item: %v.", err)
	}
	changed := false
	for k, v := range change {
		raw, err := json.Marshal(v)
		if err != nil {
			return err
		}
		switch before, ok := all[k]; {
		case v == nil && ok:
			delete(all, k)
			changed = true
		case v != nil && string(before) != string(raw):
			all[k] = raw
			changed = true
		}
	}
	if !changed {
		w.out = append(w.out, it.Raw())
		return nil
	}
	raw, err := json.Marshal(all)
	w.out = append(w.out, raw)
	return err
}

// message adds a message. OpenAI accepts only ids in its own form, and no participant
// names.
func (w *writer) message(it berth.Item) error {
	change := map[string]any{}
	if !strings.HasPrefix(it.ID(), berth.PrefixMessage) {
		change["id"] = nil
	}
	var m berth.Message
	if err := it.Decode(&m); err != nil {
		return berth.Invalid("input", "Invalid message: %v.", err)
	}
	if content, changed := uncited(m.Content); changed {
		change["content"] = content
		m.Content = content
	}
	if m.Name != "" {
		kind := "input_text"
		if m.Role == "assistant" {
			kind = "output_text"
		}
		change["name"] = nil
		change["content"] = slices.Concat([]berth.Content{{Type: kind, Text: m.Name + ":"}}, m.Content)
	}
	return w.write(it, change)
}

// uncited removes citations of files in Berth's containers. Their ids mean nothing to
// the upstream.
func uncited(parts []berth.Content) (_ []berth.Content, changed bool) {
	for i, part := range parts {
		parts[i].Annotations = slices.DeleteFunc(part.Annotations, func(raw json.RawMessage) bool {
			return bytes.Contains(raw, []byte(`"container_file_citation"`))
		})
		changed = changed || len(parts[i].Annotations) < len(part.Annotations)
	}
	return parts, changed
}

// reasoning adds reasoning that the upstream can read and that more output follows.
func (w *writer) reasoning(i int, it berth.Item) error {
	var r berth.Reasoning
	if err := it.Decode(&r); err != nil {
		return berth.Invalid("input", "Invalid reasoning: %v.", err)
	}
	ours := r.EncryptedContent != "" && !dialogue.IsSealed(r.EncryptedContent) || r.EncryptedContent == "" &&
		w.p.opts.Reasoning == "all" && len(r.Content) > 0
	if !ours || !w.leads(i) {
		w.p.up.Log.Debug("dropped reasoning that the model cannot use", "id", it.ID())
		return nil
	}
	w.out = append(w.out, it.Raw())
	return nil
}

// leads reports whether output of the model follows the item at index i.
func (w *writer) leads(i int) bool {
	for _, it := range w.items[i+1:] {
		switch it.Type() {
		case berth.ItemReasoning:
		case berth.ItemMessage, "":
			return it.Role() == "assistant"
		default:
			return it.Type() != berth.ItemFunctionCallOutput && it.Type() != berth.ItemComputerCallOutput
		}
	}
	return false
}

// call adds a call. If it has no output, it schedules one.
func (w *writer) call(i int, it berth.Item) error {
	var c berth.FunctionCall
	if err := it.Decode(&c); err != nil {
		return berth.Invalid("input", "Invalid function call: %v.", err)
	}
	if w.idOf[i] == "" {
		w.idOf[i] = w.ids.For(c.CallID)
	}
	change := map[string]any{"call_id": w.idOf[i], "name": dialogue.Name(c.Name), "arguments": cmp.Or(c.Arguments,
		"{}")}
	if !strings.HasPrefix(it.ID(), berth.PrefixFunctionCall) {
		change["id"] = nil
	}
	output := berth.FunctionCallOutput{Type: berth.ItemFunctionCallOutput, CallID: w.idOf[i],
		Output: berth.StringDelta(dialogue.Interrupted)}
	if w.isCustom(i) {
		change["type"], change["id"], change["arguments"], change["input"] = berth.ItemCustomToolCall, nil, nil,
			dialogue.CustomInput(c.Arguments)
		output.Type = berth.ItemCustomToolCallOutput
	}
	if err := w.write(it, change); err != nil {
		return err
	}
	if _, answered := w.pairs.OutputOf[i]; answered {
		return nil
	}
	w.p.up.Log.Debug("marked call without output as interrupted", "call_id", c.CallID)
	w.missing = append(w.missing, berth.NewItem(output).Raw())
	return nil
}
