package threads

import (
	"slices"
	"unicode/utf8"

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
	Index     int        `json:"index"`
	Type      string     `json:"type"`
	Text      *textDelta `json:"text,omitempty"`
	Refusal   string     `json:"refusal,omitempty"`
	ImageFile *ImageFile `json:"image_file,omitempty"`
}

type textDelta struct {
	Value       string        `json:"value"`
	Annotations *[]Annotation `json:"annotations,omitempty"` // also in the first piece of a part, where it may be empty
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

	CodeInterpreter any         `json:"code_interpreter,omitempty"`
	FileSearch      *FileSearch `json:"file_search,omitempty"`
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
		for i, c := range m.Content {
			if c.ImageFile != nil {
				s.images++
				events = append(events, s.piece(contentDelta{Index: i, Type: c.Type, ImageFile: c.ImageFile}))
			}
		}
	}
	return events
}

// piece returns the event for a piece of a message.
func (s *sentStep) piece(piece contentDelta) Event {
	d := messageDelta{ID: s.step.StepDetails.MessageCreation.MessageID, Object: "thread.message.delta"}
	d.Delta.Content = []contentDelta{piece}
	return Event{"thread.message.delta", d}
}

// emit returns the event for a piece of one part of a message, with annotations that are
// new with it.
func (s *sentStep) emit(index int, kind, text string, cites ...Annotation) []Event {
	before, started := s.texts[index]
	s.texts[index] = before + text
	piece := contentDelta{Index: index, Type: kind, Refusal: text}
	if kind == "text" {
		piece.Refusal, piece.Text = "", &textDelta{Value: text}
		if !started || len(cites) > 0 {
			numbered := make([]Annotation, len(cites))
			for i, a := range cites {
				n := s.cites[index] + i
				a.Index = &n
				numbered[i] = a
			}
			piece.Text.Annotations = &numbered
			s.cites[index] += len(cites)
		}
	}
	return []Event{s.piece(piece)}
}

// cite returns the event for the mark of a citation at the end of the text so far. item is
// the index of the message in its response.
func (s *sentStep) cite(index, item int, c citation) []Event {
	a := cite(c, item, s.cites[index], utf8.RuneCountInString(s.texts[index]))
	return s.emit(index, "text", a.Text, a)
}

// arguments returns the event for a piece of a call's arguments.
func (s *sentStep) arguments(place int, text string) []Event {
	if place >= len(s.calls) {
		return nil
	}
	s.calls[place] += text
	return s.delta(callDelta{Index: place, Type: "function", Function: map[string]string{"arguments": text}})
}

// code returns the event for a piece of the code of a call.
func (s *sentStep) code(place int, text string) []Event {
	if place >= len(s.calls) {
		return nil
	}
	s.calls[place] += text
	return s.delta(callDelta{Index: place, Type: berth.ToolCode, CodeInterpreter: map[string]string{"input": text}})
}

// hosted returns the events for the new part of a call that this server runs.
func (s *sentStep) hosted(i int, c ToolCall, p *part) []Event {
	var events []Event
	if i == len(s.calls) {
		s.calls = append(s.calls, "")
		first := callDelta{Index: i, ID: c.ID, Type: c.Type}
		if c.FileSearch != nil {
			first.FileSearch = &FileSearch{}
		} else {
			first.CodeInterpreter = CodeInterpreter{Outputs: []CodeOutput{}}
		}
		events = s.delta(first)
	}
	if c.CodeInterpreter == nil || p.calls[i].Status() != berth.StatusCompleted {
		return events
	}
	if more := rest(c.CodeInterpreter.Input, s.calls[i]); more != "" {
		events = append(events, s.code(i, more)...)
	}
	if outputs := c.CodeInterpreter.Outputs; len(outputs) > 0 && !s.outputs {
		s.outputs = true
		numbered := slices.Clone(outputs)
		for n := range numbered {
			numbered[n].Index = &n
		}
		events = append(events,
			s.delta(callDelta{Index: i, Type: c.Type, CodeInterpreter: map[string]any{"outputs": numbered}})...)
	}
	return events
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
			events = append(events, s.hosted(i, c, p)...)
			continue
		}
		if i == len(s.calls) {
			s.calls = append(s.calls, "")
			events = append(events, s.delta(callDelta{Index: i, ID: c.ID, Type: c.Type,
				Function: Function{Name: c.Function.Name}})...)
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
		if c.Text == nil && c.Refusal == nil {
			continue
		}
		var cites []Annotation
		if c.Text != nil {
			cites = c.Text.Annotations[min(s.cites[i], len(c.Text.Annotations)):]
		}
		if more := rest(textOf(s.message.Content, i), s.texts[i]); more != "" || len(cites) > 0 {
			events = append(events, s.emit(i, c.Type, more, cites...)...)
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
// content of its message. Lists of steps do not contain such a step.
func (s *sentStep) abandon(content []Content, now int64) []Event {
	s.step.Status, s.step.FailedAt, s.step.Usage = Failed, &now, &Usage{}
	s.step.LastError = &LastError{Code: "server_error",
		Message: "The answer was interrupted and is being generated again."}
	if s.message != nil {
		m := *s.message
		m.Content = content
		m.Status, m.IncompleteAt, m.IncompleteDetails = berth.StatusIncomplete, &now, &Details{Reason: "run_failed"}
		s.message = &m
	}
	return s.end()
}
