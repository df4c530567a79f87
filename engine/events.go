package engine

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/model"
)

func added(index int, item berth.Item) berth.Event {
	return berth.Event{Type: berth.EventOutputItemAdded, OutputIndex: &index, Item: &item}
}

func done(index int, item berth.Item) berth.Event {
	return berth.Event{Type: berth.EventOutputItemDone, OutputIndex: &index, Item: &item}
}

// list returns a pointer to l, so that the wire shows an empty list as [].
func list(l []json.RawMessage) *[]json.RawMessage {
	if l == nil {
		l = []json.RawMessage{}
	}
	return &l
}

// with returns a provider's item with fields set.
func with(it berth.Item, fields map[string]any) berth.Item {
	out, err := it.With(fields)
	if err != nil {
		panic(fmt.Sprintf("engine: decoded item is not JSON: %v", err))
	}
	return out
}

// at sets the output index of events.
func at(index int, events []berth.Event) []berth.Event {
	for i := range events {
		events[i].OutputIndex = &index
	}
	return events
}

// fold returns the response with events applied.
func fold(body berth.Response, events []berth.Event) berth.Response {
	body.Output = slices.Clone(body.Output)
	for i := range events {
		if err := body.Apply(&events[i]); err != nil {
			panic(err)
		}
	}
	return body
}

// turnsOf returns a turn as its response shows it, or nil if its upstream has no name.
func turnsOf(f model.Finish) []berth.UpstreamUsage {
	if f.Origin.Upstream == "" {
		return nil
	}
	return []berth.UpstreamUsage{{Upstream: f.Origin.Upstream, Model: f.Origin.Model, Turns: 1, Usage: f.Usage,
		Cost: f.Cost}}
}
