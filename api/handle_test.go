package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
)

func TestDescribe(t *testing.T) {
	invalid := "invalid_request_error"
	tests := []struct {
		err    error
		status int
		want   wireError
	}{
		{berth.Invalid("a.b", "no"), 400, wireError{"no", invalid, orNull("a.b"), nil}},
		{&berth.Error{Code: berth.CodeInvalid, Message: "no", Wire: "own"}, 400, wireError{"no", invalid, nil, orNull("own")}},
		{berth.Errorf(berth.CodeUnauthorized, "no"), 401, wireError{"no", invalid, nil, nil}},
		{berth.Errorf(berth.CodeForbidden, "no"), 403, wireError{"no", invalid, nil, nil}},
		{berth.Errorf(berth.CodeNotFound, "no"), 404, wireError{"no", invalid, nil, nil}},
		{berth.Errorf(berth.CodeConflict, "no"), 409, wireError{"no", invalid, nil, orNull("conflict")}},
		{berth.Errorf(berth.CodeTooLarge, "no"), 413, wireError{"no", invalid, nil, orNull("request_too_large")}},
		{berth.Errorf(berth.CodeRateLimited, "no"), 429, wireError{"no", "rate_limit_error", nil, orNull("rate_limit_exceeded")}},
		{berth.Errorf(berth.CodeUpstream, "no"), 502, wireError{"no", "server_error", nil, orNull("upstream_error")}},
		{berth.Errorf(berth.CodeUnavailable, "no"), 503, wireError{"no", "server_error", nil, orNull("unavailable")}},
		{fmt.Errorf("wrapped: %w", berth.Errorf(berth.CodeNotFound, "no")), 404, wireError{"no", invalid, nil, nil}},
		{fmt.Errorf("wrapped: %w", store.ErrNotFound), 404, wireError{"What was asked for does not exist.", invalid, nil, nil}},
	}
	for _, tt := range tests {
		status, got := describe(tt.err, "req_1")
		if diff := cmp.Diff(tt.want, got); status != tt.status || diff != "" {
			t.Errorf("%v: got status %d, want %d; body (-want +got):\n%s", tt.err, status, tt.status, diff)
		}
	}
	for _, err := range []error{errors.New("secret"), berth.Errorf(berth.CodeInternal, "secret"), &berth.Error{Code: "strange", Message: "odd"}, nil} {
		status, got := describe(err, "req_1")
		if status != 500 || got.Type != "server_error" || strings.Contains(got.Message, "secret") {
			t.Errorf("%v: got %d %+v, want 500 and no word of it", err, status, got)
		}
	}
}

func TestFallbacks(t *testing.T) {
	h := door(t, &keyring{})
	tests := []struct {
		method, path string
		status       int
		body, allow  string
	}{
		{"GET", "/v1/nothing", 404, `{"error":{"message":"Invalid URL (GET /v1/nothing)","type":"invalid_request_error","param":null,"code":null}}`, ""},
		{"GET", "/", 404, `{"error":{"message":"Invalid URL (GET /)","type":"invalid_request_error","param":null,"code":null}}`, ""},
		{"PUT", "/v1/responses", 405, `{"error":{"message":"Invalid method for URL (PUT /v1/responses). Allowed: GET, POST.","type":"invalid_request_error","param":null,"code":"method_not_supported"}}`, "GET, POST"},
		{"PATCH", "/v1/responses/resp_1", 405, `{"error":{"message":"Invalid method for URL (PATCH /v1/responses/resp_1). Allowed: GET, DELETE.","type":"invalid_request_error","param":null,"code":"method_not_supported"}}`, "GET, DELETE"},
		{"PUT", "/v1/responses/input_tokens", 405, `{"error":{"message":"Invalid method for URL (PUT /v1/responses/input_tokens). Allowed: GET, POST, DELETE.","type":"invalid_request_error","param":null,"code":"method_not_supported"}}`, "GET, POST, DELETE"},
		{"GET", "/healthz", 200, `{"status":"ok","version":""}`, ""},
	}
	for _, tt := range tests {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(tt.method, tt.path, nil))
		if w.Code != tt.status || w.Body.String() != tt.body || w.Header().Get("Allow") != tt.allow {
			t.Errorf("%s %s: got %d %s, allow %q, want %d %s, allow %q", tt.method, tt.path, w.Code, w.Body, w.Header().Get("Allow"), tt.status, tt.body, tt.allow)
		}
		if !strings.HasPrefix(w.Header().Get("x-request-id"), "req_") || w.Header().Get("openai-version") != "2020-10-01" || w.Header().Get("openai-processing-ms") == "" {
			t.Errorf("%s %s: headers %v, want x-request-id, openai-version and openai-processing-ms", tt.method, tt.path, w.Header())
		}
	}
}

