package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

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

// write queues the events of one delta: those that arrive while a write runs are stored
// together by the next one.
func (w *turnWriter) write(ctx context.Context, delta model.Delta) error {
	if !w.begun {
		w.begun, w.first = true, time.Now()
	}
	if text, ok := delta.(model.Text); !ok || w.message != nil && w.message.phase != text.Phase {
		w.cite(ctx)
	}
	return w.run.writer.Queue(ctx, func(body berth.Response) []berth.Event {
		w.next, w.output = len(body.Output), body.Output
		events := w.events(delta)
		w.drafts.add(events)
		return events
	})
}

// events returns the events of one delta.
func (w *turnWriter) events(delta model.Delta) []berth.Event {
	switch d := delta.(type) {
	case model.Text:
		return w.writeText(w.closeBefore(w.message != nil && w.message.phase == d.Phase), "output_text", d)
	case model.Refusal:
		return w.writeText(w.closeBefore(w.message != nil), "refusal", model.Text{Text: d.Text})
	case model.Thought:
		return w.writeThought(w.closeBefore(w.thought != nil && w.thought.summary == d.Summary), d)
	case model.Call:
		return w.writeCall(d)
	case model.Native:
		return w.writeNative(d)
	case model.Item:
		w.hold(d)
	}
	return nil
}

// finish closes the open items and, unless hosted calls are pending, ends the response in
// the same Update. It reports whether the response is over.
func (w *turnWriter) finish(ctx context.Context, f model.Finish) (over bool, err error) {
	r, concluding := w.run, false
	r.usage.Add(f.Usage)
	r.origin = f.Origin
	r.reported = reported{f.ServiceTier, f.Moderation}
	r.compactor.counted = f.Usage.InputTokens + f.Usage.OutputTokens - f.Usage.OutputTokenDetails.ReasoningTokens
	r.writer.SetUsage(r.usage, turnsOf(f)...)
	r.writer.AddTiming(w.timing(f, nil))
	w.cite(ctx)
	err = r.writer.Update(ctx, func(body berth.Response) []berth.Event {
		w.next = len(body.Output)
		cut := f.Reason == model.FinishLength || f.Reason == model.FinishContentFilter
		events := w.closeText(cut)
		if !cut {
			events = append(events, w.closeCalls(func(*openCall) bool { return true })...)
			events = append(events, w.closeNative()...)
		}
		w.drafts.add(events)
		body = fold(body, events)
		switch {
		case cut:
			over = true
			open := abandon(body, w.drafts, nil)
			body = fold(body, open)
			reason := map[model.FinishReason]string{model.FinishLength: "max_output_tokens", model.FinishContentFilter: "content_filter"}[f.Reason]
			return append(append(events, open...), r.final(body, berth.StatusIncomplete, reason))
		case len(r.pending) > 0, w.ignored && !r.withheld(), w.refusal != "":
			return events
		}
		if !r.waitsForClient(body) {
			if opened, call := r.guard.check(body.Output); call != nil {
				r.pending = append(r.pending, pendingCall{Call: call, index: len(body.Output)})
				return append(events, opened...)
			}
		}
		over = true
		if concluding = len(r.record.Request.ContextManagement) > 0 && !r.waitsForClient(body); concluding {
			return events
		}
		return append(events, r.final(body, berth.StatusCompleted, ""))
	})
	if r.refusedTurns++; w.refusal == "" || len(r.pending) > 0 {
		r.refusedTurns = 0
	}
	if err == nil && r.refusedTurns == maxRefusedTurns {
		err = berth.Errorf(berth.CodeUpstream, "The model made only invalid calls in %d consecutive turns. The last error was: %s", maxRefusedTurns, w.refusal)
	}
	if concluding && err == nil {
		err = r.conclude(ctx)
	}
	return over, err
}

// abandon closes the open items as incomplete, so that the turn can be requested again.
func (w *turnWriter) abandon(ctx context.Context) error {
	for _, c := range w.calls {
		if c.hosted && !c.closed {
			w.run.hostedCalls-- // it will not be made
		}
	}
	for _, n := range w.native {
		if w.run.engine.Tools.IsHosted(n.item) {
			w.run.hostedCalls--
		}
	}
	return w.run.writer.Update(ctx, func(body berth.Response) []berth.Event {
		return abandon(body, w.unfinished(), w.run.openCalls())
	})
}

// openCalls returns the places of the pending calls, whose items may be open.
func (r *run) openCalls() map[int]bool {
	open := map[int]bool{}
	for _, c := range r.pending {
		open[c.index] = true
	}
	return open
}

// unfinished returns the drafts of the items that are still open. w may be nil.
func (w *turnWriter) unfinished() drafts {
	if w == nil {
		return drafts{}
	}
	return w.drafts
}

// hold holds an item that the provider sent in one piece until the next events are stored.
// A recovery takes a closed last item for the last of its turn, so the item must not be
// stored alone.
func (w *turnWriter) hold(d model.Item) {
	switch {
	case d.Ends && d.Item.Type() == berth.ItemReasoning && w.thought != nil && w.thought.whole.IsZero():
		w.thought.whole = d.Item
	case d.Ends && d.Item.Type() == berth.ItemMessage && w.message != nil && w.message.whole.IsZero():
		w.message.whole = d.Item
	default:
		w.whole = append(w.whole, d.Item)
	}
}

// closeBefore closes the open message or reasoning before further text, unless that text
// continues it.
func (w *turnWriter) closeBefore(continues bool) []berth.Event {
	ended := w.message != nil && !w.message.whole.IsZero() || w.thought != nil && !w.thought.whole.IsZero()
	if continues && !ended && len(w.whole) == 0 {
		return nil
	}
	return w.closeText(false)
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

// with returns a provider's item with fields set.
func with(it berth.Item, fields map[string]any) berth.Item {
	out, err := it.With(fields)
	if err != nil {
		panic(fmt.Sprintf("engine: decoded item is not JSON: %v", err))
	}
	return out
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
		w.message = &openMessage{id: berth.NewID(berth.PrefixMessage), phase: d.Phase, marks: markReader{citables: w.citables}}
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
		events = append(events, w.place(&t.index, t.item(false)), t.part(berth.EventContentPartAdded, berth.EventReasoningSummaryPartAdded, ""))
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
