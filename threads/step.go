package threads

import (
	"encoding/json"
	"slices"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
)

// A Step is one action of a run: it created a message, or called tools.
type Step struct {
	ID          string            `json:"id"`
	Object      string            `json:"object"` // "thread.run.step"
	CreatedAt   int64             `json:"created_at"`
	RunID       string            `json:"run_id"`
	AssistantID string            `json:"assistant_id"`
	ThreadID    string            `json:"thread_id"`
	Type        string            `json:"type"`   // message_creation or tool_calls
	Status      Status            `json:"status"` // in_progress, cancelled, failed, completed or expired
	CancelledAt *int64            `json:"cancelled_at"`
	CompletedAt *int64            `json:"completed_at"`
	ExpiredAt   *int64            `json:"expired_at"`
	FailedAt    *int64            `json:"failed_at"`
	LastError   *LastError        `json:"last_error"`
	StepDetails StepDetails       `json:"step_details"`
	Metadata    map[string]string `json:"metadata"`

	// Usage is the usage of the whole response in the last of its steps, and zero in the
	// others, because one turn of a model may have several steps.
	Usage *Usage `json:"usage"`
}

// StepDetails describe a step by its type.
type StepDetails struct {
	Type            string           `json:"type"`
	MessageCreation *MessageCreation `json:"message_creation,omitempty"`
	ToolCalls       *[]ToolCall      `json:"tool_calls,omitempty"`
}

// A MessageCreation refers to the message of a step.
type MessageCreation struct {
	MessageID string `json:"message_id"`
}

// An answer holds the outputs that a client submitted for the calls of a leg.
type answer struct {
	outputs []ToolOutput
	at      int64
}

// Steps returns the steps of a run, the oldest first. run is its View. legs are the
// responses of r.Legs; those that are missing are nil and have no steps.
func (r *Record) Steps(run *Run, legs []*store.Response) []Step {
	var out []Step
	for n, leg := range legs {
		if leg == nil {
			continue
		}
		var given *answer
		if n+1 < len(legs) {
			given = r.answer(n+1, legs[n+1])
		}
		all := parts(leg.Body)
		for i, p := range all {
			out = append(out, r.newStep(run, leg.Body, p, i == len(all)-1, given))
		}
	}
	return out
}

// answer returns the outputs with which leg n started. rec is the leg's response, or nil.
func (r *Record) answer(n int, rec *store.Response) *answer {
	a := &answer{r.Legs[n].Outputs, r.Legs[n].At}
	if a.outputs == nil && rec != nil {
		for _, it := range rec.Input {
			var o berth.FunctionCallOutput
			var text string
			if it.Type() == berth.ItemFunctionCallOutput && it.Decode(&o) == nil && json.Unmarshal(o.Output,
				&text) == nil {
				a.outputs = append(a.outputs, ToolOutput{o.CallID, text})
			}
		}
	}
	return a
}

// newStep returns the step of a part of a leg. last is whether the part is the last one.
// given is the client's answer to the leg, or nil.
func (r *Record) newStep(run *Run, leg *berth.Response, p *part, last bool, given *answer) Step {
	s := Step{ID: derivedID(prefixStep, leg.ID, p.index), Object: "thread.run.step", CreatedAt: startedAt(leg, p.index),
		RunID: run.ID, AssistantID: run.AssistantID, ThreadID: run.ThreadID, Status: InProgress,
		Metadata: map[string]string{}}
	if p.calls == nil {
		s.Type = "message_creation"
		s.StepDetails = StepDetails{Type: s.Type,
			MessageCreation: &MessageCreation{derivedID(berth.PrefixMessage, leg.ID, p.index)}}
	} else {
		s.Type = "tool_calls"
		calls := r.toolCalls(leg, p, given)
		s.StepDetails = StepDetails{Type: s.Type, ToolCalls: &calls}
	}
	switch {
	case p.open:
	case p.needsClient() && given != nil:
		s.Status, s.CompletedAt = Completed, &given.at
	case p.needsClient():
		s.unanswered(run, leg, p)
	case p.broken() && (leg.Status == berth.StatusCancelled || leg.Status == berth.StatusFailed):
		s.unanswered(run, leg, p)
	default:
		at := endedAt(leg, p.index)
		s.Status, s.CompletedAt = Completed, &at
	}
	if s.Status != InProgress {
		s.Usage = &Usage{}
		if last {
			s.Usage.add(leg.Usage)
		}
	}
	return s
}

