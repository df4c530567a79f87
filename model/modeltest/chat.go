package modeltest

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/berth-run/berth/model"
)

// maxBody bounds a request to a double, in bytes.
const maxBody = 256 << 20

// A ChatHandler is a double of Chat Completions: POST …/chat/completions, always as a
// stream, and GET …/models. It refuses requests that OpenAI's documentation excludes
// or that vLLM, llama.cpp and Ollama are known to fail on.
type ChatHandler struct {
	*Double
	Key       string   // that requests must have; empty accepts any
	Models    []string // that exist; empty accepts any
	Reasoning string   // the field of assistant messages that accepts reasoning, if any
	Unchecked bool     // requests are neither checked nor recorded, for benchmarks
}

// NewChatHandler returns a double without a server.
func NewChatHandler(script Script) *ChatHandler {
	return &ChatHandler{Double: newDouble(script)}
}

// NewChatServer starts a double at URL. It ends with the test.
func NewChatServer(t testing.TB, script Script) *ChatHandler {
	h := NewChatHandler(script)
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	h.URL = server.URL + "/v1"
	return h
}

// ServeHTTP implements http.Handler.
func (h *ChatHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if h.Key != "" && r.Header.Get("Authorization") != "Bearer "+h.Key {
		chatRefuse(w, &Refusal{Status: http.StatusUnauthorized, Code: "invalid_api_key",
			Message: "Incorrect API key provided."})
		return
	}
	switch {
	case r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/models"):
		listModels(w, h.Models)
	case r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/chat/completions"):
		h.complete(w, r)
	default:
		chatRefuse(w, &Refusal{Status: http.StatusNotFound, Message: fmt.Sprintf("Invalid URL (%s %s)", r.Method,
			r.URL.Path)})
	}
}

// listModels lists models in OpenAI's form.
func listModels(w http.ResponseWriter, ids []string) {
	data := []map[string]any{}
	for _, id := range ids {
		data = append(data, map[string]any{"id": id, "object": "model", "created": 1700000000, "owned_by": "double"})
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{"object": "list", "data": data})
}

func (h *ChatHandler) complete(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		chatRefuse(w, &Refusal{Status: http.StatusRequestEntityTooLarge, Message: err.Error()})
		return
	}
	got := &Request{}
	if !h.Unchecked {
		var refusal *Refusal
		if got, refusal = h.decode(body); refusal != nil {
			chatRefuse(w, refusal)
			return
		}
	}
	got.Body, got.Header = body, r.Header.Clone()
	turn := h.next(got, !h.Unchecked)
	if turn.Refusal != nil {
		chatRefuse(w, turn.Refusal)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	s := &chatWriter{line: h.line(w, r), model: got.Model}
	if !s.open() || !s.play(turn.Steps) {
		h.left()
	}
}

// chatRefuse writes an error response.
func chatRefuse(w http.ResponseWriter, r *Refusal) {
	for k, v := range r.Header {
		w.Header()[k] = v
	}
	body := []byte(r.Body)
	if r.Body == "" {
		w.Header().Set("Content-Type", "application/json")
		body = chatError(r.Code, r.Message)
	}
	w.WriteHeader(r.Status)
	_, _ = w.Write(body)
}

func chatError(code, message string) []byte {
	e := map[string]any{"message": message, "type": "invalid_request_error", "param": nil, "code": nil}
	if code != "" {
		e["code"] = code
	}
	raw, _ := json.Marshal(map[string]any{"error": e}) // strings always marshal
	return raw
}

// A chatWriter writes one answer as a stream of chunks.
type chatWriter struct {
	*line
	model string
	calls bool
}

type chatChunk struct {
	ID      string       `json:"id"`
	Object  string       `json:"object"`
	Created int64        `json:"created"`
	Model   string       `json:"model"`
	Choices []chatChoice `json:"choices"`
	Usage   *chatUsage   `json:"usage,omitempty"`
}

