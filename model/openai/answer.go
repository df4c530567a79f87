package openai

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"slices"
	"strings"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/internal/sse"
	"github.com/berth-run/berth/model"
	"github.com/berth-run/berth/model/dialogue"
	"github.com/berth-run/berth/model/upstream"
)

// maxEvent bounds one event, in bytes. The last event holds the whole response.
const maxEvent = 64 << 20

// An event is an event of the stream. It has only the fields that are used, so that
// others cannot make it invalid.
type event struct {
	Type         string            `json:"type"`
	OutputIndex  int               `json:"output_index"`
	SummaryIndex int               `json:"summary_index"`
	Item         json.RawMessage   `json:"item"`
	Delta        json.RawMessage   `json:"delta"`
	Logprobs     []json.RawMessage `json:"logprobs"`
	Response     *response         `json:"response"`
}

type response struct {
	Model             string       `json:"model"`
	Usage             *berth.Usage `json:"usage"`
	IncompleteDetails *struct {
		Reason string `json:"reason"`
	} `json:"incomplete_details"`
	Error       json.RawMessage `json:"error"`
	ServiceTier string          `json:"service_tier"`
	Moderation  json.RawMessage `json:"moderation"`
}

// essential holds the fields that an event must have, apart from its item or delta.
type essential struct {
	Type        string `json:"type"`
	OutputIndex int    `json:"output_index"`
}

// An answer decodes one answer of the model.
type answer struct {
	log *slog.Logger

	started bool // an event of the dialect has arrived
	model   string
	finish  *model.Finish
	open    map[int]*openItem // by output index
	calls   int
	custom  bool                    // the request has custom tools
	native  map[berth.ItemType]bool // of the items of the upstream's own tools
	ids     dialogue.NewIDs
}

// An openItem is an output item that has started but not ended.
type openItem struct {
	phase   string
	call    int  // of a function call
	emitted bool // a part of it has been emitted

	native berth.ItemType // of an item that the upstream makes with its own tool
	callID string         // of such an item
}

// The events at the start and the end of an item.
const (
	eventItemAdded = string(berth.EventOutputItemAdded)
	eventItemDone  = string(berth.EventOutputItemDone)
)

func newAnswer(req *model.Request, custom bool, log *slog.Logger) *answer {
	return &answer{log: log, custom: custom, native: nativeTypes(req.Tools), open: map[int]*openItem{},
		ids: dialogue.NewIDs{Items: req.Items}}
}

// Events implements upstream.Answer.
func (a *answer) Events(in io.Reader) iter.Seq2[[]byte, error] {
	return sse.NewReader(in, maxEvent).Data()
}

// Progress implements upstream.Answer.
func (a *answer) Progress() upstream.Progress {
	return upstream.Progress{Started: a.started, Ended: a.finish != nil, Done: a.finish != nil}
}

// Finish implements upstream.Answer.
func (a *answer) Finish(out []model.Delta) ([]model.Delta, error) {
	if a.finish == nil {
		return out, io.ErrUnexpectedEOF
	}
	return append(out, *a.finish), nil
}

// Take implements upstream.Answer.
func (a *answer) Take(data []byte, out []model.Delta) ([]model.Delta, error) {
	if bytes.HasPrefix(data, []byte("[DONE]")) { // end mark of some servers, after the last event
		return out, nil
	}
	var ev event
	if err := upstream.Decode(data, &ev, &essential{}, a.log); err != nil {
		return out, err
	}
	a.started = a.started || strings.HasPrefix(ev.Type, "response.")
	if ev.Response != nil && ev.Response.Model != "" {
		a.model = ev.Response.Model
	}
	var it berth.Item
	switch ev.Type {
	case eventItemAdded:
		if err := it.UnmarshalJSON(ev.Item); err != nil {
			return out, fmt.Errorf("%s: %w", ev.Type, err)
		}
		if a.native[it.Type()] {
			a.open[ev.OutputIndex] = &openItem{native: it.Type()}
			return a.nativeItem(&ev, it, out)
		}
		return a.start(ev.OutputIndex, it, out)
	case eventItemDone:
		if err := it.UnmarshalJSON(ev.Item); err != nil {
			return out, fmt.Errorf("%s: %w", ev.Type, err)
		}
		if a.native[it.Type()] {
			return a.nativeItem(&ev, it, out)
		}
		return a.end(ev.OutputIndex, it, out), nil
	case "response.completed", "response.incomplete":
		return out, a.over(&ev)
	case "response.failed":
		var failed []byte
		if ev.Response != nil {
			failed = ev.Response.Error
		}
		return out, &upstream.Refusal{Body: fmt.Appendf(nil, `{"error":%s}`, orNull(failed))}
	case "error":
		return out, &upstream.Refusal{Body: bytes.Clone(data)}
	}
	if item := a.open[ev.OutputIndex]; item != nil && item.native != "" {
		return a.nativeEvent(&ev, data, item, out)
	}
	return a.extend(&ev, out)
}

func orNull(raw []byte) []byte {
	if len(raw) == 0 {
		return []byte("null")
	}
	return raw
}

// start opens an item.
func (a *answer) start(index int, it berth.Item, out []model.Delta) ([]model.Delta, error) {
	item := &openItem{}
	a.open[index] = item
	switch it.Type() {
	case berth.ItemMessage:
		var m berth.Message
		if it.Decode(&m) == nil {
			item.phase = m.Phase
		}
	case berth.ItemFunctionCall:
		var c berth.FunctionCall
		if err := it.Decode(&c); err != nil {
			return out, fmt.Errorf("decode function call: %w", err)
		}
		if c.Name == "" {
			return out, errors.New("the upstream sent a function call without a name")
		}
		item.call = a.calls
		a.calls++
		item.emitted = c.Arguments != ""
		return append(out, model.Call{Index: item.call, ID: a.ids.For(c.CallID), Name: c.Name,
			Arguments: c.Arguments}), nil
	case berth.ItemCustomToolCall:
		if a.custom {
			return a.startCustom(item, it, out)
		}
	}
	return out, nil
}

