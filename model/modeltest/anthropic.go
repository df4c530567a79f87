package modeltest

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"github.com/berth-run/berth/model"
)

// An AnthropicHandler is a double of Anthropic's Messages API: POST /v1/messages,
// always as a stream, and GET /v1/models. It refuses requests that the documentation
// excludes for the model's generation, and adjacent turns of one side. Its reasoning
// is signed and bound to its model, and from Claude 5.1 on also to what precedes it.
type AnthropicHandler struct {
	*Double
	Key       string   // that requests must have; empty accepts any
	Models    []string // that exist; empty accepts any
	Unchecked bool     // requests are neither checked nor recorded, for benchmarks
}

// NewAnthropicHandler returns a double without a server.
func NewAnthropicHandler(script Script) *AnthropicHandler {
	return &AnthropicHandler{Double: newDouble(script)}
}

// NewAnthropicServer starts a double at URL. It ends with the test.
func NewAnthropicServer(t testing.TB, script Script) *AnthropicHandler {
	h := NewAnthropicHandler(script)
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	h.URL = server.URL
	return h
}

// ServeHTTP implements http.Handler.
func (h *AnthropicHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case h.Key != "" && r.Header.Get("X-Api-Key") != h.Key:
		anthropicRefuse(w, &Refusal{Status: http.StatusUnauthorized, Message: "invalid x-api-key"})
	case r.Header.Get("Anthropic-Version") != "2023-06-01":
		anthropicRefuse(w, &Refusal{Status: http.StatusBadRequest, Message: "anthropic-version: header is required"})
	case r.Method == http.MethodGet && r.URL.Path == "/v1/models":
		h.list(w)
	case r.Method == http.MethodPost && r.URL.Path == "/v1/messages":
		h.answer(w, r)
	default:
		anthropicRefuse(w, &Refusal{Status: http.StatusNotFound, Message: "Not Found"})
	}
}

func (h *AnthropicHandler) list(w http.ResponseWriter) {
	data := []map[string]any{}
	for _, id := range h.Models {
		data = append(data, map[string]any{"type": "model", "id": id, "display_name": id,
			"created_at": "2023-11-14T22:13:20Z"})
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{"data": data, "has_more": false, "first_id": nil, "last_id": nil})
}

func (h *AnthropicHandler) answer(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		anthropicRefuse(w, &Refusal{Status: http.StatusRequestEntityTooLarge, Message: err.Error()})
		return
	}
	got, prefix := &Request{}, ""
	if !h.Unchecked {
		var refusal *Refusal
		if got, prefix, refusal = h.decode(body, r.Header); refusal != nil {
			anthropicRefuse(w, refusal)
			return
		}
	}
	got.Body, got.Header = body, r.Header.Clone()
	turn := h.next(got, !h.Unchecked)
	if turn.Refusal != nil {
		anthropicRefuse(w, turn.Refusal)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	s := &anthropicWriter{line: h.line(w, r), model: got.Model, prefix: prefix, open: -1,
		id: fmt.Sprintf("msg_double%d", h.requestCount())}
	if !s.start() || !s.play(turn.Steps) {
		h.left()
	}
}

var anthropicTypes = map[int]string{400: "invalid_request_error", 401: "authentication_error", 402: "billing_error",
	403: "permission_error",
	404: "not_found_error", 413: "request_too_large", 429: "rate_limit_error", 504: "timeout_error",
	529: "overloaded_error"}

// anthropicRefuse writes an error response.
func anthropicRefuse(w http.ResponseWriter, r *Refusal) {
	for k, v := range r.Header {
		w.Header()[k] = v
	}
	body := []byte(r.Body)
	if r.Body == "" {
		w.Header().Set("Content-Type", "application/json")
		kind := anthropicTypes[r.Status]
		if kind == "" {
			kind = "api_error"
		}
		body = anthropicError(kind, r.Message)
	}
	w.WriteHeader(r.Status)
	_, _ = w.Write(body)
}

func anthropicError(kind, message string) []byte {
	// strings always marshal
	raw, _ := json.Marshal(map[string]any{"type": "error", "error": map[string]any{"type": kind, "message": message},
		"request_id": "req_double"})
	return raw
}

// An anthropicWriter writes one answer, block by block. A call that starts beside
// another waits until that is complete.
type anthropicWriter struct {
	*line
	id, model, prefix string

	blocks  int    // number of blocks started
	open    int    // the call whose block is open, or -1
	kind    string // of the open block, or ""
	thought string // of the open thinking block
	waiting []model.Call
	called  bool
	refusal string
}

func (s *anthropicWriter) emit(kind string, fields map[string]any) bool {
	fields["type"] = kind
	raw, err := json.Marshal(fields)
	if err != nil {
		panic(fmt.Sprintf("modeltest: a step is not JSON: %v", err))
	}
	return s.event(kind, raw)
}

func (s *anthropicWriter) start() bool {
	return s.emit("message_start",
		map[string]any{"message": map[string]any{"id": s.id, "type": "message", "role": "assistant", "model": s.model,
			"content": []any{}, "stop_reason": nil, "stop_sequence": nil, "stop_details": nil,
			"usage": map[string]any{"input_tokens": 1, "output_tokens": 1}}}) && s.emit("ping", map[string]any{})
}

