package berth

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
)

// A Status is the state of a response or of an item.
//
//	queued ─▶ in_progress ─▶ completed | incomplete | failed | cancelled
type Status string

const (
	StatusQueued     Status = "queued"
	StatusInProgress Status = "in_progress"
	StatusCompleted  Status = "completed"
	StatusIncomplete Status = "incomplete"
	StatusFailed     Status = "failed"
	StatusCancelled  Status = "cancelled"
)

// Final reports whether the status is the last one.
func (s Status) Final() bool {
	switch s {
	case StatusCompleted, StatusIncomplete, StatusFailed, StatusCancelled:
		return true
	}
	return false
}

// A Response is one request and all work to answer it. It is the fold of its events
// (Apply). It marshals to the complete object of response.* events and of
// GET /v1/responses/{id}, with explicit nulls and defaults filled in.
type Response struct {
	ID                   ResponseID            `json:"id"`
	AccessPrograms       json.RawMessage       `json:"access_programs,omitempty"` // as in the request
	Object               string                `json:"object"`                    // "response"
	CreatedAt            int64                 `json:"created_at"`
	Status               Status                `json:"status"`
	Background           bool                  `json:"background"`
	CompletedAt          *int64                `json:"completed_at"`
	Conversation         *ResponseConversation `json:"conversation,omitempty"` // absent if nil, as at OpenAI
	Error                *ResponseError        `json:"error"`
	FrequencyPenalty     float64               `json:"frequency_penalty"`
	IncompleteDetails    *IncompleteDetails    `json:"incomplete_details"`
	Instructions         json.RawMessage       `json:"instructions"` // null, a string, or items if there is a prompt
	MaxOutputTokens      *int                  `json:"max_output_tokens"`
	MaxToolCalls         *int                  `json:"max_tool_calls"`
	Model                string                `json:"model"`
	Output               []Item                `json:"output"`
	ParallelToolCalls    bool                  `json:"parallel_tool_calls"`
	PresencePenalty      float64               `json:"presence_penalty"`
	PreviousResponseID   *ResponseID           `json:"previous_response_id"`
	Prompt               *PromptReference      `json:"prompt,omitempty"`
	PromptCacheKey       *string               `json:"prompt_cache_key"`
	PromptCacheOptions   *PromptCacheOptions   `json:"prompt_cache_options,omitempty"`
	PromptCacheRetention *string               `json:"prompt_cache_retention"`
	Reasoning            ReasoningConfig       `json:"reasoning"`
	SafetyIdentifier     *string               `json:"safety_identifier"`
	ServiceTier          string                `json:"service_tier"`
	Store                bool                  `json:"store"`
	Temperature          float64               `json:"temperature"`
	Text                 TextConfig            `json:"text"`
	ToolChoice           json.RawMessage       `json:"tool_choice"`
	Tools                []Tool                `json:"tools"`
	TopLogprobs          int                   `json:"top_logprobs"`
	TopP                 float64               `json:"top_p"`
	Truncation           string                `json:"truncation"`
	Usage                *Usage                `json:"usage"`
	User                 *string               `json:"user"`
	Metadata             map[string]string     `json:"metadata"`
	Moderation           json.RawMessage       `json:"moderation,omitempty"` // the upstream's scores
	Berth                *ResponseBerth        `json:"berth,omitempty"`
}

// A ResponseError is the reason for which a response failed.
type ResponseError struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// IncompleteDetails holds the reason for which a response stopped early:
// max_output_tokens, content_filter, or one of Berth's own.
type IncompleteDetails struct {
	Reason string `json:"reason"`
}

// ReasoningConfig configures the model's reasoning. The response echoes it.
type ReasoningConfig struct {
	Effort  *string `json:"effort"`
	Summary *string `json:"summary"`
}

// PromptCacheOptions configure the upstream's prompt cache. They change no answer.
type PromptCacheOptions struct {
	Mode string `json:"mode,omitempty"` // "implicit" or "explicit"
	TTL  string `json:"ttl,omitempty"`  // "30m"
}

// completed returns the options as a response shows them, with OpenAI's defaults. It
// returns nil if o is nil.
func (o *PromptCacheOptions) completed() *PromptCacheOptions {
	if o == nil {
		return nil
	}
	return &PromptCacheOptions{Mode: cmp.Or(o.Mode, "implicit"), TTL: cmp.Or(o.TTL, "30m")}
}

// TextConfig configures the format of output text. The response echoes it.
type TextConfig struct {
	Format    json.RawMessage `json:"format"` // {"type":"text"}, json_object, or json_schema with its schema
	Verbosity string          `json:"verbosity"`
}

// completed returns the configuration with OpenAI's defaults. It accepts nil.
func (c *TextConfig) completed() TextConfig {
	out := TextConfig{Format: json.RawMessage(`{"type":"text"}`), Verbosity: "medium"}
	if c == nil {
		return out
	}
	if len(c.Format) > 0 {
		out.Format = c.Format
	}
	out.Verbosity = cmp.Or(c.Verbosity, out.Verbosity)
	return out
}

