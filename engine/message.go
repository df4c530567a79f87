package engine

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"go.opentelemetry.io/otel/trace"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/model"
	"github.com/berth-run/berth/tool"
)

// A turnWriter stores the output of one turn of the model as items and events. The events
// of one delta are stored by one write, so that the end of an item is stored together with the
// start of the next. After a crash, a closed last item is therefore the last of its turn.
type turnWriter struct {
	run      *run
	message  *openMessage
	thought  *openThought
	calls    map[int]*openCall       // by the provider's index; includes closed ones
	native   map[int]*nativeItem     // open, by the provider's index
	whole    []berth.Item            // received in one piece; stored with the next events
	next     int                     // the place of the next item
	output   []berth.Item            // of the response, before the delta
	drafts   drafts                  // of the open items
	citables map[string]tool.Citable // that the model may cite, by markKey

	begun    bool         // the model has sent a delta
	ignored  bool         // a call was ignored because of max_tool_calls
	refusal  string       // of the last refused call, or empty
	finished model.Finish // once the stream has ended without error

	span  trace.Span // of the call of the model
	began time.Time  // when the model was called
	first time.Time  // when its first delta came; zero before
}

// closeText closes the open message and reasoning. The message is incomplete if the model
// was cut off in it.
func (w *turnWriter) closeText(cut bool) []berth.Event {
	status := berth.StatusCompleted
	if cut {
		status = berth.StatusIncomplete
	}
	events := append(w.closeThought(), w.closeMessage(status)...)
	items := w.whole
	w.whole = nil
	for _, it := range items {
		if it.ID() == "" {
			it = with(it, map[string]any{"id": berth.NewID(prefixOf(it.Type()))})
		}
		var index int
		events = append(events, w.place(&index, it), done(index, it))
	}
	return events
}

func prefixOf(t berth.ItemType) string {
	switch t {
	case berth.ItemMessage:
		return berth.PrefixMessage
	case berth.ItemReasoning:
		return berth.PrefixReasoning
	}
	return berth.PrefixItem
}

// An openMessage is the message that the model is writing. One part is open at a time; a
// refusal after text opens the next.
type openMessage struct {
	id        string
	index     int
	phase     string
	parts     []berth.Content // closed
	kind      string          // of the open part: output_text or refusal
	text      strings.Builder
	logprobs  []json.RawMessage
	marks     markReader                    // of the citables that the model may cite
	citations []berth.ContainerFileCitation // of the open part, which are added at its end

	annotations []json.RawMessage // of the open part
	cites       bool              // the model has cited a citable
	whole       berth.Item        // the provider's own item, which replaces the message at its end; zero if none
}

// writeText adds text to the open message, or opens one, and appends the events of that.
// kind is output_text or refusal.
func (w *turnWriter) writeText(events []berth.Event, kind string, d model.Text) []berth.Event {
	if w.message == nil {
		events = append(events, w.closeWhole(nil)...)
		w.message = &openMessage{id: berth.NewID(berth.PrefixMessage), phase: d.Phase,
			marks: markReader{citables: w.citables}}
		events = append(events, w.place(&w.message.index, w.message.item(berth.StatusInProgress)))
	}
	m := w.message
	if m.kind != kind {
		events = append(events, m.closePart()...)
		m.kind = kind
		part := berth.Content{Type: kind}
		events = append(events, m.event(berth.Event{Type: berth.EventContentPartAdded, Part: &part}))
	}
	if kind == "refusal" {
		m.text.WriteString(d.Text)
		return append(events, m.event(berth.Event{Type: berth.EventRefusalDelta, Delta: berth.StringDelta(d.Text)}))
	}
	return append(events, m.writeMarked(d.Text, d.Logprobs)...)
}

// place opens an item at the next place of the output and sets index to it.
func (w *turnWriter) place(index *int, item berth.Item) berth.Event {
	*index = w.next
	w.next++
	return added(*index, item)
}

func (w *turnWriter) closeMessage(status berth.Status) []berth.Event {
	m := w.message
	if m == nil {
		return nil
	}
	w.message = nil
	events, item := m.closePart(), m.item(status)
	if !m.whole.IsZero() && !m.cites {
		item = with(m.whole, map[string]any{"id": m.id, "status": status})
	}
	return append(events, done(m.index, item))
}

func (m *openMessage) item(status berth.Status) berth.Item {
	return berth.NewItem(berth.Message{ID: m.id, Type: berth.ItemMessage, Status: status,
		Content: append([]berth.Content{}, m.parts...), Phase: m.phase, Role: "assistant"})
}

