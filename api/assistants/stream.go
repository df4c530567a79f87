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

// A Teller tells the events of a run's last leg as those of the Assistants API. What
// has begun and ended it finds by comparing what it has told with what Record derives
// from the response so far, so a stream and a list never disagree; pieces of text it
// passes on.
type Teller struct {
	record *Record
	before *berth.Response // of the leg before the last, or nil
	given  *answer         // to it
	leg    berth.Response  // the fold of the events so far
	now    func() time.Time
	steps  []*toldStep
}

// A toldStep is a step that the stream has told to begin.
type toldStep struct {
	index   int // of its first item in the output
	step    Step
	message *Message       // of a message_creation
	texts   map[int]string // what was told of the message's parts
	calls   []string       // what was told of the arguments of calls
	silent  bool           // the step itself is not told: another was open, and clients take one at a time
	ended   bool
}

// newTeller returns a Teller for the last leg of a run. before and given are the leg
// before it and what its client answered, nil if it is the first.
func newTeller(r *Record, before *berth.Response, given *answer, now func() time.Time) *Teller {
	return &Teller{record: r, before: before, given: given, now: now}
}

// Begin returns the events before the response's first: that the run was made, or
// that it has its outputs.
func (t *Teller) Begin() []Event {
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

// answered tells that the calls of the leg before have their outputs, and of the
// steps that kept silent because these were open.
func (t *Teller) answered(run *Run) []Event {
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
			told := &toldStep{}
			begun := told.begin(step, messageOf(run, t.before, p))
			events = append(append(events, begun[:2]...), told.end()...)
		}
	}
	return events
}

// Tell returns what an event of the response means to the run. After the final one
// End tells the rest.
func (t *Teller) Tell(ev *berth.Event) ([]Event, error) {
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
func (t *Teller) End(run *Run) []Event {
	var events []Event
	if run.Status == Cancelled {
		events = append(events, Event{"thread.run.cancelling", run.as(Cancelling, run.StartedAt)})
	}
	events = append(events, t.compare(run)...)
	return append(events, Event{"thread.run." + string(run.Status), *run})
}

// compare returns the events that lead from what was told to what is. A part ends
// when the next one begins or the response ends: until then nobody knows whether it is
// the last one, or given up.
func (t *Teller) compare(run *Run) []Event {
	leg := &t.leg
	all := parts(leg)
	events := t.giveUp(all)
	for i, p := range all {
		last := i == len(all)-1
		step := newStep(run, leg, p, last, nil)
		told := t.told(step.ID)
		if told == nil {
			told = &toldStep{index: p.index, texts: map[int]string{}, silent: t.open()}
			t.steps = append(t.steps, told)
			events = append(events, told.begin(step, messageOf(run, leg, p))...)
		}
		if told.ended {
			continue
		}
		told.step = step
		if p.calls != nil {
			events = append(events, told.catchUpCalls(*step.StepDetails.ToolCalls, p)...)
		} else {
			told.message = messageOf(run, leg, p)
			events = append(events, told.catchUpMessage()...)
		}
		if step.Status != InProgress && (!last || leg.Status.Final()) {
			events = append(events, told.end()...)
		}
	}
	return events
}

// giveUp ends the steps that were broken off and are asked again.
func (t *Teller) giveUp(all []*part) []Event {
	var events []Event
	for _, told := range t.steps {
		there := slices.ContainsFunc(all, func(p *part) bool { return p.index == told.index })
		followed := t.leg.Status.Final() || len(all) > 0 && all[len(all)-1].index > told.index
		if !told.ended && !there && followed {
			events = append(events, told.giveUp(t.leg.Output[told.index], t.now().Unix())...)
		}
	}
	return events
}

func (t *Teller) told(id string) *toldStep {
	for _, s := range t.steps {
		if s.step.ID == id {
			return s
		}
	}
	return nil
}

// open reports whether a step is open that the stream has told of.
func (t *Teller) open() bool {
	for _, s := range t.steps {
		if !s.ended && !s.silent {
			return true
		}
	}
	return false
}

// about returns the told step that an output index belongs to, and the place in it.
func (t *Teller) about(index int) (told *toldStep, place int) {
	for _, p := range parts(&t.leg) {
		told = t.told(derivedID(prefixStep, t.leg.ID, p.index))
		if p.calls == nil && p.index == index {
			return told, 0
		}
		for i, it := range p.calls {
			if it.ID() == t.leg.Output[index].ID() {
				return told, i
			}
		}
	}
	return nil, 0
}

// piece tells a piece of text.
func (t *Teller) piece(ev *berth.Event, text string) []Event {
	told, place := t.about(*ev.OutputIndex)
	switch {
	case told == nil || text == "":
		return nil
	case ev.Type == berth.EventFunctionArgumentsDelta:
		return told.arguments(place, text)
	case ev.Type == berth.EventRefusalDelta:
		return told.say(*ev.ContentIndex, "refusal", text)
	}
	return told.say(*ev.ContentIndex, "text", text)
}