// Usage counts the tokens of all turns of a response.
type Usage struct {
	InputTokens        int                `json:"input_tokens"`
	InputTokenDetails  InputTokenDetails  `json:"input_tokens_details"`
	OutputTokens       int                `json:"output_tokens"`
	OutputTokenDetails OutputTokenDetails `json:"output_tokens_details"`
	TotalTokens        int                `json:"total_tokens"`
}

// InputTokenDetails counts the input tokens that were read from or written to a cache.
type InputTokenDetails struct {
	CacheWriteTokens int `json:"cache_write_tokens"`
	CachedTokens     int `json:"cached_tokens"`
}

// OutputTokenDetails counts the output tokens that were reasoning.
type OutputTokenDetails struct {
	ReasoningTokens int `json:"reasoning_tokens"`
}

// Add adds another turn's usage.
func (u *Usage) Add(v Usage) {
	u.InputTokens += v.InputTokens
	u.InputTokenDetails.CacheWriteTokens += v.InputTokenDetails.CacheWriteTokens
	u.InputTokenDetails.CachedTokens += v.InputTokenDetails.CachedTokens
	u.OutputTokens += v.OutputTokens
	u.OutputTokenDetails.ReasoningTokens += v.OutputTokenDetails.ReasoningTokens
	u.TotalTokens += v.TotalTokens
}

// Apply folds one event into the response. Events must come in order of their
// sequence numbers; the final Response equals the one in its last event.
func (r *Response) Apply(ev *Event) error {
	switch {
	case ev.Response != nil:
		*r = *ev.Response
		r.Output = slices.Clone(ev.Response.Output)
	case ev.Type == EventOutputItemAdded:
		if ev.OutputIndex == nil || *ev.OutputIndex != len(r.Output) {
			return fmt.Errorf("event %d adds an item out of order", ev.SequenceNumber)
		}
		r.Output = append(r.Output, *ev.Item)
	case ev.Type == EventOutputItemDone:
		if ev.OutputIndex == nil || *ev.OutputIndex < 0 || *ev.OutputIndex >= len(r.Output) {
			return fmt.Errorf("event %d ends an item that was not added", ev.SequenceNumber)
		}
		r.Output[*ev.OutputIndex] = *ev.Item
	}
	return nil
}

// A ResponseRequest is the body of POST /v1/responses. Pointers and empty raw
// messages mean that the client left the field out or sent null.
type ResponseRequest struct {
	Model        string           `json:"model"`
	Input        Input            `json:"input,omitzero"`
	Instructions *string          `json:"instructions,omitempty"`
	Prompt       *PromptReference `json:"prompt,omitempty"`
	// the prompt's items, placed before the input; no client can set it
	PromptItems          Input                 `json:"prompt_items,omitempty"`
	PreviousResponseID   ResponseID            `json:"previous_response_id,omitempty"`
	Conversation         *ResponseConversation `json:"conversation,omitempty"` // excludes PreviousResponseID
	Tools                []Tool                `json:"tools,omitempty"`
	ToolChoice           json.RawMessage       `json:"tool_choice,omitempty"`
	ParallelToolCalls    *bool                 `json:"parallel_tool_calls,omitempty"`
	MaxOutputTokens      *int                  `json:"max_output_tokens,omitempty"`
	MaxToolCalls         *int                  `json:"max_tool_calls,omitempty"`
	Temperature          *float64              `json:"temperature,omitempty"`
	TopP                 *float64              `json:"top_p,omitempty"`
	TopLogprobs          *int                  `json:"top_logprobs,omitempty"`
	Text                 *TextConfig           `json:"text,omitempty"`
	Reasoning            *ReasoningConfig      `json:"reasoning,omitempty"`
	Include              []string              `json:"include,omitempty"`
	Metadata             map[string]string     `json:"metadata,omitempty"`
	Store                *bool                 `json:"store,omitempty"`
	Stream               bool                  `json:"stream,omitempty"`
	StreamOptions        *StreamOptions        `json:"stream_options,omitempty"`
	Background           bool                  `json:"background,omitempty"`
	Truncation           string                `json:"truncation,omitempty"`
	ContextManagement    []ContextManagement   `json:"context_management,omitempty"`
	ServiceTier          string                `json:"service_tier,omitempty"`
	User                 *string               `json:"user,omitempty"`
	SafetyIdentifier     *string               `json:"safety_identifier,omitempty"`
	PromptCacheKey       *string               `json:"prompt_cache_key,omitempty"`
	PromptCacheRetention *string               `json:"prompt_cache_retention,omitempty"`
	PromptCacheOptions   *PromptCacheOptions   `json:"prompt_cache_options,omitempty"`
	AccessPrograms       json.RawMessage       `json:"access_programs,omitempty"`
	Moderation           json.RawMessage       `json:"moderation,omitempty"`
	Berth                *RequestBerth         `json:"berth,omitempty"`
	Sampling
}

