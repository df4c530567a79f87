package assistants

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/berth-run/berth"
)

// patience is how long a run waits for the outputs of the client's functions.
const patience = 10 * time.Minute

// A Status is the state of a run.
//
//	queued ─▶ in_progress ─▶ completed | incomplete | failed
//	  ▲          │  │
//	  │          │  └──────▶ cancelling ─▶ cancelled
//	  └─ requires_action ──▶ expired
type Status string

const (
	Queued         Status = "queued"
	InProgress     Status = "in_progress"
	RequiresAction Status = "requires_action"
	Cancelling     Status = "cancelling"
	Cancelled      Status = "cancelled"
	Failed         Status = "failed"
	Completed      Status = "completed"
	Incomplete     Status = "incomplete"
	Expired        Status = "expired"
)

// Active reports whether more follows.
func (s Status) Active() bool {
	return s == Queued || s == InProgress || s == RequiresAction || s == Cancelling
}

// A Run is one answer of an assistant on a thread, as the wire shows it.
type Run struct {
	ID                  string            `json:"id"`
	Object              string            `json:"object"` // "thread.run"
	CreatedAt           int64             `json:"created_at"`
	AssistantID         string            `json:"assistant_id"`
	ThreadID            string            `json:"thread_id"`
	Status              Status            `json:"status"`
	StartedAt           *int64            `json:"started_at"`
	ExpiresAt           *int64            `json:"expires_at"` // while the run waits for its client
	CancelledAt         *int64            `json:"cancelled_at"`
	FailedAt            *int64            `json:"failed_at"`
	CompletedAt         *int64            `json:"completed_at"`
	RequiredAction      *RequiredAction   `json:"required_action"`
	LastError           *LastError        `json:"last_error"`
	Model               string            `json:"model"`
	Instructions        string            `json:"instructions"`
	Tools               []berth.Tool      `json:"tools"`
	ToolResources       json.RawMessage   `json:"tool_resources"`
	Metadata            map[string]string `json:"metadata"`
	Temperature         *float64          `json:"temperature"`
	TopP                *float64          `json:"top_p"`
	MaxCompletionTokens *int              `json:"max_completion_tokens"`
	MaxPromptTokens     *int              `json:"max_prompt_tokens"`
	TruncationStrategy  Truncation        `json:"truncation_strategy"`
	IncompleteDetails   *Details          `json:"incomplete_details"`
	Usage               *Usage            `json:"usage"`
	ResponseFormat      json.RawMessage   `json:"response_format"`
	ToolChoice          json.RawMessage   `json:"tool_choice"`
	ParallelToolCalls   bool              `json:"parallel_tool_calls"`
	ReasoningEffort     *string           `json:"reasoning_effort"`
}

// A RequiredAction is what a run waits for.
type RequiredAction struct {
	Type              string `json:"type"` // "submit_tool_outputs"
	SubmitToolOutputs struct {
		ToolCalls []RequiredCall `json:"tool_calls"`
	} `json:"submit_tool_outputs"`
}

// A LastError says why a run or a step failed.
type LastError struct {
	Code    string `json:"code"` // server_error, rate_limit_exceeded or invalid_prompt
	Message string `json:"message"`
}

// A Truncation says how much of a thread a run reads.
type Truncation struct {
	Type         string `json:"type"` // auto or last_messages
	LastMessages *int   `json:"last_messages"`
}

// Usage counts tokens.
type Usage struct {
	PromptTokens     int `json:"prompt_tokens"`
	CompletionTokens int `json:"completion_tokens"`
	TotalTokens      int `json:"total_tokens"`
}

func (u *Usage) add(v *berth.Usage) {
	if v != nil {
		u.PromptTokens += v.InputTokens
		u.CompletionTokens += v.OutputTokens
		u.TotalTokens += v.TotalTokens
	}
}

// A Record is a run as it is stored.
type Record struct {
	Run      Run   `json:"run"`                 // as created; as ended if it has Ended
	Legs     []Leg `json:"legs"`                // at least one
	Used     Usage `json:"used"`                // by all legs but the last
	Said     int   `json:"said,omitempty"`      // how many messages of the last leg are in the thread
	CancelAt int64 `json:"cancel_at,omitempty"` // when its client cancelled it, in Unix seconds
	Ended    bool  `json:"ended,omitempty"`
}

// A Leg is one response of a run.
type Leg struct {
	Response berth.ResponseID `json:"response"`          // noted before it is made
	At       int64            `json:"at"`                // Unix seconds
	Outputs  []ToolOutput     `json:"outputs,omitempty"` // until the response has them
	Started  bool             `json:"started,omitempty"` // the response has been made
}

// A ToolOutput answers a call of a client's function.
type ToolOutput struct {
	ToolCallID string `json:"tool_call_id"`
	Output     string `json:"output"`
}

