package threads

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/berth-run/berth"
)

// An Event is one event of a run's stream: a name such as "thread.run.created" and an object.
type Event struct {
	Name string
	Data any
}

// An EventStream converts the events of a run's last leg to those of the Assistants API. To
// find starts and ends, it compares the events sent so far with the steps that Record derives
// from the response, so streams and lists always agree. It forwards text deltas.
type EventStream struct {
	record *Record
	save   func(leg *berth.Response) error // saves outputs; nil if there are none
	bare   bool                            // search results have no content
	before *berth.Response                 // the response of the leg before the last, or nil
	given  *answer                         // the client's answer to it
	leg    berth.Response                  // the fold of the events so far
	now    func() time.Time
	steps  []*sentStep
}

// A sentStep is a step whose start the stream has sent.
type sentStep struct {
	index   int // of its first item in the output
	step    Step
	message *Message       // of a message_creation
	texts   map[int]string // the text sent of each part of the message
	cites   map[int]int    // the number of annotations sent of each part
	images  int            // the number of images before the texts of the message
	calls   []string       // the arguments or code sent of each call
	outputs bool           // the outputs of the call were sent
	silent  bool           // the step itself is not sent, because another was open and clients expect one at a time
	ended   bool
}

// newEventStream returns an EventStream for the last leg of a run. before is the leg before
// it and given the client's answer to that; both are nil for the first leg.
func newEventStream(r *Record, before *berth.Response, given *answer, now func() time.Time) *EventStream {
	return &EventStream{record: r, before: before, given: given, now: now}
}

// Start returns the events before those of the response: the creation of the run, or the
// completion of the steps that got outputs.
func (t *EventStream) Start() []Event {
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

// answered returns the events for the calls of the previous leg, which now have outputs, and
// for the steps that were not sent because these calls were open.
func (t *EventStream) answered(run *Run) []Event {
	if t.before == nil {
		return nil
	}
	var events []Event
	all := parts(t.before)
	for i, p := range all {
		step := t.step(run, t.before, p, i == len(all)-1, t.given)
		switch {
		case p.needsClient():
			events = append(events, Event{"thread.run.step.completed", step})
		case events != nil:
			sent := &sentStep{}
			started := sent.start(step, t.record.messageOf(run, t.before, p))
			events = append(append(events, started[:2]...), sent.end()...)
		}
	}
	return events
}

// Apply returns the events of the run for an event of its response. End returns those that
// follow the final event.
func (t *EventStream) Apply(ev *berth.Event) ([]Event, error) {
	if err := t.leg.Apply(ev); err != nil {
		return nil, err
	}
	switch ev.Type {
	case berth.EventOutputItemAdded, berth.EventOutputItemDone:
		if t.save != nil && ev.Type == berth.EventOutputItemDone {
			if err := t.save(&t.leg); err != nil {
				return nil, err
			}
		}
		run := t.record.View(&t.leg, t.now())
		return t.compare(&run), nil
	case berth.EventAnnotationAdded:
		var c citation
		if err := json.Unmarshal(ev.Annotation, &c); err != nil {
			return nil, fmt.Errorf("decode annotation: %w", err)
		}
		if sent, _ := t.about(*ev.OutputIndex); sent != nil && c.Type == fileCitation {
			return sent.cite(*ev.ContentIndex+sent.images, sent.index, c), nil
		}
	case berth.EventOutputTextDelta, berth.EventRefusalDelta, berth.EventFunctionArgumentsDelta, berth.EventCodeDelta:
		var text string
		if err := json.Unmarshal(ev.Delta, &text); err != nil {
			return nil, fmt.Errorf("decode delta: %w", err)
		}
		return t.piece(ev, text), nil
	}
	return nil, nil
}

// End returns the events after the last event of the response. run is the state of the run
// at that time.
func (t *EventStream) End(run *Run) []Event {
	var events []Event
	if run.Status == Cancelled {
		events = append(events, Event{"thread.run.cancelling", run.as(Cancelling, run.StartedAt)})
	}
	events = append(events, t.compare(run)...)
	return append(events, Event{"thread.run." + string(run.Status), *run})
}

// compare returns the events for all changes that were not sent yet. It ends a part only
// when the next one starts or the response ends. Before that, it is unknown whether the part
// is the last one or will be abandoned.
func (t *EventStream) compare(run *Run) []Event {
	leg := &t.leg
	all := parts(leg)
	events := t.abandon(all)
	for i, p := range all {
		last := i == len(all)-1
		step := t.step(run, leg, p, last, nil)
		sent := t.sent(step.ID)
		if sent == nil {
			sent = &sentStep{index: p.index, texts: map[int]string{}, cites: map[int]int{}, silent: t.open()}
			t.steps = append(t.steps, sent)
			events = append(events, sent.start(step, t.record.messageOf(run, leg, p))...)
		}
		if sent.ended {
			continue
		}
		sent.step = step
		if p.calls != nil {
			events = append(events, sent.catchUpCalls(*step.StepDetails.ToolCalls, p)...)
		} else {
			sent.message = t.record.messageOf(run, leg, p)
			events = append(events, sent.catchUpMessage()...)
		}
		if step.Status != InProgress && (!last || leg.Status.Final()) {
			events = append(events, sent.end()...)
		}
	}
	return events
}

// abandon ends the sent steps whose turns are repeated.
func (t *EventStream) abandon(all []*part) []Event {
	var events []Event
	for _, sent := range t.steps {
		there := slices.ContainsFunc(all, func(p *part) bool { return p.index == sent.index })
		followed := t.leg.Status.Final() || len(all) > 0 && all[len(all)-1].index > sent.index
		if !sent.ended && !there && followed {
			content := t.record.contentOf(t.leg.ID, &part{index: sent.index}, t.leg.Output[sent.index])
			events = append(events, sent.abandon(content, t.now().Unix())...)
		}
	}
	return events
}

// step returns the step of a part as the stream shows it.
func (t *EventStream) step(run *Run, leg *berth.Response, p *part, last bool, given *answer) Step {
	s := t.record.newStep(run, leg, p, last, given)
	if t.bare {
		return s.withoutContent()
	}
	return s
}

// sent returns the sent step with an id, or nil.
func (t *EventStream) sent(id string) *sentStep {
	for _, s := range t.steps {
		if s.step.ID == id {
			return s
		}
	}
	return nil
}

// open reports whether the stream has sent the start of a step, but not its end.
func (t *EventStream) open() bool {
	for _, s := range t.steps {
		if !s.ended && !s.silent {
			return true
		}
	}
	return false
}

// about returns the sent step of an output index and the index of the call within it.
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

// piece returns the events for a text delta.
func (t *EventStream) piece(ev *berth.Event, text string) []Event {
	sent, place := t.about(*ev.OutputIndex)
	switch {
	case sent == nil || text == "":
		return nil
	case ev.Type == berth.EventFunctionArgumentsDelta:
		return sent.arguments(place, text)
	case ev.Type == berth.EventCodeDelta:
		return sent.code(place, text)
	case ev.Type == berth.EventRefusalDelta:
		return sent.emit(*ev.ContentIndex+sent.images, "refusal", text)
	}
	return sent.emit(*ev.ContentIndex+sent.images, "text", text)
}