// StreamOptions shape a stream.
type StreamOptions struct {
	IncludeObfuscation *bool `json:"include_obfuscation,omitempty"`
}

// Stored reports whether the response is stored after its end. The default is true.
func (r *ResponseRequest) Stored() bool { return r.Store == nil || *r.Store }

// Input is a request's input. A bare string is decoded as one user message.
type Input []Item

// UnmarshalJSON accepts a string (one user message) or a list of items, including
// messages without a type.
func (in *Input) UnmarshalJSON(b []byte) error {
	b = bytes.TrimSpace(b)
	if bytes.Equal(b, []byte("null")) {
		*in = nil
		return nil
	}
	if len(b) > 0 && b[0] == '"' {
		var text string
		if err := json.Unmarshal(b, &text); err != nil {
			return err
		}
		*in = Input{NewItem(Message{Type: ItemMessage, Role: "user",
			Content: []Content{{Type: "input_text", Text: text}}})}
		return nil
	}
	var items []Item
	if err := json.Unmarshal(b, &items); err != nil {
		return err
	}
	*in = items
	return nil
}

// Visible reports whether requests other than the one that created a response may read it: it is stored, or
// runs in the background.
func (r *Response) Visible() bool { return r.Store || r.Background }

// NewResponse returns a new response to a request: in progress, with empty output and
// every default filled in.
func NewResponse(id ResponseID, createdAt int64, req *ResponseRequest) *Response {
	r := &Response{
		ID: id, Object: "response", CreatedAt: createdAt, Status: StatusInProgress,
		Background:           req.Background,
		Conversation:         req.Conversation,
		FrequencyPenalty:     value(req.FrequencyPenalty, 0),
		Instructions:         json.RawMessage("null"),
		MaxOutputTokens:      req.MaxOutputTokens,
		MaxToolCalls:         req.MaxToolCalls,
		Model:                req.Model,
		Output:               []Item{},
		ParallelToolCalls:    value(req.ParallelToolCalls, true),
		PresencePenalty:      value(req.PresencePenalty, 0),
		Prompt:               req.Prompt,
		PromptCacheKey:       req.PromptCacheKey,
		PromptCacheOptions:   req.PromptCacheOptions.completed(),
		PromptCacheRetention: req.PromptCacheRetention,
		AccessPrograms:       req.AccessPrograms,
		SafetyIdentifier:     req.SafetyIdentifier,
		ServiceTier:          "auto",
		Store:                req.Stored(),
		Temperature:          value(req.Temperature, 1),
		Text:                 req.Text.completed(),
		ToolChoice:           json.RawMessage(`"auto"`),
		Tools:                completedTools(req.Tools),
		TopLogprobs:          value(req.TopLogprobs, 0),
		TopP:                 value(req.TopP, 1),
		Truncation:           "disabled",
		User:                 req.User,
		Metadata:             req.Metadata,
	}
	if req.Instructions != nil {
		r.Instructions, _ = json.Marshal(*req.Instructions) // a string always marshals
	}
	if len(req.PromptItems) > 0 {
		r.Instructions, _ = json.Marshal(req.instructionItems()) // so do items
	}
	if req.PreviousResponseID != "" {
		r.PreviousResponseID = &req.PreviousResponseID
	}
	if req.Reasoning != nil {
		r.Reasoning = *req.Reasoning
	}
	if len(req.ToolChoice) > 0 {
		r.ToolChoice = req.ToolChoice
	}
	if req.Truncation != "" {
		r.Truncation = req.Truncation
	}
	if req.ServiceTier != "" {
		r.ServiceTier = req.ServiceTier
	}
	if r.Metadata == nil {
		r.Metadata = map[string]string{}
	}
	return r
}

// instructionItems returns the instructions and the prompt's messages as items.
func (r *ResponseRequest) instructionItems() Input {
	if r.Instructions == nil {
		return r.PromptItems
	}
	return append(Input{NewItem(Message{ID: NewID(PrefixMessage), Type: ItemMessage, Role: "developer",
		Status:  StatusCompleted,
		Content: []Content{{Type: "input_text", Text: *r.Instructions}}})}, r.PromptItems...)
}

func value[T any](p *T, otherwise T) T {
	if p == nil {
		return otherwise
	}
	return *p
}

// RequestBerth is the field "berth" of POST /v1/responses. OpenAI's requests have no
// such field.
type RequestBerth struct {
	Checks          *Checks         `json:"checks,omitempty"`
	Budget          *Budget         `json:"budget,omitempty"`
	RequireApproval *ApprovalPolicy `json:"require_approval,omitempty"` // for the commands of hosted shell calls

	// Inherit sets the fields that the request omits to those of the request of its previous
	// response. Secrets of its tools are not stored, so they are missing.
	Inherit bool `json:"inherit,omitempty"`
}
