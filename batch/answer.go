package batch

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/berth-run/berth"
)

// An Execution is a request that is to be executed.
type Execution struct {
	*Request
	// Once identifies the request over all attempts, also of later processes. A request that
	// was interrupted continues if it is executed again.
	Once string
}

// Execute executes a request for a caller. If ctx ends, it interrupts the request.
type Execute func(ctx context.Context, c berth.Caller, it Execution) Answer

// An Answer is the answer to a request.
type Answer struct {
	Status     int // of HTTP
	RequestID  string
	Body       []byte
	RetryAfter time.Duration // before the next attempt; 0 means unknown
	Final      bool          // another attempt would fail as well
}

func (a *Answer) ok() bool { return a.Status/100 == 2 }

const (
	maxAttempts = 4           // of a request that the server or an upstream fails to answer
	maxDelay    = time.Minute // between attempts
)

// retry reports whether a request is to be executed again, and after which time. A request that
// has to wait, for a rate limit or for the server, is repeated until the batch ends.
func (a *Answer) retry(attempt int) (wait time.Duration, again bool) {
	switch {
	case a.Final:
		return 0, false
	case a.Status == 429, a.Status == 503, a.Status == 507:
	case (a.Status >= 500 || a.Status == 408 || a.Status == 409) && attempt < maxAttempts:
	default:
		return 0, false
	}
	first := min(cmp.Or(a.RetryAfter, time.Second), maxDelay)
	return min(first<<min(attempt-1, 6), maxDelay), true
}

// reason returns why a request has to wait, in the words of its answer.
func (a *Answer) reason() string {
	var failure struct {
		Error struct{ Message string } `json:"error"`
	}
	if json.Unmarshal(a.Body, &failure) == nil && failure.Error.Message != "" {
		return failure.Error.Message
	}
	return fmt.Sprintf("status %d", a.Status)
}

// A result is the body of an object of store.KindBatchLine.
type result struct {
	Failed bool            `json:"failed,omitempty"`
	Usage  berth.Usage     `json:"usage"`
	Output json.RawMessage `json:"output"` // the line of the output file or the error file
}

// An output is a line of an output or error file.
type output struct {
	ID       string    `json:"id"`
	CustomID string    `json:"custom_id"`
	Response *response `json:"response"`
	Error    *reason   `json:"error"`
}

type response struct {
	StatusCode int             `json:"status_code"`
	RequestID  string          `json:"request_id"`
	Body       json.RawMessage `json:"body"`
}

// A reason states why a request was not executed.
type reason struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// result returns the stored part of the answer to a request.
func (a *Answer) result(request *Request) result {
	body := json.RawMessage(a.Body)
	if !json.Valid(body) {
		body, _ = json.Marshal(string(a.Body)) // a string is always encoded
	}
	line, _ := json.Marshal(output{ID: berth.NewID(berth.PrefixBatchRequest), CustomID: request.CustomID,
		Response: &response{a.Status, a.RequestID, body}}) // body is valid
	r := result{Failed: !a.ok(), Output: line}
	if a.ok() {
		r.Usage = usageOf(body)
	}
	return r
}

// usageOf returns the usage in the answer of any endpoint.
func usageOf(body []byte) (u berth.Usage) {
	type details struct {
		CachedTokens    int `json:"cached_tokens"`
		ReasoningTokens int `json:"reasoning_tokens"`
	}
	var answer struct {
		Usage struct {
			InputTokens       int     `json:"input_tokens"`
			OutputTokens      int     `json:"output_tokens"`
			InputDetails      details `json:"input_tokens_details"`
			OutputDetails     details `json:"output_tokens_details"`
			PromptTokens      int     `json:"prompt_tokens"` // of Chat Completions and embeddings
			CompletionTokens  int     `json:"completion_tokens"`
			PromptDetails     details `json:"prompt_tokens_details"`
			CompletionDetails details `json:"completion_tokens_details"`
			TotalTokens       int     `json:"total_tokens"`
		} `json:"usage"`
	}
	if json.Unmarshal(body, &answer) != nil {
		return u // an upstream's usage may have any form
	}
	a := answer.Usage
	u.InputTokens, u.OutputTokens, u.TotalTokens = a.InputTokens+a.PromptTokens, a.OutputTokens+a.CompletionTokens,
		a.TotalTokens
	u.InputTokenDetails.CachedTokens = a.InputDetails.CachedTokens + a.PromptDetails.CachedTokens
	u.OutputTokenDetails.ReasoningTokens = a.OutputDetails.ReasoningTokens + a.CompletionDetails.ReasoningTokens
	return u
}

// count adds a result. The caller holds Service.mu, or is the only user.
func (r *run) count(it result) {
	if it.Failed {
		r.counts.Failed++
	} else {
		r.counts.Completed++
	}
	r.usage.Add(it.Usage)
	r.bytes += int64(len(it.Output)) + 1
}

// lineID is the id of the object with a line's result.
func lineID(line int) string { return fmt.Sprintf("%d", line) }
