package threads

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/berth-run/berth"
)

// outputTimeout is how long a run waits for the outputs of the client's functions.
const outputTimeout = 10 * time.Minute

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

// Active reports whether the run has not ended.
func (s Status) Active() bool {
	return s == Queued || s == InProgress || s == RequiresAction || s == Cancelling
}

// A Run is one answer of an assistant on a thread, as in OpenAI's API.
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
	ToolResources       Resources         `json:"tool_resources"`
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

// A RequiredAction lists the calls whose outputs a run waits for.
type RequiredAction struct {
	Type              string `json:"type"` // "submit_tool_outputs"
	SubmitToolOutputs struct {
		ToolCalls []RequiredCall `json:"tool_calls"`
	} `json:"submit_tool_outputs"`
}

// A LastError is the reason for which a run or a step failed.
type LastError struct {
	Code    string `json:"code"` // server_error, rate_limit_exceeded or invalid_prompt
	Message string `json:"message"`
}

// A Truncation selects how much of a thread a run reads.
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
	Run      Run   `json:"run"`                 // at its creation or, if Ended, at its end
	Legs     []Leg `json:"legs"`                // at least one
	Used     Usage `json:"used"`                // of all legs except the last
	Saved    int   `json:"said,omitempty"`      // number of messages of the last leg that are saved in the thread
	CancelAt int64 `json:"cancel_at,omitempty"` // when the client cancelled it, in Unix seconds
	Ended    bool  `json:"ended,omitempty"`

	// Files are the outputs of the run by the ids of their files. One that could not be saved is false.
	Files map[berth.FileID]bool `json:"files,omitempty"`
	// Container is the last container of the thread's runs before this one, or "".
	Container berth.ContainerID `json:"container,omitempty"`
}

// A Leg is one response of a run.
type Leg struct {
	Response berth.ResponseID `json:"response"`          // saved before the response is created
	At       int64            `json:"at"`                // Unix seconds
	Outputs  []ToolOutput     `json:"outputs,omitempty"` // cleared when the response is created
	Started  bool             `json:"started,omitempty"` // the response has been created
}

// A ToolOutput answers a call of a client's function.
type ToolOutput struct {
	ToolCallID string `json:"tool_call_id"`
	Output     string `json:"output"`
}

// last returns the current leg.
func (r *Record) last() *Leg { return &r.Legs[len(r.Legs)-1] }

// used returns the tokens of all legs. leg is the response of the last one, or nil.
func (r *Record) used(leg *berth.Response) Usage {
	u := r.Used
	if leg != nil {
		u.add(leg.Usage)
	}
	return u
}

// next adds a leg with the outputs for the calls of leg, which is complete.
func (r *Record) next(leg *berth.Response, outputs []ToolOutput, now int64) {
	if len(r.Legs) == 1 {
		r.Run.StartedAt = &leg.CreatedAt
	}
	r.Used, r.Saved = r.used(leg), 0
	r.Legs = append(r.Legs, newLeg(now, outputs))
}

// View returns the state of the run at a time. leg is the response of its last leg, or nil
// if it does not exist.
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
		run.fail(at, "server_error", "A response that belongs to this run was deleted.")
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

// runReasons maps a response's reason for being incomplete to a run's. OpenAI's runs have no
// reason for content_filter.
var runReasons = map[string]string{"max_output_tokens": "max_completion_tokens"}

// halted sets the state of a run whose last response is complete: completed, waiting for
// outputs, or expired. A run without tokens for another response is incomplete instead of
// waiting.
func (r *Record) halted(run *Run, leg *berth.Response, used Usage, now time.Time) {
	calls := waiting(leg)
	expiry := time.Unix(*leg.CompletedAt, 0).Add(outputTimeout)
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

// as returns the run in an intermediate state, without the fields of an end.
func (r Run) as(status Status, startedAt *int64) Run {
	r.Status, r.StartedAt = status, startedAt
	r.ExpiresAt, r.CancelledAt, r.FailedAt, r.CompletedAt = nil, nil, nil, nil
	r.RequiredAction, r.LastError, r.IncompleteDetails, r.Usage = nil, nil, nil, nil
	return r
}

// atMost reports whether a budget is used up. A nil budget never is.
func atMost(budget *int, used int) bool { return budget != nil && used >= *budget }

func (r *Run) fail(at int64, code, message string) {
	r.Status, r.FailedAt, r.LastError = Failed, &at, &LastError{Code: code, Message: message}
}

// errorCode returns the code of a run's error for a response's error.
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
