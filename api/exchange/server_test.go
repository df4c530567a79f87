package exchange

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-run/berth"
)

// handle is a server with one handler behind identification.
func handle(log io.Writer, h Handler) http.Handler {
	return handleWith(Options{Log: slog.New(slog.NewJSONHandler(log, nil))}, h)
}

// handleWith is a server with these options and one handler.
func handleWith(opts Options, h Handler) http.Handler {
	if opts.Keys == nil {
		opts.Keys = &keyring{}
	}
	s := New(opts)
	return s.Handler(func(x *Exchange, r *http.Request) { s.Route(Route{Handle: h, Permission: berth.MayRead})(x, r) })
}

func TestLog(t *testing.T) {
	var log bytes.Buffer
	h := handle(&log, func(*Exchange, *http.Request, berth.Caller) error {
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
	want := map[string]any{"msg": "request", "method": "GET", "path": "/v1/models", "status": 500.0,
		"project": "proj_default", "key": "",
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

// Successful reads are logged at debug level, everything else at info.
func TestLogLevel(t *testing.T) {
	for _, c := range []struct {
		method, path string
		status       int
		want         slog.Level
	}{{"GET", "/v1/models", 200, slog.LevelDebug}, {"HEAD", "/v1/models", 304, slog.LevelDebug},
		{"GET", "/v1/responses", 101, slog.LevelInfo},
		{"GET", "/v1/models", 404, slog.LevelInfo}, {"GET", "/v1/models", 503, slog.LevelInfo},
		{"POST", "/v1/responses", 200, slog.LevelInfo},
		{"DELETE", "/v1/files/f", 200, slog.LevelInfo}, {"POST", "/v1/containers/c/guest/filesystem.Filesystem/Stat",
			200, slog.LevelDebug},
		{"POST", "/v1/containers/c/guest/filesystem.Filesystem/Stat", 404, slog.LevelInfo},
		{"POST", "/v1/containers/c/guest/process.Process/Start", 200, slog.LevelInfo}} {
		if got := logLevel(httptest.NewRequest(c.method, c.path, nil), c.status); got != c.want {
			t.Errorf("%s %s %d: got %v", c.method, c.path, c.status, got)
		}
	}
}

func TestPanicBeforeTheAnswer(t *testing.T) {
	var log bytes.Buffer
	w := ask(handle(&log, func(*Exchange, *http.Request, berth.Caller) error {
		panic("oh")
	}), "127.0.0.1:5", "localhost")
	if w.Code != 500 || !strings.Contains(w.Body.String(), `"type":"server_error"`) || strings.Contains(w.Body.String(),
		"oh") {
		t.Errorf("got %d %s, want 500 in shape", w.Code, w.Body)
	}
	if !strings.Contains(log.String(), `"panic":"oh"`) || !strings.Contains(log.String(), "server_test.go") {
		t.Errorf("got log %s, want the panic and its stack", &log)
	}
}

// A partial answer must not look complete.
func TestPanicInTheAnswerBreaksTheConnection(t *testing.T) {
	srv := httptest.NewServer(handle(io.Discard, func(x *Exchange, _ *http.Request, _ berth.Caller) error {
		io.WriteString(x, "half")
		http.NewResponseController(x).Flush()
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

// A client's valid request id is logged, an invalid one is not.
func TestClientRequestID(t *testing.T) {
	for id, status := range map[string]int{
		"": 200, "trace-7": 200, strings.Repeat("x", 512): 200,
		strings.Repeat("x", 513): 400, "ünder": 400, "a\tb": 400,
	} {
		var log bytes.Buffer
		h := handle(&log, func(x *Exchange, _ *http.Request, _ berth.Caller) error {
			return x.JSON(http.StatusOK, struct{}{})
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
