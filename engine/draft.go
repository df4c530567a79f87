package engine

import (
	"errors"
	"strings"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/tool"
)

// drafts are the streamed parts of the open items. They are a fold of events.
type drafts struct {
	tools *tool.Registry
	open  map[int]tool.Draft // by the item's place in the output
}

func newDrafts(tools *tool.Registry) drafts {
	return drafts{tools, map[int]tool.Draft{}}
}

// add applies events.
func (d drafts) add(events []berth.Event) {
	for i := range events {
		ev := &events[i]
		if ev.OutputIndex == nil {
			continue
		}
		index := *ev.OutputIndex
		switch draft := d.open[index]; {
		case ev.Type == berth.EventOutputItemAdded:
			d.open[index] = d.draftOf(ev.Item)
		case ev.Type == berth.EventOutputItemDone:
			delete(d.open, index)
		case draft != nil:
			draft.Add(ev)
		}
	}
}

// draftOf returns an empty draft of an item.
func (d drafts) draftOf(it *berth.Item) tool.Draft {
	if it.Type() == berth.ItemMessage || it.Type() == berth.ItemReasoning {
		return &partsDraft{}
	}
	if calls := d.tools.CallsOf(*it); calls != nil && calls.Draft != nil {
		return calls.Draft()
	}
	return tool.TextDraft(func(berth.Item, string) map[string]any { return nil })
}

// A partsDraft is the streamed part of a message or of reasoning.
type partsDraft struct {
	parts []berth.Content // the complete ones
	kind  string          // of the open part
	text  strings.Builder // of the open part
}

func (w *partsDraft) Add(ev *berth.Event) {
	switch ev.Type {
	case berth.EventContentPartAdded, berth.EventReasoningSummaryPartAdded:
		w.kind = ev.Part.Type
		w.text.Reset()
	case berth.EventContentPartDone:
		w.parts = append(w.parts, *ev.Part)
		w.kind = ""
		w.text.Reset()
	default:
		text, _ := ev.DeltaText()
		w.text.WriteString(text)
	}
}

func (w *partsDraft) Fields(it berth.Item) map[string]any {
	text := w.text.String()
	if it.Type() == berth.ItemReasoning {
		name := "content"
		if w.kind == "summary_text" {
			name = "summary"
		}
		return map[string]any{name: []berth.Content{{Type: w.kind, Text: text}}}
	}
	content := w.parts
	switch {
	case text != "" && w.kind == "refusal":
		content = append(content, berth.Content{Type: w.kind, Refusal: text})
	case text != "":
		content = append(content, berth.Content{Type: "output_text", Text: text})
	}
	if len(content) == 0 {
		return nil
	}
	return map[string]any{"content": content}
}

// abandon returns the events that close the open items as incomplete, so that the model
// can be called again. It leaves the items at the places in except open.
func abandon(body berth.Response, drafts drafts, except map[int]bool) []berth.Event {
	var events []berth.Event
	for i, it := range body.Output {
		draft := drafts.open[i]
		if it.Status() != berth.StatusInProgress && draft == nil || except[i] {
			continue
		}
		if it.Status().Final() { // a call that holds its own output has closed it
			continue
		}
		fields := map[string]any{}
		if draft != nil {
			fields = draft.Fields(it)
		}
		if fields == nil {
			fields = map[string]any{}
		}
		fields["status"] = berth.StatusIncomplete
		closed, err := it.With(fields)
		if err != nil {
			panic(errors.Join(errors.New("engine: item of this process is not JSON"), err))
		}
		events = append(events, done(i, closed))
	}
	return events
}
