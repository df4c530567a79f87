package engine_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/model"
)

// outline is what matters of a response's items, without what was left incomplete,
// compactions, and ids.
func (p *playhouse) outline(r *berth.Response) []string {
	var lines []string
	for _, it := range r.Output {
		if it.Status() == berth.StatusInProgress {
			p.t.Errorf("item %s is in progress in a response that has ended: %s", it.ID(), it.Raw())
		}
		var call berth.ShellCall
		if it.Type() == berth.ItemShellCall {
			decode(p.t, it, &call)
		}
		made := call.Berth != nil && call.Berth.Invalid != ""
		if it.Status() == berth.StatusIncomplete && !made || it.Type() == berth.ItemCompaction {
			continue
		}
		var fields map[string]any
		if err := it.Decode(&fields); err != nil {
			p.t.Fatal(err)
		}
		for _, name := range []string{"id", "call_id", "encrypted_content", "summary_of", "fingerprint"} {
			delete(fields, name)
		}
		if b, ok := fields["berth"].(map[string]any); ok {
			delete(b, "approval_request_id")
		}
		if c, ok := fields["caller"].(map[string]any); ok {
			delete(c, "caller_id")
		}
		line, err := json.Marshal(fields)
		if err != nil {
			p.t.Fatal(err)
		}
		lines = append(lines, string(line))
	}
	slices.Sort(lines)
	return lines
}

// checkEvents checks that a response's events have no gap, one end, and deltas that
// add up to the content of the items.
func (p *playhouse) checkEvents(r *berth.Response) {
	p.t.Helper()
	records, err := p.store.Events(p.t.Context(), project, r.ID, -1, 100_000)
	if err != nil {
		p.t.Fatal(err)
	}
	var fold berth.Response
	told := map[string]*strings.Builder{}
	open := map[int]bool{}
	for i, rec := range records {
		var ev berth.Event
		if err := json.Unmarshal(rec.Data, &ev); err != nil {
			p.t.Fatal(err)
		}
		if ev.SequenceNumber != int64(i) {
			p.t.Fatalf("event %d has number %d", i, ev.SequenceNumber)
		}
		if ev.Type.Final() != (i == len(records)-1) {
			p.t.Errorf("event %d of %d is %s", i, len(records), ev.Type)
		}
		switch ev.Type {
		case berth.EventOutputItemAdded:
			open[*ev.OutputIndex] = true
		case berth.EventOutputItemDone:
			if !open[*ev.OutputIndex] {
				p.t.Errorf("event %d ends item %d, which is not open", i, *ev.OutputIndex)
			}
			delete(open, *ev.OutputIndex)
		}
		if err := fold.Apply(&ev); err != nil {
			p.t.Fatal(err)
		}
		add := func(place string, text string) {
			key := fmt.Sprintf("%d %s", *ev.OutputIndex, place)
			if told[key] == nil {
				told[key] = &strings.Builder{}
			}
			told[key].WriteString(text)
		}
		var text string
		switch ev.Type {
		case berth.EventShellOutputDelta:
			var d berth.ShellDelta
			if err := json.Unmarshal(ev.Delta, &d); err != nil {
				p.t.Fatal(err)
			}
			add(fmt.Sprintf("stdout %d", *ev.CommandIndex), d.Stdout)
			add(fmt.Sprintf("stderr %d", *ev.CommandIndex), d.Stderr)
		case berth.EventShellCommandDelta:
			_ = json.Unmarshal(ev.Delta, &text)
			add(fmt.Sprintf("command %d", *ev.CommandIndex), text)
		case berth.EventOutputTextDelta, berth.EventRefusalDelta, berth.EventReasoningTextDelta,
			berth.EventReasoningSummaryDelta,
			berth.EventFunctionArgumentsDelta, berth.EventCustomInputDelta, berth.EventPatchDiffDelta:
			_ = json.Unmarshal(ev.Delta, &text)
			add("text", text)
		}
	}
	if len(open) > 0 {
		p.t.Errorf("items at %v were not ended", open)
	}
	if a, b := asJSON(p.t, fold), asJSON(p.t, r); a != b {
		p.t.Errorf("the stored response differs from the fold of its events: %s\nand %s", a, b)
	}
	var calls []string
	for i, it := range r.Output {
		switch it.Type() {
		case berth.ItemShellCall:
			calls = append(calls, it.CallID())
		case berth.ItemShellCallOutput:
			if !slices.Contains(calls, it.CallID()) {
				p.t.Errorf("output %d comes before its call", i)
			}
		}
		for place, want := range textsIn(p, it) {
			got := ""
			if b := told[fmt.Sprintf("%d %s", i, place)]; b != nil {
				got = b.String()
			}
			if got != want {
				p.t.Errorf("%s of item %d: the deltas have %q, the item has %q: %s", place, i, got, want, it.Raw())
			}
		}
	}
}