func (m *openMessage) closePart() []berth.Event {
	if m.kind == "" {
		return nil
	}
	var events []berth.Event
	if rest := m.marks.rest(); rest != "" {
		events = append(events, m.writeDelta(rest, nil))
	}
	text := m.text.String()
	part := berth.Content{Type: m.kind, Text: text, Logprobs: m.logprobs}
	end := berth.Event{Type: berth.EventOutputTextDone, Text: &text, Logprobs: list(m.logprobs)}
	if m.kind == "refusal" {
		part = berth.Content{Type: m.kind, Refusal: text}
		end = berth.Event{Type: berth.EventRefusalDone, Refusal: &text}
	}
	events = append(events, m.cite()...)
	part.Annotations = m.annotations
	events = append(events, m.event(end), m.event(berth.Event{Type: berth.EventContentPartDone, Part: &part}))
	m.parts = append(m.parts, part)
	m.kind, m.logprobs, m.annotations = "", nil, nil
	m.text.Reset()
	return events
}

func (m *openMessage) event(ev berth.Event) berth.Event {
	content := len(m.parts)
	ev.ItemID, ev.OutputIndex, ev.ContentIndex = m.id, &m.index, &content
	return ev
}

// An openThought is the reasoning that the model is writing: a summary of it, or
// the reasoning itself.
type openThought struct {
	id      string
	index   int
	summary bool
	text    strings.Builder
	seal    func([]berth.Content) string // makes encrypted_content; nil unless the request includes it
	whole   berth.Item                   // the provider's own item, which replaces this one at its end; zero if none
}

// writeThought adds text to the open reasoning, or opens one, and appends the events of
// that.
func (w *turnWriter) writeThought(events []berth.Event, d model.Thought) []berth.Event {
	if w.thought == nil {
		events = append(events, w.closeWhole(nil)...)
		t := &openThought{id: berth.NewID(berth.PrefixReasoning), summary: d.Summary, seal: w.run.sealThought()}
		w.thought = t
		events = append(events, w.place(&t.index, t.item(false)), t.part(berth.EventContentPartAdded,
			berth.EventReasoningSummaryPartAdded, ""))
	}
	w.thought.text.WriteString(d.Text)
	return append(events, w.thought.event(berth.EventReasoningTextDelta, berth.EventReasoningSummaryDelta,
		berth.Event{Delta: berth.StringDelta(d.Text)}))
}

func (w *turnWriter) closeThought() []berth.Event {
	t := w.thought
	if t == nil {
		return nil
	}
	w.thought = nil
	text, item := t.text.String(), t.item(true)
	if !t.whole.IsZero() {
		item = with(t.whole, map[string]any{"id": t.id})
	}
	return []berth.Event{
		t.event(berth.EventReasoningTextDone, berth.EventReasoningSummaryDone, berth.Event{Text: &text}),
		t.part(berth.EventContentPartDone, berth.EventReasoningSummaryPartDone, text),
		done(t.index, item),
	}
}

func (t *openThought) item(full bool) berth.Item {
	body := berth.Reasoning{ID: t.id, Type: berth.ItemReasoning, Summary: []berth.Content{}}
	switch {
	case full && t.summary:
		body.Summary = []berth.Content{{Type: "summary_text", Text: t.text.String()}}
	case full:
		body.Content = []berth.Content{{Type: "reasoning_text", Text: t.text.String()}}
	}
	if t.seal != nil {
		body.EncryptedContent = t.seal(body.Content)
	}
	return berth.NewItem(body)
}

// event returns ev as an event about reasoning text, or about a summary.
func (t *openThought) event(text, summary berth.EventType, ev berth.Event) berth.Event {
	zero := 0
	ev.ItemID, ev.OutputIndex = t.id, &t.index
	if t.summary {
		ev.Type, ev.SummaryIndex = summary, &zero
	} else {
		ev.Type, ev.ContentIndex = text, &zero
	}
	return ev
}

func (t *openThought) part(text, summary berth.EventType, content string) berth.Event {
	kind := "reasoning_text"
	if t.summary {
		kind = "summary_text"
	}
	return t.event(text, summary, berth.Event{Part: &berth.Content{Type: kind, Text: content}})
}

// cite adds the citations of container files to the open part and returns their events.
func (m *openMessage) cite() []berth.Event {
	var events []berth.Event
	for _, c := range m.citations {
		raw, _ := json.Marshal(c) // strings and numbers always marshal
		events = append(events, m.annotate(raw))
	}
	m.citations = nil
	return events
}