// unanswered sets the end of an unfinished step according to the end of its run.
func (s *Step) unanswered(run *Run, leg *berth.Response, p *part) {
	switch run.Status {
	case Cancelled:
		s.Status, s.CancelledAt = Cancelled, run.CancelledAt
	case Expired:
		s.Status, s.ExpiredAt = Expired, run.ExpiresAt
	case Failed:
		s.Status, s.FailedAt, s.LastError = Failed, run.FailedAt, stepError(run.LastError)
	case Incomplete: // the tokens are used up, so the calls get no outputs
		at := endedAt(leg, p.index)
		s.Status, s.CancelledAt = Cancelled, &at
	}
}

// withoutContent returns the step without the content of search results.
func (s Step) withoutContent() Step {
	if calls := s.StepDetails.ToolCalls; calls != nil {
		bare := withoutContent(*calls)
		s.StepDetails.ToolCalls = &bare
	}
	return s
}

// stepError returns a run's error with a code that is valid for a step.
func stepError(e *LastError) *LastError {
	if e == nil || e.Code == "rate_limit_exceeded" {
		return e
	}
	return &LastError{Code: "server_error", Message: e.Message}
}

// messagesOf returns the ended messages of a leg of a run.
func (r *Record) messagesOf(run *Run, leg *berth.Response) []*Message {
	var out []*Message
	for _, p := range parts(leg) {
		if p.calls == nil && !p.open {
			out = append(out, r.messageOf(run, leg, p))
		}
	}
	return out
}

// messageOf returns the message of a part.
func (r *Record) messageOf(run *Run, leg *berth.Response, p *part) *Message {
	m := &Message{ID: derivedID(berth.PrefixMessage, leg.ID, p.index), Object: string(kindMessage),
		CreatedAt:   startedAt(leg, p.index),
		AssistantID: &run.AssistantID, ThreadID: run.ThreadID, RunID: &run.ID, Status: berth.StatusInProgress,
		Role:    "assistant",
		Content: r.contentOf(leg.ID, p, p.message), Attachments: []Attachment{}, Metadata: map[string]string{}}
	at := endedAt(leg, p.index)
	switch {
	case p.open:
	case p.broken():
		m.Status, m.IncompleteAt, m.IncompleteDetails = berth.StatusIncomplete, &at,
			&Details{Reason: messageReason(leg)}
	default:
		m.Status, m.CompletedAt = berth.StatusCompleted, &at
	}
	return m
}

// messageReason returns the reason for which a message is incomplete.
func messageReason(leg *berth.Response) string {
	switch leg.Status {
	case berth.StatusCancelled:
		return "run_cancelled"
	case berth.StatusIncomplete:
		if leg.IncompleteDetails.Reason == "content_filter" {
			return "content_filter"
		}
		return "max_tokens"
	}
	return "run_failed"
}

// PageOfSteps returns one page of steps and whether there are more. steps must be sorted
// from the oldest to the newest. It returns store.ErrNotFound if a cursor is not in steps.
func PageOfSteps(steps []Step, page store.Page) ([]Step, bool, error) {
	steps = slices.Clone(steps)
	if !page.Ascending {
		slices.Reverse(steps)
	}
	at := func(id string) int { return slices.IndexFunc(steps, func(s Step) bool { return s.ID == id }) }
	first, last := 0, len(steps)
	if page.After != "" {
		if first = at(page.After) + 1; first == 0 {
			return nil, false, store.ErrNotFound
		}
	}
	if page.Before != "" {
		if last = at(page.Before); last < 0 {
			return nil, false, store.ErrNotFound
		}
	}
	steps = steps[min(first, last):last]
	switch more := len(steps) > page.Limit; {
	case more && page.After == "" && page.Before != "":
		return steps[len(steps)-page.Limit:], true, nil
	case more:
		return steps[:page.Limit], true, nil
	}
	return steps, false, nil
}
