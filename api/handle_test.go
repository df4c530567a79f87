package api

import (
	"context"
	"crypto/sha256"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/exchange"
	"github.com/berth-run/berth/engine"
	"github.com/berth-run/berth/store"
)

// noKeys is a store without keys.
type noKeys struct{ store.Keys }

func (noKeys) KeyByHash(context.Context, [sha256.Size]byte) (*berth.Key, error) {
	return nil, store.ErrNotFound
}

func (noKeys) KeyOf(context.Context, berth.Caller) (*berth.Key, error) { return nil, berth.ErrNotFound }
func (noKeys) ListKeys(context.Context) ([]*berth.Key, error)          { return nil, nil }

// through serves requests of this machine with one handler.
func through(t *testing.T, limits exchange.Limits, h func(x *exchange.Exchange, r *http.Request) error) http.Handler {
	s := exchange.New(exchange.Options{Keys: noKeys{}, Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
		Limits: limits})
	route := s.Route(exchange.Route{Permission: berth.MayRead, Traits: exchange.ReadsQuery, Handle: func(x *exchange.Exchange, r *http.Request,
		_ berth.Caller) error {
		return h(x, r)
	}})
	return s.Handler(func(x *exchange.Exchange, r *http.Request) { route(x, r) })
}

// decoded runs a handler's decoding of a request and returns its error.
func decoded(r *http.Request, limits exchange.Limits, decode func(x *exchange.Exchange,
	r *http.Request) error) (err error) {
	s := exchange.New(exchange.Options{Keys: noKeys{}, Log: slog.New(slog.DiscardHandler), Limits: limits})
	s.Handler(func(x *exchange.Exchange, r *http.Request) { err = decode(x, r) }).ServeHTTP(httptest.NewRecorder(), r)
	return err
}

func TestFallbacks(t *testing.T) {
	t.Parallel()
	h := New(Options{Engine: &engine.Engine{},
		Exchange: exchange.Options{Keys: noKeys{}, Log: slog.New(slog.NewTextHandler(t.Output(), nil))}})
	tests := []struct {
		method, path string
		status       int
		body, allow  string
	}{
		{"GET", "/v1/nothing", 404,
			`{"error":{"message":"This server does not serve GET /v1/nothing.","type":"invalid_request_error","param":null,"code":null}}`, ""},
		{"POST", "/v1/completions", 404,
			`{"error":{"message":"This server does not serve POST /v1/completions.","type":"invalid_request_error","param":null,"code":null}}`, ""},
		{"GET", "/nonesuch", 404,
			`{"error":{"message":"This server does not serve GET /nonesuch.","type":"invalid_request_error","param":null,"code":null}}`, ""},
		{"PUT", "/v1/responses", 405,
			`{"error":{"message":"Invalid method for URL (PUT /v1/responses). Allowed: GET, POST.","type":"invalid_request_error","param":null,"code":"method_not_supported"}}`,
			"GET, POST"},
		{"PATCH", "/v1/responses/resp_1", 405,
			`{"error":{"message":"Invalid method for URL (PATCH /v1/responses/resp_1). Allowed: GET, DELETE.","type":"invalid_request_error","param":null,"code":"method_not_supported"}}`,
			"GET, DELETE"},
		{"PUT", "/v1/responses/input_tokens", 405,
			`{"error":{"message":"Invalid method for URL (PUT /v1/responses/input_tokens). Allowed: GET, POST, DELETE.","type":"invalid_request_error","param":null,"code":"method_not_supported"}}`,
			"GET, POST, DELETE"},
		{"GET", "/healthz", 200, `{"status":"ok","version":""}`, ""},
	}
	for _, tt := range tests {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(tt.method, tt.path, nil))
		if w.Code != tt.status || w.Body.String() != tt.body || w.Header().Get("Allow") != tt.allow {
			t.Errorf("%s %s: got %d %s, allow %q, want %d %s, allow %q", tt.method, tt.path, w.Code, w.Body,
				w.Header().Get("Allow"), tt.status, tt.body, tt.allow)
		}
		if !strings.HasPrefix(w.Header().Get("x-request-id"), "req_") ||
			w.Header().Get("openai-version") != "2020-10-01" || w.Header().Get("openai-processing-ms") == "" {
			t.Errorf("%s %s: headers %v, want x-request-id, openai-version and openai-processing-ms", tt.method,
				tt.path, w.Header())
		}
	}
}
