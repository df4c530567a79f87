package engine

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/model"
	"github.com/berth-run/berth/tool"
)

// Some upstreams have hosted tools of their own, such as image_generation. They get such a
// tool as it is, and its items and events pass through unchanged; see model.ToolOwner.

// A nativeItem is an open item that the upstream makes with a tool of its own.
type nativeItem struct {
	index int // in the output
	item  berth.Item
}

// writeNative returns the events of one step of such an item.
func (w *turnWriter) writeNative(d model.Native) []berth.Event {
	open, known := w.native[d.Index]
	ev := d.Event
	switch {
	case ev.Type == berth.EventOutputItemAdded && ev.Item != nil && !known:
		open = &nativeItem{item: w.named(*ev.Item)}
		if w.native == nil {
			w.native = map[int]*nativeItem{}
		}
		w.native[d.Index] = open
		if w.run.engine.Tools.IsHosted(open.item) {
			w.run.hostedCalls++
		}
		events := append(w.closeText(false), w.closeWhole(nil)...)
		return append(events, w.place(&open.index, open.item))
	case !known:
		return nil
	case ev.Type == berth.EventOutputItemDone && ev.Item != nil:
		delete(w.native, d.Index)
		item := with(unmarked(*ev.Item), map[string]any{"id": open.item.ID()})
		if item.Status() == berth.StatusInProgress {
			item = with(item, map[string]any{"status": berth.StatusCompleted})
		}
		outcome := OutcomeClient
		if w.run.engine.Tools.IsHosted(item) {
			outcome = OutcomeOK
			if w.run.engine.Tools.Outcome(item) != tool.OK {
				outcome = OutcomeFailed
			}
		}
		w.run.engine.Observer.Called(item.Type(), outcome, 0)
		return []berth.Event{done(open.index, item)}
	case ev.Item != nil:
		return nil
	}
	ev.ItemID = open.item.ID()
	return at(open.index, []berth.Event{ev})
}

// named returns an item of the upstream with an id that no other item of the response has.
func (w *turnWriter) named(it berth.Item) berth.Item {
	it = unmarked(it)
	taken := func(other berth.Item) bool { return other.ID() == it.ID() }
	if it.ID() != "" && !slices.ContainsFunc(w.output, taken) && !slices.ContainsFunc(w.run.transcript.Items(), taken) {
		return it
	}
	return with(it, map[string]any{"id": berth.NewID(w.run.engine.Tools.IDPrefix(it.Type()))})
}

// unmarked returns an item without Berth's extensions, which an upstream cannot set.
func unmarked(it berth.Item) berth.Item {
	if !bytes.Contains(it.Raw(), []byte(`"berth"`)) {
		return it
	}
	var all map[string]json.RawMessage
	if it.Decode(&all) != nil {
		return it
	}
	delete(all, "berth")
	return berth.NewItem(all)
}

// closeNative closes the items that the upstream left open at the end of its turn.
func (w *turnWriter) closeNative() (events []berth.Event) {
	for _, i := range slices.Sorted(maps.Keys(w.native)) {
		open := w.native[i]
		events = append(events, done(open.index, with(open.item, map[string]any{"status": berth.StatusIncomplete})))
	}
	w.native = nil
	return events
}
