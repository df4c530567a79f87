package modeltest

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/berth-run/berth/model"
)

// An OpenAIHandler is a double of OpenAI's Responses: POST /v1/responses, always as a
// stream and without state, and GET /v1/models. It refuses requests that the
// documentation excludes. Its reasoning is encrypted and must come back unchanged.
type OpenAIHandler struct {
	*Double
	Key       string   // that requests must have; empty accepts any
	Models    []string // that exist; empty accepts any
	Unchecked bool     // requests are neither checked nor recorded, for benchmarks
}

// NewOpenAIHandler returns a double without a server.
func NewOpenAIHandler(script Script) *OpenAIHandler {
	return &OpenAIHandler{Double: newDouble(script)}
}

// NewOpenAIServer starts a double at URL. It ends with the test.
func NewOpenAIServer(t testing.TB, script Script) *OpenAIHandler {
	h := NewOpenAIHandler(script)
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	h.URL = server.URL + "/v1"
	return h
}

// ServeHTTP implements http.Handler.
func (h *OpenAIHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case h.Key != "" && r.Header.Get("Authorization") != "Bearer "+h.Key:
		chatRefuse(w, &Refusal{Status: http.StatusUnauthorized, Code: "invalid_api_key",
			Message: "Incorrect API key provided."})
	case r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/models"):
		listModels(w, h.Models)
	case r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/responses"):
		h.answer(w, r)
	default:
		chatRefuse(w, &Refusal{Status: http.StatusNotFound, Message: fmt.Sprintf("Invalid URL (%s %s)", r.Method,
			r.URL.Path)})
	}
}

func (h *OpenAIHandler) answer(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		chatRefuse(w, &Refusal{Status: http.StatusRequestEntityTooLarge, Message: err.Error()})
		return
	}
	got := &Request{}
	if !h.Unchecked {
		var refusal *Refusal
		if got, refusal = decodeResponses(body); refusal != nil {
			chatRefuse(w, refusal)
			return
		}
	}
	if len(h.Models) > 0 && !slices.Contains(h.Models, got.Model) {
		chatRefuse(w, &Refusal{Status: http.StatusNotFound, Code: "model_not_found",
			Message: fmt.Sprintf("The model `%s` does not exist", got.Model)})
		return
	}
	got.Body, got.Header = body, r.Header.Clone()
	turn := h.next(got, !h.Unchecked)
	if turn.Refusal != nil {
		chatRefuse(w, turn.Refusal)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	s := &responsesWriter{line: h.line(w, r), model: got.Model, open: -1, calls: map[int]*startedCall{}}
	if !s.start() || !s.play(turn.Steps) {
		h.left()
	}
}

// A responsesWriter writes one answer as the events of a response.
type responsesWriter struct {
	*line
	model    string
	sequence int

	output []any
	open   int    // index of the open message or reasoning; -1 if there is no open item
	kind   string // its kind: message, refusal or reasoning
	text   string // its text
	calls  map[int]*startedCall
	places map[int]int // in the output, of items of the vendor's own tools, by the step's index
}

// A startedCall is a call that has started, with its index in the output.
type startedCall struct {
	place int
	call  model.Call
}

func (s *responsesWriter) emit(kind string, fields map[string]any) bool {
	fields["type"], fields["sequence_number"] = kind, s.sequence
	s.sequence++
	raw, err := json.Marshal(fields)
	if err != nil {
		panic(fmt.Sprintf("modeltest: a step is not JSON: %v", err))
	}
	return s.event(kind, raw)
}

func (s *responsesWriter) response(status string) map[string]any {
	output := s.output
	if output == nil {
		output = []any{}
	}
	return map[string]any{"id": "resp_double", "object": "response", "created_at": 1700000000, "status": status,
		"model": s.model, "output": output,
		"error": nil, "incomplete_details": nil, "usage": nil, "store": false, "instructions": nil, "tools": []any{},
		"tool_choice": "auto", "parallel_tool_calls": true,
		"metadata": map[string]any{}, "temperature": 1, "top_p": 1}
}

func (s *responsesWriter) start() bool {
	return s.emit("response.created", map[string]any{"response": s.response("in_progress")}) &&
		s.emit("response.in_progress", map[string]any{"response": s.response("in_progress")})
}

func (s *responsesWriter) play(steps []Step) bool {
	for _, step := range steps {
		if !s.step(step) {
			return false
		}
	}
	return true
}

func (s *responsesWriter) step(step Step) bool {
	switch step := step.(type) {
	case model.Text:
		probs := step.Logprobs
		if probs == nil {
			probs = []json.RawMessage{}
		}
		return s.begin("message") && s.about("response.output_text.delta", map[string]any{"content_index": 0,
			"delta": step.Text, "logprobs": probs}, step.Text)
	case model.Refusal:
		return s.begin("refusal") && s.about("response.refusal.delta", map[string]any{"content_index": 0,
			"delta": step.Text}, step.Text)
	case model.Thought:
		return s.begin("reasoning") && s.about("response.reasoning_summary_text.delta",
			map[string]any{"summary_index": 0, "delta": step.Text}, step.Text)
	case Sealed:
		return s.close() && s.add(map[string]any{"id": "rs_double", "type": "reasoning", "summary": []any{}}) &&
			s.done(len(s.output)-1, reasoningItem(""))
	case model.Native:
		return s.native(step)
	case model.Item:
		return s.close() && s.add(step.Item) && s.done(len(s.output)-1, step.Item)
	case model.Call:
		return s.call(step)
	case model.Finish:
		return s.finish(step)
	case Wait:
		return s.wait(step)
	case Raw:
		return s.write([]byte(step))
	case Malformed:
		return s.event("response.output_text.delta", []byte(`{"type":"response.output_text.delta","delta":`))
	case Mistyped:
		return s.event("response.output_text.delta",
			[]byte(`{"type":"response.output_text.delta","output_index":0,"logprobs":7,"delta":5}`))
	case Fault:
		code := step.Code
		if code == "" {
			code = "server_error"
		}
		return s.emit("error", map[string]any{"code": code, "message": step.Message, "param": nil})
	case Cut:
		panic(http.ErrAbortHandler)
	}
	panic(fmt.Sprintf("modeltest: an OpenAI double cannot send %T", step))
}

