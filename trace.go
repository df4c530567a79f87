package berth

import "encoding/json"

// A Trace is a run of an agent on a client, as OpenAI's Agents SDK reports it. Berth stores it for
// TraceLife.
type Trace struct {
	ID           string          `json:"id"`     // trace_…, of the client's choice
	Object       string          `json:"object"` // "trace"
	CreatedAt    int64           `json:"created_at"`
	ExpiresAt    int64           `json:"expires_at"`
	WorkflowName string          `json:"workflow_name"`
	GroupID      *string         `json:"group_id"` // of a conversation, for example; or null
	Metadata     json.RawMessage `json:"metadata"` // an object or null
	Spans        int             `json:"spans"`
	Errors       int             `json:"errors"`        // spans with an error
	Dropped      int             `json:"spans_dropped"` // beyond MaxTraceSpans
	// the first start of a span, in Unix milliseconds; null without spans
	StartedAtMS *int64 `json:"started_at_ms"`
	EndedAtMS   *int64 `json:"ended_at_ms"` // the last end of a span
}

// A TraceSpan is a step of a Trace.
type TraceSpan struct {
	ID        string  `json:"id"`     // span_…, of the client's choice
	Object    string  `json:"object"` // "trace.span"
	TraceID   string  `json:"trace_id"`
	ParentID  *string `json:"parent_id"`
	StartedAt *string `json:"started_at"` // as the client sent it, in RFC 3339
	EndedAt   *string `json:"ended_at"`
	// by its type: agent, function, generation, response, handoff, guardrail, custom, …
	SpanData json.RawMessage `json:"span_data"`
	Error    json.RawMessage `json:"error"` // {"message", "data"} or null
	// the data was too large: only its type, name, model, response_id and usage are stored
	Truncated bool `json:"truncated"`
}

const (
	TraceLife     = 30 * 24 * 3600 // seconds
	MaxTraceSpans = 10_000         // of a trace; further ones are dropped
	MaxSpanData   = 128 << 10      // bytes; larger data is truncated
)