// textsIn returns the texts of an item that come in deltas.
func textsIn(p *playhouse, it berth.Item) map[string]string {
	texts := map[string]string{}
	switch it.Type() {
	case berth.ItemMessage:
		var m berth.Message
		decode(p.t, it, &m)
		texts["text"] = textOf(m.Content)
	case berth.ItemReasoning:
		var r berth.Reasoning
		decode(p.t, it, &r)
		texts["text"] = textOf(slices.Concat(r.Summary, r.Content))
	case berth.ItemFunctionCall:
		var c berth.FunctionCall
		decode(p.t, it, &c)
		texts["text"] = c.Arguments
	case berth.ItemCustomToolCall:
		var c berth.CustomToolCall
		decode(p.t, it, &c)
		texts["text"] = c.Input
	case berth.ItemApplyPatchCall:
		var c berth.ApplyPatchCall
		decode(p.t, it, &c)
		if c.Operation.Diff != nil {
			texts["text"] = *c.Operation.Diff
		}
	case berth.ItemShellCall:
		var c berth.ShellCall
		decode(p.t, it, &c)
		if c.Berth == nil || c.Berth.CheckRound == 0 {
			for i, command := range c.Action.Commands {
				texts[fmt.Sprintf("command %d", i)] = command
			}
		}
	case berth.ItemShellCallOutput:
		var o berth.ShellCallOutput
		decode(p.t, it, &o)
		for i, c := range o.Output {
			texts[fmt.Sprintf("stdout %d", i)], texts[fmt.Sprintf("stderr %d", i)] = c.Stdout, c.Stderr
		}
	}
	return texts
}

func textOf(content []berth.Content) string {
	var b strings.Builder
	for _, c := range content {
		b.WriteString(c.Text + c.Refusal)
	}
	return b.String()
}

// unsaid is what a model adds to its turn that was interrupted: what the context shows
// of it already, it does not write again.
func unsaid(t turn, context []berth.Item) turn {
	var ended []berth.Item // the model's own items at the end of the context
	made := map[string]bool{}
	for _, it := range context {
		switch {
		case it.Type() == berth.ItemFunctionCall:
			var c berth.FunctionCall
			_ = it.Decode(&c)
			made[deed(c.Name, c.Arguments)] = true
		case it.Type() == berth.ItemReasoning, it.Role() == "assistant":
			ended = append(ended, it)
			continue
		}
		if it.Type() == berth.ItemMessage {
			ended = nil
		}
	}
	for _, it := range ended {
		t = without(t, it)
	}
	arguments := map[int]string{}
	names := map[int]string{}
	for _, d := range t {
		if c, ok := d.(model.Call); ok {
			arguments[c.Index] += c.Arguments
			names[c.Index] += c.Name
		}
	}
	return slices.DeleteFunc(slices.Clone(t), func(d any) bool {
		c, ok := d.(model.Call)
		return ok && made[deed(names[c.Index], arguments[c.Index])]
	})
}

// deed returns the part of a call that is the same as the model writes it and sees it.
func deed(name, arguments string) string {
	if _, after, ok := strings.Cut(arguments, `"commands":[`); ok {
		arguments, _, _ = strings.Cut(after, "]")
	}
	return name + " " + strings.ReplaceAll(arguments, `"`, "")
}

// without returns a turn without the text of the item at its start.
func without(t turn, it berth.Item) turn {
	var body struct{ Content, Summary []berth.Content }
	_ = it.Decode(&body)
	words := textOf(slices.Concat(body.Summary, body.Content))
	said := ""
	for i, d := range t {
		switch d := d.(type) {
		case model.Text:
			said += d.Text
		case model.Refusal:
			said += d.Text
		case model.Thought:
			said += d.Text
		}
		if said == words && said != "" {
			return slices.Delete(slices.Clone(t), 0, i+1)
		}
	}
	return t
}