// handle is a server with one handler behind identification.
func handle(log io.Writer, h handler) http.Handler {
	s := &server{Options: Options{Observer: noObserver{}, Keys: &keyring{}, Log: slog.New(slog.NewJSONHandler(log, nil))}, mux: http.NewServeMux()}
	s.open.keys = s.Keys
	s.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { s.answer(w, r, h) })
	return s
}

func TestLog(t *testing.T) {
	var log bytes.Buffer
	h := handle(&log, func(_ *server, w http.ResponseWriter, _ *http.Request, _ berth.Caller) error {
		return errors.New("disk on fire")
	})
	w := ask(h, "127.0.0.1:5", "localhost", "Authorization", "Bearer sk-secret")
	lines := strings.Split(strings.TrimSpace(log.String()), "\n")
	if len(lines) != 2 || !strings.Contains(lines[0], "disk on fire") {
		t.Fatalf("got log %q, want the error and the request", lines)
	}
	var line map[string]any
	if err := json.Unmarshal([]byte(lines[1]), &line); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"time", "level", "duration"} {
		delete(line, key)
	}
	want := map[string]any{"msg": "request", "method": "GET", "path": "/v1/models", "status": 500.0, "project": "proj_default", "key": "",
		"request_id": w.Header().Get("x-request-id")}
	if diff := cmp.Diff(want, line); diff != "" {
		t.Errorf("line (-want +got):\n%s", diff)
	}
	if !strings.Contains(w.Body.String(), w.Header().Get("x-request-id")) {
		t.Errorf("got %s, want the request id in it", w.Body)
	}
	if strings.Contains(log.String(), "secret") {
		t.Errorf("the log holds a key: %s", &log)
	}
}

func TestPanicBeforeTheAnswer(t *testing.T) {
	var log bytes.Buffer
	w := ask(handle(&log, func(*server, http.ResponseWriter, *http.Request, berth.Caller) error { panic("oh") }), "127.0.0.1:5", "localhost")
	if w.Code != 500 || !strings.Contains(w.Body.String(), `"type":"server_error"`) || strings.Contains(w.Body.String(), "oh") {
		t.Errorf("got %d %s, want 500 in shape", w.Code, w.Body)
	}
	if !strings.Contains(log.String(), `"panic":"oh"`) || !strings.Contains(log.String(), "handle_test.go") {
		t.Errorf("got log %s, want the panic and its stack", &log)
	}
}

// Half an answer must not look like a whole one.
func TestPanicInTheAnswerBreaksTheConnection(t *testing.T) {
	srv := httptest.NewServer(handle(io.Discard, func(_ *server, w http.ResponseWriter, _ *http.Request, _ berth.Caller) error {
		io.WriteString(w, "half")
		http.NewResponseController(w).Flush()
		panic("oh")
	}))
	defer srv.Close()
	resp, err := http.Get(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if body, err := io.ReadAll(resp.Body); err == nil {
		t.Errorf("got %q and no error, want a broken connection", body)
	}
}

// A client's own name for its request is in the log, and not what is none.
func TestClientRequestID(t *testing.T) {
	for id, status := range map[string]int{
		"": 200, "trace-7": 200, strings.Repeat("x", 512): 200,
		strings.Repeat("x", 513): 400, "ünder": 400, "a\tb": 400,
	} {
		var log bytes.Buffer
		h := handle(&log, func(_ *server, w http.ResponseWriter, _ *http.Request, _ berth.Caller) error {
			return writeJSON(w, http.StatusOK, struct{}{})
		})
		w := ask(h, "127.0.0.1:5", "localhost", "X-Client-Request-Id", id)
		if w.Code != status {
			t.Errorf("%.20q: got %d %s, want %d", id, w.Code, w.Body, status)
		}
		want := id != "" && status == http.StatusOK
		if got := strings.Contains(log.String(), `"client_request_id":"`+id+`"`); got != want {
			t.Errorf("%.20q: in the log: %v, want %v: %s", id, got, want, &log)
		}
	}
}
