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

// A GeminiHandler is a double of Google's generateContent: POST
// /v1beta/models/…:streamGenerateContent?alt=sse and GET /v1beta/models. It refuses
// requests that the documentation excludes for the model's generation, and adjacent
// contents of the model. Its calls are signed, and so is its text after a thought.
type GeminiHandler struct {
	*Double
	Key       string   // that requests must have; empty accepts any
	Models    []string // that exist; empty accepts any
	Unchecked bool     // requests are neither checked nor recorded, for benchmarks
}

// NewGeminiHandler returns a double without a server.
func NewGeminiHandler(script Script) *GeminiHandler {
	return &GeminiHandler{Double: newDouble(script)}
}

// NewGeminiServer starts a double at URL. It ends with the test.
func NewGeminiServer(t testing.TB, script Script) *GeminiHandler {
	h := NewGeminiHandler(script)
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	h.URL = server.URL
	return h
}

// ServeHTTP implements http.Handler.
func (h *GeminiHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name, ok := strings.CutPrefix(r.URL.Path, "/v1beta/models/")
	name, streams := strings.CutSuffix(name, ":streamGenerateContent")
	switch {
	case h.Key != "" && r.Header.Get("X-Goog-Api-Key") != h.Key:
		geminiRefuse(w, &Refusal{Status: http.StatusBadRequest, Code: "API_KEY_INVALID",
			Message: "API key not valid. Please pass a valid API key."})
	case r.Method == http.MethodGet && r.URL.Path == "/v1beta/models":
		h.list(w)
	case r.Method == http.MethodPost && ok && streams && r.URL.Query().Get("alt") == "sse":
		h.answer(w, r, name)
	default:
		geminiRefuse(w, &Refusal{Status: http.StatusNotFound, Message: "Not Found"})
	}
}

func (h *GeminiHandler) list(w http.ResponseWriter) {
	models := []map[string]any{{"name": "models/embedding-001", "supportedGenerationMethods": []string{"embedContent"}}}
	for _, id := range h.Models {
		models = append(models, map[string]any{"name": "models/" + id, "displayName": id,
			"supportedGenerationMethods": []string{"generateContent", "countTokens"}})
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{"models": models})
}

func (h *GeminiHandler) answer(w http.ResponseWriter, r *http.Request, name string) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		geminiRefuse(w, &Refusal{Status: http.StatusRequestEntityTooLarge, Message: err.Error()})
		return
	}
	if len(h.Models) > 0 && !slices.Contains(h.Models, name) {
		geminiRefuse(w, &Refusal{Status: http.StatusNotFound,
			Message: fmt.Sprintf("models/%s is not found for API version v1beta", name)})
		return
	}
	got := &Request{Model: name}
	if !h.Unchecked {
		var refusal *Refusal
		if got, refusal = decodeGemini(name, body); refusal != nil {
			geminiRefuse(w, refusal)
			return
		}
	}
	got.Body, got.Header = body, r.Header.Clone()
	turn := h.next(got, !h.Unchecked)
	if turn.Refusal != nil {
		geminiRefuse(w, turn.Refusal)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	s := &geminiWriter{line: h.line(w, r), model: name, version: name, id: fmt.Sprintf("double%d", h.requestCount())}
	if !s.play(turn.Steps) {
		h.left()
	}
}

var geminiStatuses = map[int]string{400: "INVALID_ARGUMENT", 401: "UNAUTHENTICATED", 403: "PERMISSION_DENIED",
	404: "NOT_FOUND", 413: "INVALID_ARGUMENT",
	429: "RESOURCE_EXHAUSTED", 500: "INTERNAL", 503: "UNAVAILABLE", 504: "DEADLINE_EXCEEDED"}

// geminiRefuse writes an error response.
func geminiRefuse(w http.ResponseWriter, r *Refusal) {
	for k, v := range r.Header {
		w.Header()[k] = v
	}
	body := []byte(r.Body)
	if r.Body == "" {
		w.Header().Set("Content-Type", "application/json; charset=UTF-8")
		body = geminiError(r.Status, r.Code, r.Message)
	}
	w.WriteHeader(r.Status)
	_, _ = w.Write(body)
}

func geminiError(status int, reason, message string) []byte {
	e := map[string]any{"code": status, "message": message, "status": geminiStatuses[status]}
	if reason != "" {
		e["details"] = []any{map[string]any{"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": reason,
			"domain": "googleapis.com"}}
	}
	raw, _ := json.Marshal(map[string]any{"error": e}) // strings and numbers always marshal
	return raw
}

// A geminiWriter writes one answer as a stream of chunks. It sends calls whole, at the
// end of the answer.
type geminiWriter struct {
	*line
	id, model, version string

	sealed  bool // a thought needs its signature
	calls   []model.Call
	refusal string
}

func (s *geminiWriter) play(steps []Step) bool {
	for _, step := range steps {
		if !s.step(step) {
			return false
		}
	}
	return true
}