// isDelta holds the events that extend an item.
var isDelta = map[string]bool{"response.output_text.delta": true, "response.refusal.delta": true,
	"response.reasoning_summary_text.delta": true,
	"response.reasoning_text.delta":         true, "response.function_call_arguments.delta": true,
	"response.custom_tool_call_input.delta": true}

// extend appends the deltas of an event within an open item.
func (a *answer) extend(ev *event, out []model.Delta) ([]model.Delta, error) {
	item := a.open[ev.OutputIndex]
	if item == nil && isDelta[ev.Type] {
		return out, fmt.Errorf("%s: there is no item at %d", ev.Type, ev.OutputIndex)
	}
	if item == nil {
		return out, nil
	}
	if ev.Type == "response.reasoning_summary_part.added" {
		if ev.SummaryIndex > 0 {
			out = append(out, model.Thought{Text: "\n\n", Summary: true})
		}
		return out, nil
	}
	if !isDelta[ev.Type] {
		return out, nil
	}
	var delta string
	if err := json.Unmarshal(ev.Delta, &delta); err != nil {
		return out, fmt.Errorf("%s: %w", ev.Type, err)
	}
	if delta == "" && len(ev.Logprobs) == 0 {
		return out, nil
	}
	emitted := len(out)
	switch ev.Type {
	case "response.output_text.delta":
		if len(ev.Logprobs) == 0 {
			ev.Logprobs = nil
		}
		out = append(out, model.Text{Text: delta, Logprobs: ev.Logprobs, Phase: item.phase})
	case "response.refusal.delta":
		out = append(out, model.Refusal{Text: delta})
	case "response.reasoning_summary_text.delta":
		out = append(out, model.Thought{Text: delta, Summary: true})
	case "response.reasoning_text.delta":
		out = append(out, model.Thought{Text: delta})
	case "response.function_call_arguments.delta":
		out = append(out, model.Call{Index: item.call, Arguments: delta})
	case "response.custom_tool_call_input.delta":
		if a.custom {
			out = append(out, model.Call{Index: item.call, Arguments: dialogue.Escape(delta)})
		}
	}
	item.emitted = item.emitted || len(out) > emitted
	return out, nil
}

// end closes an item. It emits parts that arrived without deltas.
func (a *answer) end(index int, it berth.Item, out []model.Delta) []model.Delta {
	item := a.open[index]
	delete(a.open, index)
	switch it.Type() {
	case berth.ItemFunctionCall:
		var c berth.FunctionCall
		if item != nil && !item.emitted && it.Decode(&c) == nil && c.Arguments != "" {
			out = append(out, model.Call{Index: item.call, Arguments: c.Arguments})
		}
		return out
	case berth.ItemCustomToolCall:
		if a.custom {
			return a.endCustom(item, it, out)
		}
	case berth.ItemMessage:
		if item != nil && !item.emitted {
			out = whole(it, item.phase, out)
		}
		if plain(it) {
			return out
		}
		return append(out, model.Item{Item: unnamed(it), Ends: true})
	case berth.ItemReasoning:
		return append(out, model.Item{Item: unnamed(it), Ends: item != nil && item.emitted})
	case "":
		return out
	}
	return append(out, model.Item{Item: it})
}

// whole appends the text of a message that arrived without deltas.
func whole(it berth.Item, phase string, out []model.Delta) []model.Delta {
	var m berth.Message
	if it.Decode(&m) != nil {
		return out
	}
	for _, c := range m.Content {
		if c.Refusal != "" {
			out = append(out, model.Refusal{Text: c.Refusal})
		} else if c.Text != "" {
			out = append(out, model.Text{Text: c.Text, Logprobs: c.Logprobs, Phase: phase})
		}
	}
	return out
}

// plain reports whether a message has only fields that its deltas carry.
func plain(it berth.Item) bool {
	var m struct {
		fields  map[string]json.RawMessage
		Content []map[string]json.RawMessage `json:"content"`
	}
	if it.Decode(&m) != nil || it.Decode(&m.fields) != nil {
		return true // not a message that could be stored unchanged
	}
	for k := range m.fields {
		if !slices.Contains([]string{"id", "type", "status", "role", "phase", "content"}, k) {
			return false
		}
	}
	for _, c := range m.Content {
		for k, v := range c {
			if k == "annotations" && string(v) != "[]" || !slices.Contains([]string{"type", "text", "refusal",
				"annotations", "logprobs"}, k) {
				return false
			}
		}
	}
	return true
}

// unnamed returns an item without its id. Berth assigns another.
func unnamed(it berth.Item) berth.Item {
	var all map[string]json.RawMessage
	if it.Decode(&all) != nil {
		return it
	}
	delete(all, "id")
	return berth.NewItem(all)
}

// over records the finish.
func (a *answer) over(ev *event) error {
	f := model.Finish{Reason: model.FinishStop, Model: a.model}
	if r := ev.Response; r != nil {
		if r.Usage != nil {
			f.Usage = *r.Usage
		}
		f.ServiceTier = r.ServiceTier
		if dialogue.IsObject(r.Moderation) {
			f.Moderation = r.Moderation
		}
		if d := r.IncompleteDetails; d != nil && d.Reason == "content_filter" {
			f.Reason = model.FinishContentFilter
		} else if d != nil && d.Reason != "" {
			f.Reason = model.FinishLength
		}
	}
	a.finish = &f
	return nil
}
