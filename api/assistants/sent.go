package assistants

import (
	"encoding/json"

	"github.com/berth-run/berth"
)

// A messageDelta is a piece of a message.
type messageDelta struct {
	ID     string `json:"id"`
	Object string `json:"object"` // "thread.message.delta"
	Delta  struct {
		Content []contentDelta `json:"content"`
	} `json:"delta"`
}

type contentDelta struct {
	Index   int        `json:"index"`
	Type    string     `json:"type"`
	Text    *textDelta `json:"text,omitempty"`
	Refusal string     `json:"refusal,omitempty"`
}

type textDelta struct {
	Value       string             `json:"value"`
	Annotations *[]json.RawMessage `json:"annotations,omitempty"` // in the first piece of a part
}

// A stepDelta is a piece of a step that calls tools.
type stepDelta struct {
	ID     string `json:"id"`
	Object string `json:"object"` // "thread.run.step.delta"
	Delta  struct {
		StepDetails struct {
			Type      string      `json:"type"` // "tool_calls"
			ToolCalls []callDelta `json:"tool_calls"`
		} `json:"step_details"`
	} `json:"delta"`
}

type callDelta struct {
	Index    int    `json:"index"`
	ID       string `json:"id,omitempty"`
	Type     string `json:"type"`
	Function any    `json:"function,omitempty"`
}

// start returns the events for the start of a step, with the step in its initial state.
func (s *sentStep) start(step Step, m *Message) []Event {
	s.step = step
	first := step
	first.Status, first.Usage, first.LastError = InProgress, nil, nil
	first.CancelledAt, first.CompletedAt, first.ExpiredAt, first.FailedAt = nil, nil, nil, nil
	if first.StepDetails.ToolCalls != nil {
		first.StepDetails.ToolCalls = &[]ToolCall{}
	}
	var events []Event
	if !s.silent {
		events = append(events, Event{"thread.run.step.created", first}, Event{"thread.run.step.in_progress", first})
	}
	if first.Type == "message_creation" {
		empty := *m
		empty.Status, empty.Content = berth.StatusInProgress, []Content{}
		empty.CompletedAt, empty.IncompleteAt, empty.IncompleteDetails = nil, nil, nil
		events = append(events, Event{"thread.message.created", empty}, Event{"thread.message.in_progress", empty})
	}
	return events
}

// emit returns the event for a piece of one part of a message.
func (s *sentStep) emit(index int, kind, text string) []Event {
	before, started := s.texts[index]
	s.texts[index] = before + text
	piece := contentDelta{Index: index, Type: kind, Refusal: text}
	if kind == "text" {
		piece.Refusal, piece.Text = "", &textDelta{Value: text}
		if !started {
			piece.Text.Annotations = &[]json.RawMessage{}
		}
	}
	d := messageDelta{ID: s.step.StepDetails.MessageCreation.MessageID, Object: "thread.message.delta"}
	d.Delta.Content = []contentDelta{piece}
	return []Event{{"thread.message.delta", d}}
}

// arguments returns the event for a piece of a call's arguments.
func (s *sentStep) arguments(place int, text string) []Event {
	if place >= len(s.calls) {
		return nil
	}
	s.calls[place] += text
	return s.delta(callDelta{Index: place, Type: "function", Function: map[string]string{"arguments": text}})
}

func (s *sentStep) delta(c callDelta) []Event {
	if s.silent {
		return nil
	}
	d := stepDelta{ID: s.step.ID, Object: "thread.run.step.delta"}
	d.Delta.StepDetails.Type = "tool_calls"
	d.Delta.StepDetails.ToolCalls = []callDelta{c}
	return []Event{{"thread.run.step.delta", d}}
}

// catchUpCalls returns the events for new calls, and for arguments of complete calls that
// were not sent yet.
func (s *sentStep) catchUpCalls(calls []ToolCall, p *part) []Event {
	var events []Event
	for i, c := range calls {
		if c.Function == nil {
			continue
		}
		if i == len(s.calls) {
			s.calls = append(s.calls, "")
			events = append(events, s.delta(callDelta{Index: i, ID: c.ID, Type: c.Type, Function: Function{Name: c.Function.Name}})...)
		}
		if more := rest(c.Function.Arguments, s.calls[i]); more != "" && p.calls[i].Status() == berth.StatusCompleted {
			events = append(events, s.arguments(i, more)...)
		}
	}
	return events
}

// catchUpMessage returns the events for the text of an ended message that was not sent yet.
func (s *sentStep) catchUpMessage() []Event {
	if s.message.Status == berth.StatusInProgress {
		return nil
	}
	var events []Event
	for i, c := range s.message.Content {
		if more := rest(textOf(s.message.Content, i), s.texts[i]); more != "" {
			events = append(events, s.emit(i, c.Type, more)...)
		}
	}
	return events
}

// end returns the events for the end of a step, after those of its message.
func (s *sentStep) end() []Event {
	s.ended = true
	var events []Event
	if s.message != nil {
		events = append(events, Event{"thread.message." + string(s.message.Status), *s.message})
	}
	if !s.silent {
		events = append(events, Event{"thread.run.step." + string(s.step.Status), s.step})
	}
	return events
}

// abandon returns the events for the end of a step whose turn is repeated, with the partial
// content of its item. Lists of steps do not contain such a step.
func (s *sentStep) abandon(it berth.Item, now int64) []Event {
	s.step.Status, s.step.FailedAt, s.step.Usage = Failed, &now, &Usage{}
	s.step.LastError = &LastError{Code: "server_error", Message: "The answer was interrupted and is being generated again."}
	if s.message != nil {
		m := *s.message
		m.Content = contentOf(it)
		m.Status, m.IncompleteAt, m.IncompleteDetails = berth.StatusIncomplete, &now, &Details{Reason: "run_failed"}
		s.message = &m
	}
	return s.end()
}