func (s *anthropicWriter) play(steps []Step) bool {
	for _, step := range steps {
		if !s.step(step) {
			return false
		}
	}
	return true
}

func (s *anthropicWriter) step(step Step) bool {
	switch step := step.(type) {
	case model.Text:
		return s.begin("text", map[string]any{"text": ""}) && s.delta("text_delta", "text", step.Text)
	case model.Thought:
		s.thought += step.Text
		return s.begin("thinking", map[string]any{"thinking": "", "signature": ""}) && s.delta("thinking_delta",
			"thinking", step.Text)
	case Sealed:
		return s.close() && s.begin("redacted_thinking",
			map[string]any{"data": sign("redacted", anthropicFamily(s.model), s.prefix)}) && s.close()
	case model.Refusal:
		s.refusal += step.Text
		return true
	case model.Call:
		return s.call(step)
	case model.Finish:
		return s.finish(step)
	case Wait:
		return s.wait(step)
	case Raw:
		return s.write([]byte(step))
	case Malformed:
		return s.event("content_block_delta", []byte(`{"type":"content_block_delta","index":0,"delta":{`))
	case Mistyped:
		return s.event("content_block_delta",
			[]byte(`{"type":"content_block_delta","index":0,"usage":7,"delta":{"type":"text_delta","text":5}}`))
	case Fault:
		kind := step.Code
		if kind == "" {
			kind = "api_error"
		}
		return s.event("error", anthropicError(kind, step.Message))
	case Cut:
		panic(http.ErrAbortHandler)
	}
	panic(fmt.Sprintf("modeltest: an Anthropic double cannot send %T", step))
}

// begin opens a block unless one of its kind is open.
func (s *anthropicWriter) begin(kind string, block map[string]any) bool {
	if s.kind == kind && kind != "tool_use" {
		return true
	}
	thought := s.thought
	if !s.close() {
		return false
	}
	s.thought = thought
	s.kind = kind
	s.blocks++
	block["type"] = kind
	return s.emit("content_block_start", map[string]any{"index": s.blocks - 1, "content_block": block})
}

func (s *anthropicWriter) delta(kind, field, text string) bool {
	return s.emit("content_block_delta", map[string]any{"index": s.blocks - 1,
		"delta": map[string]any{"type": kind, field: text}})
}

// close ends the open block. It signs a thought.
func (s *anthropicWriter) close() bool {
	kind := s.kind
	s.kind, s.open = "", -1
	if kind == "" {
		return true
	}
	if kind == "thinking" {
		signature := sign("thinking", anthropicFamily(s.model), s.prefix, s.thought)
		s.thought = ""
		if !s.delta("signature_delta", "signature", signature) {
			return false
		}
	}
	return s.emit("content_block_stop", map[string]any{"index": s.blocks - 1})
}

func (s *anthropicWriter) call(c model.Call) bool {
	s.called = true
	if c.Index != s.open && s.open >= 0 {
		s.waiting = append(s.waiting, c)
		return true
	}
	if c.Index != s.open {
		if !s.begin("tool_use", map[string]any{"id": c.ID, "name": c.Name, "input": map[string]any{}}) {
			return false
		}
		s.open = c.Index
	}
	return s.delta("input_json_delta", "partial_json", c.Arguments)
}

func (s *anthropicWriter) finish(f model.Finish) bool {
	for len(s.waiting) > 0 {
		if !s.close() {
			return false
		}
		now := s.waiting
		s.waiting = nil
		for _, c := range now {
			if !s.call(c) {
				return false
			}
		}
	}
	if !s.close() {
		return false
	}
	reason, details := map[model.FinishReason]string{model.FinishStop: "end_turn", model.FinishLength: "max_tokens",
		model.FinishContentFilter: "refusal"}[f.Reason], any(nil)
	switch {
	case s.refusal != "":
		reason, details = "refusal", map[string]any{"type": "refusal", "category": nil, "explanation": s.refusal}
	case f.Reason == model.FinishStop && s.called:
		reason = "tool_use"
	}
	u := f.Usage
	return s.emit("message_delta",
		map[string]any{"delta": map[string]any{"stop_reason": reason, "stop_sequence": nil, "stop_details": details},
			"usage": map[string]any{"input_tokens": u.InputTokens - u.InputTokenDetails.CachedTokens,
				"cache_read_input_tokens":     u.InputTokenDetails.CachedTokens,
				"cache_creation_input_tokens": 0, "output_tokens": u.OutputTokens,
				"output_tokens_details": map[string]any{"thinking_tokens": u.OutputTokenDetails.ReasoningTokens}}}) &&
		s.emit("message_stop", map[string]any{})
}

// anthropicFamily returns a model's name without its date.
func anthropicFamily(name string) string {
	if m := anthropicDate.FindStringIndex(name); m != nil {
		return name[:m[0]]
	}
	return name
}

func contains[T comparable](v T, of ...T) bool { return slices.Contains(of, v) }