type chatChoice struct {
	Index        int            `json:"index"`
	Delta        map[string]any `json:"delta"`
	Logprobs     any            `json:"logprobs"`
	FinishReason *string        `json:"finish_reason"`
}

type chatUsage struct {
	PromptTokens     int            `json:"prompt_tokens"`
	CompletionTokens int            `json:"completion_tokens"`
	TotalTokens      int            `json:"total_tokens"`
	PromptDetails    map[string]int `json:"prompt_tokens_details"`
	OutputDetails    map[string]int `json:"completion_tokens_details"`
}

// open writes the first chunk, which has only a role. Like the other methods it
// reports whether the client is still connected.
func (s *chatWriter) open() bool {
	return s.delta(map[string]any{"role": "assistant", "content": ""})
}

func (s *chatWriter) play(steps []Step) bool {
	for _, step := range steps {
		if !s.step(step) {
			return false
		}
	}
	return true
}

func (s *chatWriter) step(step Step) bool {
	switch step := step.(type) {
	case model.Text:
		if step.Logprobs != nil {
			return s.choice(chatChoice{Delta: map[string]any{"content": step.Text},
				Logprobs: map[string]any{"content": step.Logprobs, "refusal": nil}})
		}
		return s.delta(map[string]any{"content": step.Text})
	case model.Thought:
		return s.delta(map[string]any{"reasoning_content": step.Text})
	case model.Refusal:
		return s.delta(map[string]any{"refusal": step.Text})
	case model.Call:
		return s.call(step)
	case model.Finish:
		return s.finish(step)
	case Wait:
		return s.wait(step)
	case Raw:
		return s.write([]byte(step))
	case Malformed:
		return s.event("", []byte(`{"id":"chatcmpl-double","choices":[{`))
	case Mistyped:
		return s.event("",
			[]byte(`{"id":"chatcmpl-double","model":7,"choices":[{"index":"zero","delta":{"content":5}}]}`))
	case Fault:
		return s.event("", chatError(step.Code, step.Message))
	case Cut:
		panic(http.ErrAbortHandler)
	}
	panic(fmt.Sprintf("modeltest: a chat double cannot send %T", step))
}

func (s *chatWriter) call(c model.Call) bool {
	s.calls = true
	call := map[string]any{"index": c.Index}
	function := map[string]any{"arguments": c.Arguments}
	if c.Name != "" {
		call["id"], call["type"], function["name"] = c.ID, "function", c.Name
	}
	call["function"] = function
	return s.delta(map[string]any{"tool_calls": []any{call}})
}

func (s *chatWriter) finish(f model.Finish) bool {
	reason := string(f.Reason)
	if f.Reason == model.FinishStop && s.calls {
		reason = "tool_calls"
	}
	if f.Model != "" {
		s.model = f.Model
	}
	if !s.choice(chatChoice{Delta: map[string]any{}, FinishReason: &reason}) {
		return false
	}
	u := f.Usage
	usage := &chatUsage{u.InputTokens, u.OutputTokens, u.TotalTokens,
		map[string]int{"cached_tokens": u.InputTokenDetails.CachedTokens},
		map[string]int{"reasoning_tokens": u.OutputTokenDetails.ReasoningTokens}}
	return s.chunk(chatChunk{Choices: []chatChoice{}, Usage: usage}) && s.event("", []byte("[DONE]"))
}

func (s *chatWriter) delta(delta map[string]any) bool {
	return s.choice(chatChoice{Delta: delta})
}

func (s *chatWriter) choice(c chatChoice) bool {
	return s.chunk(chatChunk{Choices: []chatChoice{c}})
}

func (s *chatWriter) chunk(c chatChunk) bool {
	c.ID, c.Object, c.Created, c.Model = "chatcmpl-double", "chat.completion.chunk", 1700000000, s.model
	raw, err := json.Marshal(c)
	if err != nil {
		panic(fmt.Sprintf("modeltest: a step is not JSON: %v", err))
	}
	return s.event("", raw)
}
