package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/model"
)

// A speech is what the model says in one turn, told item by item. Each delta of
// the provider becomes the events of one Update, so that an item which ends and
// the one that follows it are stored together: after a crash the last item is
// either open or the turn's last.
type speech struct {
	run     *run
	message *openMessage
	thought *openThought
	calls   map[int]*openCall // by the provider's index; closed ones stay
	whole   []berth.Item      // came in one piece; told with what follows
	next    int               // the place of the next item
	drafts  drafts            // of what is open

	begun   bool   // something was said
	ignored bool   // a call was ignored because of max_tool_calls
	refused string // why the last call that was refused was
}

// tell stores the events of one delta.
func (s *speech) tell(ctx context.Context, delta model.Delta) error {
	s.begun = true
	if text, ok := delta.(model.Text); !ok || s.message != nil && s.message.phase != text.Phase {
		s.cite(ctx)
	}
	return s.run.writer.Update(ctx, func(body berth.Response) []berth.Event {
		s.next = len(body.Output)
		events := s.hear(delta)
		s.drafts.note(events)
		return events
	})
}

// hear returns the events of one delta.
func (s *speech) hear(delta model.Delta) []berth.Event {
	switch d := delta.(type) {
	case model.Text:
		return append(s.closeBefore(s.message != nil && s.message.phase == d.Phase), s.say("output_text", d)...)
	case model.Refusal:
		return append(s.closeBefore(s.message != nil), s.say("refusal", model.Text{Text: d.Text})...)
	case model.Thought:
		return append(s.closeBefore(s.thought != nil && s.thought.summary == d.Summary), s.think(d)...)
	case model.Call:
		return s.call(d)
	case model.Item:
		s.keep(d)
	}
	return nil
}

// finish closes what is open and, unless hosted calls are pending, ends the
// response in the same step.
func (s *speech) finish(ctx context.Context, f model.Finish) (over bool, err error) {
	r, held := s.run, false
	r.usage.Add(f.Usage)
	r.origin = f.Origin
	r.reported = reported{f.ServiceTier, f.Moderation}
	r.heard = f.Usage.InputTokens + f.Usage.OutputTokens - f.Usage.OutputTokenDetails.ReasoningTokens
	r.writer.SetUsage(r.usage, turnsOf(f)...)
	s.cite(ctx)
	err = r.writer.Update(ctx, func(body berth.Response) []berth.Event {
		s.next = len(body.Output)
		cut := f.Reason == model.FinishLength || f.Reason == model.FinishContentFilter
		events := s.closeWords(cut)
		if !cut {
			events = append(events, s.closeCalls(func(*openCall) bool { return true })...)
		}
		s.drafts.note(events)
		body = fold(body, events)
		switch {
		case cut:
			over = true
			lost := abandon(body, s.drafts)
			body = fold(body, lost)
			reason := map[model.FinishReason]string{model.FinishLength: "max_output_tokens", model.FinishContentFilter: "content_filter"}[f.Reason]
			return append(append(events, lost...), r.final(body, berth.StatusIncomplete, reason))
		case len(r.pending) > 0, s.ignored && !r.withheld(), s.refused != "":
			return events
		}
		if call := s.check(body); call != nil {
			return append(events, call...)
		}
		over = true
		if held = len(r.record.Request.ContextManagement) > 0 && !r.waitsForClient(body); held {
			return events
		}
		return append(events, r.final(body, berth.StatusCompleted, ""))
	})
	if r.refused++; s.refused == "" || len(r.pending) > 0 {
		r.refused = 0
	}
	if err == nil && r.refused == maxRefused {
		err = berth.Errorf(berth.CodeUpstream, "The model made calls that cannot be used, %d turns in a row. The last error was: %s", maxRefused, s.refused)
	}
	if held && err == nil {
		err = r.conclude(ctx)
	}
	return over, err
}

// abandon closes what is open as incomplete, so that the turn can be asked again.
func (s *speech) abandon(ctx context.Context) error {
	for _, c := range s.calls {
		if c.hosted && !c.closed {
			s.run.hostedCalls-- // it was never made
		}
	}
	return s.run.writer.Update(ctx, func(body berth.Response) []berth.Event {
		return abandon(body, s.unfinished())
	})
}

// unfinished returns the drafts of the items that the turn has left open.
func (s *speech) unfinished() drafts {
	if s == nil {
		return drafts{}
	}
	return s.drafts
}

// keep takes an item that came whole. It is told when something follows, because
// after a crash a closed item is taken for the last of its turn.
func (s *speech) keep(d model.Item) {
	switch {
	case d.Ends && d.Item.Type() == berth.ItemReasoning && s.thought != nil && s.thought.whole.IsZero():
		s.thought.whole = d.Item
	case d.Ends && d.Item.Type() == berth.ItemMessage && s.message != nil && s.message.whole.IsZero():
		s.message.whole = d.Item
	default:
		s.whole = append(s.whole, d.Item)
	}
}

