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

// maxEvent bounds one event, in bytes; the last holds the whole response.
const maxEvent = 64 << 20

// An event is one of the stream. Only what is used is named, so that nothing else
// can be malformed.
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

// essential is what an event says, beside its item or delta.
type essential struct {
	Type        string `json:"type"`
	OutputIndex int    `json:"output_index"`
}

// An answer is what the model says in one turn, as it comes in.
type answer struct {
	log *slog.Logger

	begun  bool // an event of the dialect has come
	model  string
	finish *model.Finish
	open   map[int]*openItem // by output index
	calls  int
	ids    dialogue.NewIDs
}

// An openItem is an output item that has begun.
type openItem struct {
	phase string
	call  int  // of a function call
	told  bool // something of it was
}

func newAnswer(req *model.Request, log *slog.Logger) *answer {
	return &answer{log: log, open: map[int]*openItem{}, ids: dialogue.NewIDs{Items: req.Items}}
}

// read yields what the answer says, and its Finish or an error.
func (a *answer) read(in io.Reader) iter.Seq2[model.Delta, error] {
	return upstream.Read(in, sse.NewReader(in, maxEvent).Data(), a, a.log)
}

// Begun implements upstream.Answer.
func (a *answer) Begun() bool { return a.begun }

// Ended implements upstream.Answer.
func (a *answer) Ended() bool { return a.finish != nil }

// Done implements upstream.Answer: the last event says all.
func (a *answer) Done() bool { return a.finish != nil }

// Finish implements upstream.Answer.
func (a *answer) Finish(out []model.Delta) ([]model.Delta, error) {
	if a.finish == nil {
		return out, io.ErrUnexpectedEOF
	}
	return append(out, *a.finish), nil
}

// Take appends what an event says.
func (a *answer) Take(data []byte, out []model.Delta) ([]model.Delta, error) {
	if bytes.HasPrefix(data, []byte("[DONE]")) { // some servers' end mark, which comes after the last event
		return out, nil
	}
	var ev event
	if err := upstream.Decode(data, &ev, &essential{}, a.log); err != nil {
		return out, err
	}
	a.begun = a.begun || strings.HasPrefix(ev.Type, "response.")
	if ev.Response != nil && ev.Response.Model != "" {
		a.model = ev.Response.Model
	}
	var it berth.Item
	switch ev.Type {
	case "response.output_item.added":
		if err := it.UnmarshalJSON(ev.Item); err != nil {
			return out, fmt.Errorf("%s: %w", ev.Type, err)
		}
		return a.begin(ev.OutputIndex, it, out)
	case "response.output_item.done":
		if err := it.UnmarshalJSON(ev.Item); err != nil {
			return out, fmt.Errorf("%s: %w", ev.Type, err)
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
	return a.more(&ev, out)
}

func orNull(raw []byte) []byte {
	if len(raw) == 0 {
		return []byte("null")
	}
	return raw
}

// begin opens an item.
func (a *answer) begin(index int, it berth.Item, out []model.Delta) ([]model.Delta, error) {
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
			return out, fmt.Errorf("a function call does not fit the dialect: %w", err)
		}
		if c.Name == "" {
			return out, errors.New("the upstream called a function without naming it")
		}
		item.call = a.calls
		a.calls++
		item.told = c.Arguments != ""
		return append(out, model.Call{Index: item.call, ID: a.ids.For(c.CallID), Name: c.Name, Arguments: c.Arguments}), nil
	}
	return out, nil
}

// saying are the events that say more of an item.
var saying = map[string]bool{"response.output_text.delta": true, "response.refusal.delta": true, "response.reasoning_summary_text.delta": true,
	"response.reasoning_text.delta": true, "response.function_call_arguments.delta": true}

// more appends what is added to an open item.
func (a *answer) more(ev *event, out []model.Delta) ([]model.Delta, error) {
	item := a.open[ev.OutputIndex]
	if item == nil && saying[ev.Type] {
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
	if !saying[ev.Type] {
		return out, nil
	}
	var delta string
	if err := json.Unmarshal(ev.Delta, &delta); err != nil {
		return out, fmt.Errorf("%s: %w", ev.Type, err)
	}
	if delta == "" && len(ev.Logprobs) == 0 {
		return out, nil
	}
	told := len(out)
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
	}
	item.told = item.told || len(out) > told
	return out, nil
}

// end closes an item: what its pieces do not say, it says itself.
func (a *answer) end(index int, it berth.Item, out []model.Delta) []model.Delta {
	item := a.open[index]
	delete(a.open, index)
	switch it.Type() {
	case berth.ItemFunctionCall:
		var c berth.FunctionCall
		if item != nil && !item.told && it.Decode(&c) == nil && c.Arguments != "" {
			out = append(out, model.Call{Index: item.call, Arguments: c.Arguments})
		}
		return out
	case berth.ItemMessage:
		if item != nil && !item.told {
			out = whole(it, item.phase, out)
		}
		if plain(it) {
			return out
		}
		return append(out, model.Item{Item: unnamed(it), Ends: true})
	case berth.ItemReasoning:
		return append(out, model.Item{Item: unnamed(it), Ends: item != nil && item.told})
	case "":
		return out
	}
	return append(out, model.Item{Item: it})
}

// whole appends the words of a message that came without a delta.
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

// plain reports whether a message has only fields that its pieces have told.
func plain(it berth.Item) bool {
	var m struct {
		fields  map[string]json.RawMessage
		Content []map[string]json.RawMessage `json:"content"`
	}
	if it.Decode(&m) != nil || it.Decode(&m.fields) != nil {
		return true // and not to be kept as it is
	}
	for k := range m.fields {
		if !slices.Contains([]string{"id", "type", "status", "role", "phase", "content"}, k) {
			return false
		}
	}
	for _, c := range m.Content {
		for k, v := range c {
			if k == "annotations" && string(v) != "[]" || !slices.Contains([]string{"type", "text", "refusal", "annotations", "logprobs"}, k) {
				return false
			}
		}
	}
	return true
}

// unnamed is an item without its id: in this house it has another.
func unnamed(it berth.Item) berth.Item {
	var all map[string]json.RawMessage
	if it.Decode(&all) != nil {
		return it
	}
	delete(all, "id")
	return berth.NewItem(all)
}

// over ends the answer.
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
