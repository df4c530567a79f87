package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/engine/transcript"
	"github.com/berth-run/berth/model"
	"github.com/berth-run/berth/tool"
)

// Some upstreams have hosted tools of their own, such as image_generation. They get such a
// tool as it is, and its items and events pass through unchanged; see model.ToolOwner.

// toolContext returns the context in which the tools of a run are bound.
func (r *run) toolContext(caller berth.Caller, include []string) tool.Context {
	return tool.Context{Caller: caller, Include: include, Native: r.hasTool, Pictures: runPictures{r}}
}

// isNative reports whether the upstream gets a tool as its own.
func (s *toolset) isNative(function string) bool {
	return slices.ContainsFunc(s.all, func(f berth.FunctionTool) bool { return f.Native != nil && f.Name == function })
}

// setNative lets the transcript leave the calls of the upstream's own tools unchanged.
func (s *toolset) setNative(t *transcript.Transcript) {
	if slices.ContainsFunc(s.all, func(f berth.FunctionTool) bool { return f.Native != nil }) {
		t.Native = s.isNative
	}
}

// addMasks replaces the files to which the upstream's own tools refer by their content.
func (r *run) addMasks(ctx context.Context, tools []berth.FunctionTool) error {
	for i, t := range tools {
		if t.Native == nil || !bytes.Contains(t.Native.Raw(), []byte(`"file_id"`)) {
			continue
		}
		var fields map[string]json.RawMessage
		var mask berth.ImageMask
		if err := t.Native.Decode(&fields); err != nil {
			return fmt.Errorf("decode tool: %w", err)
		}
		if json.Unmarshal(fields["input_image_mask"], &mask) != nil || mask.FileID == "" {
			continue
		}
		url, err := r.transcript.Image(ctx, mask.FileID)
		if err != nil {
			return err
		}
		if fields["input_image_mask"], err = json.Marshal(berth.ImageMask{ImageURL: url}); err != nil {
			return fmt.Errorf("encode mask: %w", err)
		}
		native := berth.NewTool(fields)
		tools[i].Native = &native
	}
	return nil
}

// nativeLimit returns how many calls the upstream may make of its own tools in one turn; 0
// means no limit.
func (r *run) nativeLimit(tools []berth.FunctionTool) int {
	limit := r.record.Body.MaxToolCalls
	hosted := func(f berth.FunctionTool) bool { return f.Native != nil && r.tools.hosted(f.Name) != nil }
	if limit == nil || !slices.ContainsFunc(tools, hosted) {
		return 0
	}
	return max(1, *limit-r.hostedCalls) // at the limit, hosted tools are not offered
}

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

// runPictures are the images of a run, for its tools.
type runPictures struct{ run *run }

// Conversation implements tool.Pictures.
func (p runPictures) Conversation(ctx context.Context) ([]string, error) {
	return p.run.transcript.Images(ctx, p.run.writer.Body().Output)
}

// File implements tool.Pictures.
func (p runPictures) File(ctx context.Context, id berth.FileID) (string, error) {
	return p.run.transcript.Image(ctx, id)
}