func (s *responsesWriter) itemID() string { return fmt.Sprintf("item_%d", s.open) }

// about writes an event of the open item.
func (s *responsesWriter) about(kind string, fields map[string]any, text string) bool {
	s.text += text
	fields["item_id"], fields["output_index"] = s.itemID(), s.open
	return s.emit(kind, fields)
}

func (s *responsesWriter) add(item any) bool {
	s.output = append(s.output, item)
	return s.emit("response.output_item.added", map[string]any{"output_index": len(s.output) - 1, "item": item})
}

func (s *responsesWriter) done(index int, item any) bool {
	s.output[index] = item
	return s.emit("response.output_item.done", map[string]any{"output_index": index, "item": item})
}

// begin opens a message or reasoning unless it is open.
func (s *responsesWriter) begin(kind string) bool {
	if s.open >= 0 && s.kind == kind {
		return true
	}
	if !s.close() {
		return false
	}
	s.open, s.kind, s.text = len(s.output), kind, ""
	if kind == "reasoning" {
		return s.add(map[string]any{"id": s.itemID(), "type": "reasoning", "summary": []any{}}) &&
			s.about("response.reasoning_summary_part.added", map[string]any{"summary_index": 0,
				"part": map[string]any{"type": "summary_text", "text": ""}}, "")
	}
	return s.add(map[string]any{"id": s.itemID(), "type": "message", "status": "in_progress", "role": "assistant",
		"content": []any{}}) &&
		s.about("response.content_part.added", map[string]any{"content_index": 0, "part": s.part("")}, "")
}

func (s *responsesWriter) part(text string) map[string]any {
	if s.kind == "refusal" {
		return map[string]any{"type": "refusal", "refusal": text}
	}
	return map[string]any{"type": "output_text", "text": text, "annotations": []any{}, "logprobs": []any{}}
}

// reasoningItem returns a finished thought: its summary, and the rest encrypted.
func reasoningItem(text string) map[string]any {
	summary := []any{}
	if text != "" {
		summary = append(summary, map[string]any{"type": "summary_text", "text": text})
	}
	return map[string]any{"id": "rs_double", "type": "reasoning", "summary": summary,
		"encrypted_content": sign("responses", text)}
}

// close ends the open message or reasoning.
func (s *responsesWriter) close() bool {
	if s.open < 0 {
		return true
	}
	text, index := s.text, s.open
	if s.kind == "reasoning" {
		ok := s.about("response.reasoning_summary_text.done", map[string]any{"summary_index": 0, "text": text}, "") &&
			s.done(index, reasoningItem(text))
		s.open = -1
		return ok
	}
	ended := map[string]string{"message": "response.output_text.done", "refusal": "response.refusal.done"}[s.kind]
	part := s.part(text)
	ok := s.about(ended, map[string]any{"content_index": 0, "text": text, "refusal": text, "logprobs": []any{}}, "") &&
		s.about("response.content_part.done", map[string]any{"content_index": 0, "part": part}, "") &&
		s.done(index, map[string]any{"id": "msg_double", "type": "message", "status": "completed", "role": "assistant",
			"content": []any{part}})
	s.open = -1
	return ok
}

func (c *startedCall) item(status string) map[string]any {
	return map[string]any{"id": fmt.Sprintf("fc_%d", c.place), "type": "function_call", "status": status,
		"call_id": c.call.ID, "name": c.call.Name, "arguments": c.call.Arguments}
}

func (s *responsesWriter) call(c model.Call) bool {
	open, ok := s.calls[c.Index]
	if !ok {
		if !s.close() {
			return false
		}
		open = &startedCall{place: len(s.output), call: model.Call{ID: c.ID, Name: c.Name}}
		s.calls[c.Index] = open
		if !s.add(open.item("in_progress")) {
			return false
		}
	}
	open.call.Arguments += c.Arguments
	return s.emit("response.function_call_arguments.delta", map[string]any{"item_id": fmt.Sprintf("fc_%d", open.place),
		"output_index": open.place, "delta": c.Arguments})
}

func (s *responsesWriter) finish(f model.Finish) bool {
	if !s.close() {
		return false
	}
	for i := range len(s.calls) {
		c := s.calls[i]
		if !s.emit("response.function_call_arguments.done", map[string]any{"item_id": fmt.Sprintf("fc_%d", c.place),
			"output_index": c.place, "name": c.call.Name, "arguments": c.call.Arguments}) ||
			!s.done(c.place, c.item("completed")) {
			return false
		}
	}
	if f.Model != "" {
		s.model = f.Model
	}
	kind, response := "response.completed", s.response("completed")
	if f.Reason != model.FinishStop {
		kind, response = "response.incomplete", s.response("incomplete")
		reason := "max_output_tokens"
		if f.Reason == model.FinishContentFilter {
			reason = "content_filter"
		}
		response["incomplete_details"] = map[string]any{"reason": reason}
	}
	response["usage"] = f.Usage
	return s.emit(kind, map[string]any{"response": response})
}
