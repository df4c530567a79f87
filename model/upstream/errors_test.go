package upstream

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/model"
)

func TestRefusals(t *testing.T) {
	tests := []struct {
		name   string
		status int
		body   string
		want   berth.Error
	}{
		{"OpenAI", 400,
			`{"error":{"message":"Too hot.","type":"invalid_request_error","param":"temperature","code":null}}`,
			berth.Error{Code: berth.CodeInvalid, Message: "Too hot.", Param: "temperature"}},
		{"older vLLM", 400, `{"object":"error","message":"Too long.","type":"BadRequestError","param":null,"code":400}`,
			berth.Error{Code: berth.CodeInvalid, Message: "Too long."}},
		{"FastAPI", 422, `{"detail":[{"loc":["body","messages"],"msg":"field required"}]}`,
			berth.Error{Code: berth.CodeInvalid, Message: `[{"loc":["body","messages"],"msg":"field required"}]`}},
		{"FastAPI, short form", 400, `{"detail":"No."}`, berth.Error{Code: berth.CodeInvalid, Message: "No."}},
		{"Ollama", 400, `{"error":"No."}`, berth.Error{Code: berth.CodeInvalid, Message: "No."}},
		{"no body", 400, ``,
			berth.Error{Code: berth.CodeInvalid, Message: "The model's server refused the request (400)."}},
		{"fields of other types", 400, `{"error":{"message":"No.","param":{},"code":[1]}}`,
			berth.Error{Code: berth.CodeInvalid, Message: "No.", Wire: "[1]"}},
		{"Ollama's unknown model", 404,
			`{"error":{"message":"model \"m-1\" not found, try pulling it first","code":null}}`,
			berth.Error{Code: berth.CodeNotFound, Param: "model", Wire: "model_not_found",
				Message: "The model `m-1` does not exist or you do not have access to it."}},
		{"a wrong path", 404, `404 page not found`, berth.Error{Code: berth.CodeUnavailable, Wire: "upstream_refused",
			Message: "The model's server refused Berth's request (404)."}},
		{"an exhausted quota", 429,
			`{"error":{"message":"You exceeded your current quota.","code":"insufficient_quota"}}`,
			berth.Error{Code: berth.CodeUnavailable, Wire: "upstream_refused",
				Message: "The model's server has no quota left."}},
		{"a redirect", 302, ``, berth.Error{Code: berth.CodeUnavailable, Wire: "upstream_refused",
			Message: "The model's server refused Berth's request (302)."}},
		{"in the stream, with a status", 0, `{"error":{"message":"Slow down.","code":429}}`,
			berth.Error{Code: berth.CodeRateLimited, Message: "Slow down."}},
		{"in the stream, with a name", 0, `{"error":{"message":"Too long.","code":"context_length_exceeded"}}`,
			berth.Error{Code: berth.CodeInvalid, Message: "Too long.", Wire: "context_length_exceeded",
				Param: "input"}},
		{"vLLM's window", 400,
			`{"error":{"message":"This model's maximum context length is 16 tokens.","type":"BadRequestError","param":null,"code":400}}`,
			berth.Error{Code: berth.CodeInvalid, Message: "This model's maximum context length is 16 tokens.",
				Wire: "context_length_exceeded", Param: "input"}},
		{"in the stream, without details", 0, `{"error":{}}`,
			berth.Error{Code: berth.CodeUpstream, Message: "The model's server failed."}},
	}
	u := &Upstream{secrets: strings.NewReplacer()}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := &Refusal{Status: tt.status, Body: []byte(tt.body)}
			got, ok := errors.AsType[*berth.Error](u.Refused(r, Explain, "m-1"))
			if !ok {
				t.Fatal("not a *berth.Error")
			}
			shown := *got
			shown.Err = nil // for the log
			if diff := cmp.Diff(tt.want, shown); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestNamesTheUpstream: the client's error names the upstream that lacks the model or
// refuses the key, without the upstream's message about the key.
func TestNamesTheUpstream(t *testing.T) {
	u := &Upstream{Options: Options{Name: "local"}, secrets: strings.NewReplacer()}
	for status, want := range map[int]string{
		401: "The upstream 'local' refused the API key configured for it (401).",
		402: "The upstream 'local' requires payment (402).",
		404: "The model `m-1` does not exist or you do not have access to it. The upstream 'local' does not have it.",
		500: "The upstream 'local' failed (500).",
	} {
		err := u.Refused(&Refusal{Status: status, Body: []byte(`{"error":{"message":"no m-1 for sk-123"}}`)}, Explain,
			"m-1")
		if e, ok := errors.AsType[*berth.Error](err); !ok || e.Message != want {
			t.Errorf("%d: got %v, want %q", status, err, want)
		}
	}
}

func TestLongMessagesAreCut(t *testing.T) {
	u := &Upstream{secrets: strings.NewReplacer()}
	if got := u.Show(strings.Repeat("é", maxMessage)); len(got) > maxMessage || strings.Trim(got, "é") != "" {
		t.Errorf("got %d bytes, %q is invalid", len(got), strings.Trim(got, "é"))
	}
}

func TestRetryAfter(t *testing.T) {
	in := func(d time.Duration) string { return time.Now().Add(d).UTC().Format(http.TimeFormat) }
	tests := []struct {
		header http.Header
		low    time.Duration
		high   time.Duration
		ok     bool
	}{
		{nil, 0, 0, false},
		{http.Header{"Retry-After": {"7"}}, 7 * time.Second, 7 * time.Second, true},
		{http.Header{"Retry-After": {"0.5"}}, time.Second / 2, time.Second / 2, true},
		{http.Header{"Retry-After": {"9"}, "Retry-After-Ms": {"250"}}, time.Second / 4, time.Second / 4, true},
		{http.Header{"Retry-After": {in(time.Minute)}}, 50 * time.Second, time.Minute, true},
		{http.Header{"Retry-After": {in(-time.Minute)}}, 0, 0, true},
		{http.Header{"Retry-After": {"1e300"}}, maxWaitTime, maxWaitTime, true},
		{http.Header{"Retry-After": {"-1"}}, 0, 0, false},
		{http.Header{"Retry-After": {"NaN"}}, 0, 0, false},
		{http.Header{"Retry-After": {"soon"}}, 0, 0, false},
	}
	for _, tt := range tests {
		if d, ok := retryAfter(tt.header); ok != tt.ok || d < tt.low || d > tt.high {
			t.Errorf("%v: got %v, %v, want %v to %v, %v", tt.header, d, ok, tt.low, tt.high, tt.ok)
		}
	}
	u := &Upstream{secrets: strings.NewReplacer()}
	err := u.Refused(&Refusal{Status: 429, Header: http.Header{"Retry-After": {"7"}}}, Explain, "")
	if d, ok := model.RetryAfter(err); !ok || d != 7*time.Second || berth.ErrorCode(err) != berth.CodeRateLimited {
		t.Errorf("got %v, %v, %v", d, ok, err)
	}
	err = u.Refused(&Refusal{Status: 429}, func(*Refusal) Complaint {
		return Complaint{RetryAfter: 9 * time.Second}
	}, "")
	if d, ok := model.RetryAfter(err); !ok || d != 9*time.Second {
		t.Errorf("delay in the body: got %v, %v", d, ok)
	}
}