// last returns the leg that the run is at.
func (r *Record) last() *Leg { return &r.Legs[len(r.Legs)-1] }

// used returns the tokens of all legs; leg is the response of the last one.
func (r *Record) used(leg *berth.Response) Usage {
	u := r.Used
	if leg != nil {
		u.add(leg.Usage)
	}
	return u
}

// next starts another leg, with the outputs for leg, which is complete.
func (r *Record) next(leg *berth.Response, outputs []ToolOutput, now int64) {
	if len(r.Legs) == 1 {
		r.Run.StartedAt = &leg.CreatedAt
	}
	r.Used, r.Said = r.used(leg), 0
	r.Legs = append(r.Legs, newLeg(now, outputs))
}

// View returns the run as it is at a time. leg is the response of its last leg, nil if
// there is none.
func (r *Record) View(leg *berth.Response, now time.Time) Run {
	run := r.Run
	if r.Ended {
		return run
	}
	if run.StartedAt == nil && leg != nil {
		run.StartedAt = &leg.CreatedAt
	}
	at, used := now.Unix(), r.used(leg)
	switch {
	case leg == nil && r.CancelAt != 0:
		run.Status, run.CancelledAt = Cancelled, &r.CancelAt
	case leg == nil && !r.last().Started:
		run.Status = Queued
	case leg == nil:
		run.fail(at, "server_error", "The response that this run is made of was deleted.")
	case leg.Status == berth.StatusQueued:
		run.Status = Queued
	case leg.Status == berth.StatusInProgress:
		run.Status = InProgress
	case leg.Status == berth.StatusCancelled:
		run.Status, run.CancelledAt = Cancelled, &at
	case leg.Status == berth.StatusFailed:
		run.fail(at, errorCode(leg.Error), errorMessage(leg.Error))
	case leg.Status == berth.StatusIncomplete:
		run.Status, run.IncompleteDetails = Incomplete, &Details{Reason: runReasons[leg.IncompleteDetails.Reason]}
	default:
		r.halted(&run, leg, used, now)
	}
	if r.CancelAt != 0 && run.Status.Active() {
		run.Status, run.ExpiresAt, run.RequiredAction = Cancelling, nil, nil
	}
	if !run.Status.Active() {
		run.Usage = &used
	}
	return run
}

// runReasons are a run's reasons to be incomplete, by a response's. OpenAI has none
// for content_filter.
var runReasons = map[string]string{"max_output_tokens": "max_completion_tokens"}

// halted fills in a run whose last response is complete: it is complete, waits for its
// client, or has expired. A run that waits ends when the tokens for another response are
// used up.
func (r *Record) halted(run *Run, leg *berth.Response, used Usage, now time.Time) {
	calls := waiting(leg)
	expiry := time.Unix(*leg.CompletedAt, 0).Add(patience)
	expires, at := expiry.Unix(), now.Unix()
	switch {
	case len(calls) == 0:
		run.Status, run.CompletedAt = Completed, leg.CompletedAt
	case r.CancelAt != 0:
		run.Status, run.CancelledAt = Cancelled, &r.CancelAt
	case atMost(run.MaxPromptTokens, used.PromptTokens):
		run.Status, run.IncompleteDetails = Incomplete, &Details{Reason: "max_prompt_tokens"}
	case atMost(run.MaxCompletionTokens, used.CompletionTokens):
		run.Status, run.IncompleteDetails = Incomplete, &Details{Reason: "max_completion_tokens"}
	case at >= expires:
		run.Status, run.ExpiresAt = Expired, &expires
	default:
		run.Status, run.ExpiresAt = RequiresAction, &expires
		run.RequiredAction = &RequiredAction{Type: "submit_tool_outputs"}
		run.RequiredAction.SubmitToolOutputs.ToolCalls = calls
	}
}

// as returns the run in a state on its way, which shows nothing of an end.
func (r Run) as(status Status, startedAt *int64) Run {
	r.Status, r.StartedAt = status, startedAt
	r.ExpiresAt, r.CancelledAt, r.FailedAt, r.CompletedAt = nil, nil, nil, nil
	r.RequiredAction, r.LastError, r.IncompleteDetails, r.Usage = nil, nil, nil, nil
	return r
}

// atMost reports whether a budget, if there is one, is used up.
func atMost(budget *int, used int) bool { return budget != nil && used >= *budget }

func (r *Run) fail(at int64, code, message string) {
	r.Status, r.FailedAt, r.LastError = Failed, &at, &LastError{Code: code, Message: message}
}

// errorCode is the code of a run's error for that of a response's.
func errorCode(e *berth.ResponseError) string {
	if e != nil && slices.Contains([]string{"rate_limit_exceeded", "invalid_prompt"}, e.Code) {
		return e.Code
	}
	return "server_error"
}

func errorMessage(e *berth.ResponseError) string {
	if e == nil {
		return "The server had an error while processing your request."
	}
	return e.Message
}