// closeBefore closes what comes before more words, unless the words go on with
// what is open.
func (s *speech) closeBefore(goesOn bool) []berth.Event {
	ended := s.message != nil && !s.message.whole.IsZero() || s.thought != nil && !s.thought.whole.IsZero()
	if goesOn && !ended && len(s.whole) == 0 {
		return nil
	}
	return s.closeWords(false)
}

// closeWords closes the open message and reasoning. cut says that the model was stopped
// in the middle of them; the message is incomplete then.
func (s *speech) closeWords(cut bool) []berth.Event {
	status := berth.StatusCompleted
	if cut {
		status = berth.StatusIncomplete
	}
	events := append(s.closeThought(), s.closeMessage(status)...)
	items := s.whole
	s.whole = nil
	for _, it := range items {
		if it.ID() == "" {
			it = with(it, map[string]any{"id": berth.NewID(prefixOf(it.Type()))})
		}
		var index int
		events = append(events, s.place(&index, it), done(index, it))
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

// with returns an item of a provider's with fields set.
func with(it berth.Item, fields map[string]any) berth.Item {
	out, err := it.With(fields)
	if err != nil {
		panic(fmt.Sprintf("engine: an item that was read is not JSON: %v", err))
	}
	return out
}

// An openMessage is the message that the model is writing. It has one part at a
// time; a model that turns from text to refusal opens the next.
type openMessage struct {
	id        string
	index     int
	phase     string
	parts     []berth.Content // closed
	kind      string          // of the open part: output_text or refusal
	text      strings.Builder
	logprobs  []json.RawMessage
	citations []berth.ContainerFileCitation // of the open part
	whole     berth.Item                    // takes the message's place at its end, if the provider has one
}

func (s *speech) say(kind string, d model.Text) []berth.Event {
	var events []berth.Event
	if s.message == nil {
		events = s.closeWhole(nil)
		s.message = &openMessage{id: berth.NewID(berth.PrefixMessage), phase: d.Phase}
		events = append(events, s.place(&s.message.index, s.message.item(berth.StatusInProgress)))
	}
	m := s.message
	if m.kind != kind {
		events = append(events, m.closePart()...)
		m.kind = kind
		part := berth.Content{Type: kind}
		events = append(events, m.event(berth.Event{Type: berth.EventContentPartAdded, Part: &part}))
	}
	m.text.WriteString(d.Text)
	m.logprobs = append(m.logprobs, d.Logprobs...)
	if kind == "refusal" {
		return append(events, m.event(berth.Event{Type: berth.EventRefusalDelta, Delta: berth.StringDelta(d.Text)}))
	}
	return append(events, m.event(berth.Event{Type: berth.EventOutputTextDelta, Delta: berth.StringDelta(d.Text), Logprobs: list(d.Logprobs)}))
}

// place opens an item at the next place of the output, and tells index.
func (s *speech) place(index *int, item berth.Item) berth.Event {
	*index = s.next
	s.next++
	return added(*index, item)
}

func (s *speech) closeMessage(status berth.Status) []berth.Event {
	m := s.message
	if m == nil {
		return nil
	}
	s.message = nil
	events, item := m.closePart(), m.item(status)
	if !m.whole.IsZero() {
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
	text := m.text.String()
	part := berth.Content{Type: m.kind, Text: text, Logprobs: m.logprobs}
	end := berth.Event{Type: berth.EventOutputTextDone, Text: &text, Logprobs: list(m.logprobs)}
	if m.kind == "refusal" {
		part = berth.Content{Type: m.kind, Refusal: text}
		end = berth.Event{Type: berth.EventRefusalDone, Refusal: &text}
	}
	events := append(m.cited(&part), m.event(end), m.event(berth.Event{Type: berth.EventContentPartDone, Part: &part}))
	m.parts = append(m.parts, part)
	m.kind, m.logprobs = "", nil
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
	seal    func([]berth.Content) string // makes encrypted_content; nil if nobody asked for it
	whole   berth.Item                   // takes the item's place at its end, if the provider has one
}

func (s *speech) think(d model.Thought) []berth.Event {
	var events []berth.Event
	if s.thought == nil {
		events = s.closeWhole(nil)
		t := &openThought{id: berth.NewID(berth.PrefixReasoning), summary: d.Summary, seal: s.run.sealThought()}
		s.thought = t
		events = append(events, s.place(&t.index, t.item(false)), t.part(berth.EventContentPartAdded, berth.EventReasoningSummaryPartAdded, ""))
	}
	s.thought.text.WriteString(d.Text)
	return append(events, s.thought.event(berth.EventReasoningTextDelta, berth.EventReasoningSummaryDelta,
		berth.Event{Delta: berth.StringDelta(d.Text)}))
}

func (s *speech) closeThought() []berth.Event {
	t := s.thought
	if t == nil {
		return nil
	}
	s.thought = nil
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

// event returns ev as one about reasoning text or about its summary.
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

// list returns a pointer to l, which the wire shows as [] when it is empty.
func list(l []json.RawMessage) *[]json.RawMessage {
	if l == nil {
		l = []json.RawMessage{}
	}
	return &l
}
