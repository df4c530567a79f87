package assistants

import (
	"encoding/json"
	"slices"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
)

// A Step is one thing that a run did: it said a message, or called tools.
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

	// Usage is that of the whole response on the last step that came of it, and zero
	// on the others: a turn of a model may have several steps.
	Usage *Usage `json:"usage"`
}

// StepDetails say what a step did.
type StepDetails struct {
	Type            string           `json:"type"`
	MessageCreation *MessageCreation `json:"message_creation,omitempty"`
	ToolCalls       *[]ToolCall      `json:"tool_calls,omitempty"`
}

// A MessageCreation names the message of a step.
type MessageCreation struct {
	MessageID string `json:"message_id"`
}

// An answer is what a client submitted for the calls of a leg.
type answer struct {
	outputs []ToolOutput
	at      int64
}

// Steps returns the steps of a run, the oldest first. run is its View; legs are the
// responses of r.Legs, nil where one is missing and nothing is known.
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
			out = append(out, newStep(run, leg.Body, p, i == len(all)-1, given))
		}
	}
	return out
}

// answer returns the outputs that leg n began with: rec is its response, or nil.
func (r *Record) answer(n int, rec *store.Response) *answer {
	a := &answer{r.Legs[n].Outputs, r.Legs[n].At}
	if a.outputs == nil && rec != nil {
		for _, it := range rec.Input {
			var o berth.FunctionCallOutput
			var text string
			if it.Type() == berth.ItemFunctionCallOutput && it.Decode(&o) == nil && json.Unmarshal(o.Output, &text) == nil {
				a.outputs = append(a.outputs, ToolOutput{o.CallID, text})
			}
		}
	}
	return a
}

// newStep returns the step of a part of a leg; last says that no part follows it. The
// client's answer to the leg is nil if there is none yet.
func newStep(run *Run, leg *berth.Response, p *part, last bool, given *answer) Step {
	s := Step{ID: derivedID(prefixStep, leg.ID, p.index), Object: "thread.run.step", CreatedAt: bornAt(leg, p.index),
		RunID: run.ID, AssistantID: run.AssistantID, ThreadID: run.ThreadID, Status: InProgress, Metadata: map[string]string{}}
	if p.calls == nil {
		s.Type = "message_creation"
		s.StepDetails = StepDetails{Type: s.Type, MessageCreation: &MessageCreation{derivedID(berth.PrefixMessage, leg.ID, p.index)}}
	} else {
		s.Type = "tool_calls"
		calls := p.toolCalls(given)
		s.StepDetails = StepDetails{Type: s.Type, ToolCalls: &calls}
	}
	switch {
	case p.open:
	case p.asks() && given != nil:
		s.Status, s.CompletedAt = Completed, &given.at
	case p.asks():
		s.unanswered(run, leg, p)
	case p.broken() && (leg.Status == berth.StatusCancelled || leg.Status == berth.StatusFailed):
		s.unanswered(run, leg, p)
	default:
		at := closedAt(leg, p.index)
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

// unanswered ends a step that was not brought to its end as its run has ended.
func (s *Step) unanswered(run *Run, leg *berth.Response, p *part) {
	switch run.Status {
	case Cancelled:
		s.Status, s.CancelledAt = Cancelled, run.CancelledAt
	case Expired:
		s.Status, s.ExpiredAt = Expired, run.ExpiresAt
	case Failed:
		s.Status, s.FailedAt, s.LastError = Failed, run.FailedAt, stepError(run.LastError)
	case Incomplete: // the tokens are used up, the calls stay unanswered
		at := closedAt(leg, p.index)
		s.Status, s.CancelledAt = Cancelled, &at
	}
}

// stepError is a run's error with a code that a step may have.
func stepError(e *LastError) *LastError {
	if e == nil || e.Code == "rate_limit_exceeded" {
		return e
	}
	return &LastError{Code: "server_error", Message: e.Message}
}

// messagesOf returns the messages that a leg of a run has said to their end.
func messagesOf(run *Run, leg *berth.Response) []*Message {
	var out []*Message
	for _, p := range parts(leg) {
		if p.calls == nil && !p.open {
			out = append(out, messageOf(run, leg, p))
		}
	}
	return out
}

// messageOf returns the message of a part.
func messageOf(run *Run, leg *berth.Response, p *part) *Message {
	m := &Message{ID: derivedID(berth.PrefixMessage, leg.ID, p.index), Object: string(kindMessage), CreatedAt: bornAt(leg, p.index),
		AssistantID: &run.AssistantID, ThreadID: run.ThreadID, RunID: &run.ID, Status: berth.StatusInProgress, Role: "assistant",
		Content: contentOf(p.message), Attachments: []Attachment{}, Metadata: map[string]string{}}
	at := closedAt(leg, p.index)
	switch {
	case p.open:
	case p.broken():
		m.Status, m.IncompleteAt, m.IncompleteDetails = berth.StatusIncomplete, &at, &Details{Reason: messageReason(leg)}
	default:
		m.Status, m.CompletedAt = berth.StatusCompleted, &at
	}
	return m
}

// messageReason is why a message was broken off.
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

// PageOfSteps returns one page of steps, which are sorted from the oldest to the
// newest, and whether there is more. Like the store's its errors are ErrNotFound.
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