// writeMarked adds text of the model to the open part of output_text.
func (m *openMessage) writeMarked(text string, logprobs []json.RawMessage) []berth.Event {
	var events []berth.Event
	for _, piece := range m.marks.write(text) {
		if piece.text != "" {
			events = append(events, m.writeDelta(piece.text, logprobs))
			logprobs = nil
		}
		if piece.citable != nil {
			m.cites = true
			start := utf8.RuneCountInString(m.text.String())
			if piece.citable.Text != "" {
				events = append(events, m.writeDelta(piece.citable.Text, nil))
			}
			events = append(events,
				m.annotate(piece.citable.Annotation(start, start+utf8.RuneCountInString(piece.citable.Text))))
		}
	}
	return events
}

// writeDelta adds text to the open part of output_text.
func (m *openMessage) writeDelta(text string, logprobs []json.RawMessage) berth.Event {
	m.text.WriteString(text)
	m.logprobs = append(m.logprobs, logprobs...)
	return m.event(berth.Event{Type: berth.EventOutputTextDelta, Delta: berth.StringDelta(text),
		Logprobs: list(logprobs)})
}

// annotate adds an annotation to the open part.
func (m *openMessage) annotate(annotation json.RawMessage) berth.Event {
	index := len(m.annotations)
	m.annotations = append(m.annotations, annotation)
	return m.event(berth.Event{Type: berth.EventAnnotationAdded, AnnotationIndex: &index, Annotation: annotation})
}

// closeWhole closes the calls with complete arguments, except next. The hosted service
// does the same before it continues with text or with another call. Interleaved calls stay
// open together.
func (w *turnWriter) closeWhole(next *openCall) []berth.Event {
	return w.closeCalls(func(c *openCall) bool { return c != next && json.Valid([]byte(c.text.String())) })
}

// closeCalls closes the calls for which ready returns true, in the model's order.
func (w *turnWriter) closeCalls(ready func(*openCall) bool) []berth.Event {
	var events []berth.Event
	for _, i := range slices.Sorted(maps.Keys(w.calls)) {
		if c := w.calls[i]; !c.closed && !c.ignored && ready(c) {
			events = append(events, w.closeCall(c)...)
		}
	}
	return events
}

func (w *turnWriter) closeCall(c *openCall) []berth.Event {
	c.closed = true
	events, item, refusal := c.Close(c.text.String())
	if refusal != "" {
		w.refuse(c, refusal)
	}
	var out []berth.Event
	if !c.shown && !c.Item().IsZero() {
		c.shown = true
		out = append(w.closeText(false), w.place(&c.index, c.Item()))
	}
	if !c.shown {
		return nil
	}
	if held, ok := c.Call.(*heldCall); ok && held.waits {
		c.hosted = false
	}
	out = append(out, at(c.index, events)...)
	if c.hosted && refusal == "" {
		w.run.pending = append(w.run.pending, pendingCall{Call: c.Call, index: c.index})
		if w.run.engine.Tools.HoldsOutput(item) {
			return out
		}
	} else if refusal == "" {
		w.run.engine.Observer.Called(item.Type(), OutcomeClient, 0)
	}
	return append(out, done(c.index, item))
}

// refuse records a call that can neither run nor be passed to the client, for the next
// turn.
func (w *turnWriter) refuse(c *openCall, reason string) {
	w.run.log().Warn("refused call", "function", c.name, "reason", reason)
	w.refusal = reason
	id := berth.NewID(berth.PrefixCall) // a new one, because the shown part of the call has no output
	w.run.refusals = append(w.run.refusals, refusal{w.next, [2]berth.Item{
		berth.NewItem(berth.FunctionCall{Type: berth.ItemFunctionCall, Status: berth.StatusCompleted, CallID: id,
			Name: c.name, Arguments: c.text.String()}),
		berth.NewItem(berth.FunctionCallOutput{Type: berth.ItemFunctionCallOutput, Status: berth.StatusCompleted,
			CallID: id, Output: berth.StringDelta(reason)}),
	}})
}

// An openCall is a call that the model is writing.
type openCall struct {
	tool.Call
	id      string // call_id
	name    string // of the function that the model calls
	hosted  bool   // the server runs it
	ignored bool
	closed  bool
	shown   bool            // its item was opened
	index   int             // of its item in the output, once shown
	text    strings.Builder // the arguments so far
}

// unfinished returns the drafts of the items that are still open. w may be nil.
func (w *turnWriter) unfinished() drafts {
	if w == nil {
		return drafts{}
	}
	return w.drafts
}
