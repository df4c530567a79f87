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

// input writes the items. They go as they are, with the fields and in the order
// that they came in, but for what a server that has not seen them before refuses:
// calls without outputs and outputs without calls, an id twice, and reasoning that
// another vendor sealed or that leads to nothing.
func (p *Provider) input(items []berth.Item) ([]json.RawMessage, error) {
	w := &writer{p: p, items: items, pairs: dialogue.Pair(items), ids: dialogue.IDs{Length: 64}, idOf: map[int]string{}}
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
	idOf  map[int]string // the id that a call at a place has got
	out   []json.RawMessage

	missing []json.RawMessage // outputs of calls that have none, until the model's turn ends
}

func (w *writer) add(i int, it berth.Item) error {
	if spoken := it.Type() == berth.ItemReasoning || it.Type() == berth.ItemFunctionCall || it.Role() == "assistant"; !spoken {
		w.out, w.missing = append(w.out, w.missing...), nil
	}
	switch it.Type() {
	case berth.ItemMessage, "":
		return w.message(it)
	case berth.ItemReasoning:
		return w.reasoning(i, it)
	case berth.ItemFunctionCall:
		return w.call(i, it)
	case berth.ItemFunctionCallOutput:
		place, paired := w.pairs.CallOf[i]
		if !paired {
			w.p.up.Log.Debug("an output without its call is told as the user's text", "call_id", it.CallID())
			content, err := dialogue.Orphan(it)
			if err != nil {
				return err
			}
			return w.write(berth.NewItem(berth.Message{Type: berth.ItemMessage, Role: "user", Content: content}), nil)
		}
		if w.idOf[place] == "" { // it comes before its call
			w.idOf[place] = w.ids.For(it.CallID())
		}
		return w.write(it, map[string]any{"call_id": w.idOf[place], "id": nil})
	}
	w.out = append(w.out, it.Raw())
	return nil
}

// write adds an item with fields changed; nil removes one.
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

// message adds a message. OpenAI takes ids that look like its own and knows no
// names of speakers.
func (w *writer) message(it berth.Item) error {
	change := map[string]any{}
	if !strings.HasPrefix(it.ID(), berth.PrefixMessage) {
		change["id"] = nil
	}
	var m berth.Message
	if err := it.Decode(&m); err != nil {
		return berth.Invalid("input", "Invalid message: %v.", err)
	}
	if said, changed := uncited(m.Content); changed {
		change["content"] = said
		m.Content = said
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

// uncited removes the citations of files in this house's containers: their ids
// mean nothing to the upstream.
func uncited(parts []berth.Content) (_ []berth.Content, changed bool) {
	for i, part := range parts {
		parts[i].Annotations = slices.DeleteFunc(part.Annotations, func(raw json.RawMessage) bool {
			return bytes.Contains(raw, []byte(`"container_file_citation"`))
		})
		changed = changed || len(parts[i].Annotations) < len(part.Annotations)
	}
	return parts, changed
}

// reasoning adds reasoning that is this vendor's and leads to something.
func (w *writer) reasoning(i int, it berth.Item) error {
	var r berth.Reasoning
	if err := it.Decode(&r); err != nil {
		return berth.Invalid("input", "Invalid reasoning: %v.", err)
	}
	ours := r.EncryptedContent != "" && !dialogue.IsSealed(r.EncryptedContent) || r.EncryptedContent == "" && w.p.opts.Reasoning == "all" && len(r.Content) > 0
	if !ours || !w.leads(i) {
		w.p.up.Log.Debug("reasoning is left out that the model cannot use", "id", it.ID())
		return nil
	}
	w.out = append(w.out, it.Raw())
	return nil
}

// leads reports whether something that the model said or did follows a place.
func (w *writer) leads(i int) bool {
	for _, it := range w.items[i+1:] {
		switch it.Type() {
		case berth.ItemReasoning:
		case berth.ItemMessage, "":
			return it.Role() == "assistant"
		default:
			return it.Type() != berth.ItemFunctionCallOutput
		}
	}
	return false
}

// call adds a call, and an output if there is none.
func (w *writer) call(i int, it berth.Item) error {
	var c berth.FunctionCall
	if err := it.Decode(&c); err != nil {
		return berth.Invalid("input", "Invalid function call: %v.", err)
	}
	if w.idOf[i] == "" {
		w.idOf[i] = w.ids.For(c.CallID)
	}
	change := map[string]any{"call_id": w.idOf[i], "name": dialogue.Name(c.Name), "arguments": cmp.Or(c.Arguments, "{}")}
	if !strings.HasPrefix(it.ID(), berth.PrefixFunctionCall) {
		change["id"] = nil
	}
	if err := w.write(it, change); err != nil {
		return err
	}
	if _, answered := w.pairs.OutputOf[i]; answered {
		return nil
	}
	w.p.up.Log.Debug("a call without output is told as interrupted", "call_id", c.CallID)
	output := berth.FunctionCallOutput{Type: berth.ItemFunctionCallOutput, CallID: w.idOf[i], Output: berth.StringDelta(dialogue.Interrupted)}
	w.missing = append(w.missing, berth.NewItem(output).Raw())
	return nil
}