func (s *geminiWriter) step(step Step) bool {
	switch step := step.(type) {
	case model.Text:
		candidate := map[string]any{"content": geminiContent(map[string]any{"text": step.Text}), "index": 0}
		if step.Logprobs != nil {
			candidate["logprobsResult"] = geminiLogprobs(step.Logprobs)
		}
		return s.chunk(map[string]any{"candidates": []any{candidate}})
	case model.Thought:
		s.sealed = true
		return s.part(map[string]any{"text": step.Text, "thought": true})
	case Sealed:
		s.sealed = true
		return true
	case model.Refusal:
		s.refusal += step.Text
		return true
	case model.Call:
		if step.Index == len(s.calls) {
			s.calls = append(s.calls, step)
		} else {
			s.calls[step.Index].Arguments += step.Arguments
		}
		return true
	case model.Finish:
		return s.finish(step)
	case Wait:
		return s.wait(step)
	case Raw:
		return s.write([]byte(step))
	case Malformed:
		return s.event("", []byte(`{"candidates":[{"content":{`))
	case Mistyped:
		return s.event("", []byte(`{"usageMetadata":7,"candidates":[{"content":{"parts":[{"text":5}]}}]}`))
	case Fault:
		return s.event("", geminiError(http.StatusInternalServerError, step.Code, step.Message))
	case Cut:
		panic(http.ErrAbortHandler)
	}
	panic(fmt.Sprintf("modeltest: a Gemini double cannot send %T", step))
}

func geminiContent(part map[string]any) map[string]any {
	return map[string]any{"parts": []any{part}, "role": "model"}
}

func (s *geminiWriter) part(part map[string]any) bool {
	return s.chunk(map[string]any{"candidates": []any{map[string]any{"content": geminiContent(part), "index": 0}}})
}

func (s *geminiWriter) chunk(fields map[string]any) bool {
	fields["modelVersion"], fields["responseId"] = s.version, s.id
	raw, err := json.Marshal(fields)
	if err != nil {
		panic(fmt.Sprintf("modeltest: a step is not JSON: %v", err))
	}
	return s.event("", raw)
}

func (s *geminiWriter) finish(f model.Finish) bool {
	for i, c := range s.calls {
		call := map[string]any{"name": c.Name, "id": c.ID}
		if c.Arguments != "" {
			call["args"] = json.RawMessage(c.Arguments)
		}
		part := map[string]any{"functionCall": call}
		if i == 0 {
			part["thoughtSignature"] = sign("gemini", geminiFamily(s.model), "call", c.Name,
				canonical([]byte(c.Arguments)))
		}
		if !s.part(part) {
			return false
		}
	}
	last := map[string]any{"text": ""}
	if s.sealed && len(s.calls) == 0 {
		last["thoughtSignature"] = sign("gemini", geminiFamily(s.model), "text")
	}
	if f.Model != "" {
		s.version = f.Model
	}
	reason := map[model.FinishReason]string{model.FinishStop: "STOP", model.FinishLength: "MAX_TOKENS",
		model.FinishContentFilter: "SAFETY"}[f.Reason]
	candidate := map[string]any{"content": geminiContent(last), "finishReason": reason, "index": 0}
	if s.refusal != "" {
		candidate["finishReason"], candidate["finishMessage"] = "PROHIBITED_CONTENT", s.refusal
	}
	u := f.Usage
	return s.chunk(map[string]any{"candidates": []any{candidate},
		"usageMetadata": map[string]any{"promptTokenCount": u.InputTokens,
			"cachedContentTokenCount": u.InputTokenDetails.CachedTokens,
			"candidatesTokenCount":    u.OutputTokens - u.OutputTokenDetails.ReasoningTokens,
			"thoughtsTokenCount":      u.OutputTokenDetails.ReasoningTokens, "totalTokenCount": u.TotalTokens}})
}

// geminiLogprobs converts probabilities from the form of Responses.
func geminiLogprobs(all []json.RawMessage) map[string]any {
	type one struct {
		Token   string  `json:"token"`
		Logprob float64 `json:"logprob"`
	}
	var chosen, top []any
	for _, raw := range all {
		var token struct {
			one
			Top []one `json:"top_logprobs"`
		}
		if err := json.Unmarshal(raw, &token); err != nil {
			panic(err)
		}
		chosen = append(chosen, map[string]any{"token": token.Token, "tokenId": 1, "logProbability": token.Logprob})
		candidates := []any{}
		for _, o := range token.Top {
			candidates = append(candidates, map[string]any{"token": o.Token, "tokenId": 2, "logProbability": o.Logprob})
		}
		top = append(top, map[string]any{"candidates": candidates})
	}
	return map[string]any{"chosenCandidates": chosen, "topCandidates": top}
}

// geminiFamily returns a model's name without its preview suffix.
func geminiFamily(name string) string {
	name, _, _ = strings.Cut(name, "-preview")
	return strings.TrimSuffix(name, "-latest")
}
