package assistants

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/berth-run/berth"
)

// An Event is one event of a run's stream: a name such as "thread.run.created" and
// the object that it is about.
type Event struct {
	Name string
	Data any
}

// An EventStream turns the events of a run's last leg into those of the Assistants API. It
// finds what has started and ended by comparing what it has sent with what Record derives
// from the response so far, so a stream and a list never disagree. It passes pieces of text
// on.
type EventStream struct {
	record *Record
	before *berth.Response // of the leg before the last, or nil
	given  *answer         // to it
	leg    berth.Response  // the fold of the events so far
	now    func() time.Time
	steps  []*sentStep
}

// A sentStep is a step whose start the stream has sent.
type sentStep struct {
	index   int // of its first item in the output
	step    Step
	message *Message       // of a message_creation
	texts   map[int]string // what was sent of the message's parts
	calls   []string       // what was sent of the arguments of calls
	silent  bool           // the step itself is not sent: another was open, and clients take one at a time
	ended   bool
}

// newEventStream returns an EventStream for the last leg of a run. before and given are the leg
// before it and what its client answered, nil if it is the first.
func newEventStream(r *Record, before *berth.Response, given *answer, now func() time.Time) *EventStream {
	return &EventStream{record: r, before: before, given: given, now: now}
}

// Begin returns the events before the response's first: that the run was made, or
// that it has its outputs.
func (t *EventStream) Begin() []Event {
	var events []Event
	started := &t.record.Legs[0].At
	queued, running := t.record.Run.as(Queued, nil), t.record.Run.as(InProgress, started)
	if t.given == nil {
		events = append(events, Event{"thread.run.created", queued})
	} else {
		queued.StartedAt = started
		events = append(events, t.answered(&running)...)
	}
	return append(events, Event{"thread.run.queued", queued}, Event{"thread.run.in_progress", running})
}

// answered returns the events for the calls of the leg before, which have their outputs,
// and for the steps that were not sent because these calls were open.
func (t *EventStream) answered(run *Run) []Event {
	if t.before == nil {
		return nil
	}
	var events []Event
	all := parts(t.before)
	for i, p := range all {
		step := newStep(run, t.before, p, i == len(all)-1, t.given)
		switch {
		case p.asks():
			events = append(events, Event{"thread.run.step.completed", step})
		case events != nil:
			sent := &sentStep{}
			begun := sent.begin(step, messageOf(run, t.before, p))
			events = append(append(events, begun[:2]...), sent.end()...)
		}
	}
	return events
}

// Apply returns the events of the run for an event of its response. The rest follows the
// final one: see End.
func (t *EventStream) Apply(ev *berth.Event) ([]Event, error) {
	if err := t.leg.Apply(ev); err != nil {
		return nil, err
	}
	switch ev.Type {
	case berth.EventOutputItemAdded, berth.EventOutputItemDone:
		run := t.record.View(&t.leg, t.now())
		return t.compare(&run), nil
	case berth.EventOutputTextDelta, berth.EventRefusalDelta, berth.EventFunctionArgumentsDelta:
		var text string
		if err := json.Unmarshal(ev.Delta, &text); err != nil {
			return nil, err
		}
		return t.piece(ev, text), nil
	}
	return nil, nil
}

// End returns the events after the response's last: run is the run as it then is.
func (t *EventStream) End(run *Run) []Event {
	var events []Event
	if run.Status == Cancelled {
		events = append(events, Event{"thread.run.cancelling", run.as(Cancelling, run.StartedAt)})
	}
	events = append(events, t.compare(run)...)
	return append(events, Event{"thread.run." + string(run.Status), *run})
}

// compare returns the events that lead from what was sent to what is. A part ends
// when the next one begins or the response ends: until then it is unknown whether it is
// the last one, or given up.
func (t *EventStream) compare(run *Run) []Event {
	leg := &t.leg
	all := parts(leg)
	events := t.giveUp(all)
	for i, p := range all {
		last := i == len(all)-1
		step := newStep(run, leg, p, last, nil)
		sent := t.sent(step.ID)
		if sent == nil {
			sent = &sentStep{index: p.index, texts: map[int]string{}, silent: t.open()}
			t.steps = append(t.steps, sent)
			events = append(events, sent.begin(step, messageOf(run, leg, p))...)
		}
		if sent.ended {
			continue
		}
		sent.step = step
		if p.calls != nil {
			events = append(events, sent.catchUpCalls(*step.StepDetails.ToolCalls, p)...)
		} else {
			sent.message = messageOf(run, leg, p)
			events = append(events, sent.catchUpMessage()...)
		}
		if step.Status != InProgress && (!last || leg.Status.Final()) {
			events = append(events, sent.end()...)
		}
	}
	return events
}

// giveUp ends the steps that were broken off and are asked again.
func (t *EventStream) giveUp(all []*part) []Event {
	var events []Event
	for _, sent := range t.steps {
		there := slices.ContainsFunc(all, func(p *part) bool { return p.index == sent.index })
		followed := t.leg.Status.Final() || len(all) > 0 && all[len(all)-1].index > sent.index
		if !sent.ended && !there && followed {
			events = append(events, sent.giveUp(t.leg.Output[sent.index], t.now().Unix())...)
		}
	}
	return events
}

// sent returns a step that has been sent, nil if it has not.
func (t *EventStream) sent(id string) *sentStep {
	for _, s := range t.steps {
		if s.step.ID == id {
			return s
		}
	}
	return nil
}

// open reports whether a step that the stream has sent is open.
func (t *EventStream) open() bool {
	for _, s := range t.steps {
		if !s.ended && !s.silent {
			return true
		}
	}
	return false
}

// about returns the sent step that an output index belongs to, and the place in it.
func (t *EventStream) about(index int) (sent *sentStep, place int) {
	for _, p := range parts(&t.leg) {
		sent = t.sent(derivedID(prefixStep, t.leg.ID, p.index))
		if p.calls == nil && p.index == index {
			return sent, 0
		}
		for i, it := range p.calls {
			if it.ID() == t.leg.Output[index].ID() {
				return sent, i
			}
		}
	}
	return nil, 0
}

// piece returns the events for a piece of text.
func (t *EventStream) piece(ev *berth.Event, text string) []Event {
	sent, place := t.about(*ev.OutputIndex)
	switch {
	case sent == nil || text == "":
		return nil
	case ev.Type == berth.EventFunctionArgumentsDelta:
		return sent.arguments(place, text)
	case ev.Type == berth.EventRefusalDelta:
		return sent.emit(*ev.ContentIndex, "refusal", text)
	}
	return sent.emit(*ev.ContentIndex, "text", text)
}
