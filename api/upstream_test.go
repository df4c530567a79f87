package api_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/berth-run/berth/model"
	"github.com/berth-run/berth/model/modeltest"
)

// Failures of an upstream are reported as at OpenAI: with the HTTP status of a plain answer,
// with events in a stream.
func TestUpstreamFailures(t *testing.T) {
	t.Parallel()
	refuse := func(status int, code, message string) modeltest.Turn {
		return modeltest.Turn{Refusal: &modeltest.Refusal{Status: status, Code: code, Message: message}}
	}
	for name, c := range map[string]struct {
		turn       modeltest.Turn
		status     int
		kind, code string
	}{
		"too many requests": {refuse(429, "rate_limit_exceeded", "slow down"), 429, "rate_limit_error",
			"rate_limit_exceeded"},
		"down":    {refuse(503, "", "no capacity"), 502, "server_error", "server_error"},
		"refused": {refuse(400, "", "temperature is too high"), 400, "invalid_request_error", "invalid_prompt"},
		"cut":     {modeltest.Reply(model.Text{Text: "half"}, modeltest.Cut{}), 502, "server_error", "server_error"},
		"malformed": {modeltest.Reply(model.Text{Text: "half"}, modeltest.Malformed{}), 502, "server_error",
			"server_error"},
		"fault": {modeltest.Reply(modeltest.Fault{Code: "oops", Message: "it broke"}), 502, "server_error",
			"server_error"},
		"no end": {modeltest.Reply(model.Text{Text: "half"}), 502, "server_error", "server_error"},
		"wrong key": {refuse(401, "invalid_api_key", "Incorrect API key sk-secret."), 502, "server_error",
			"upstream_refused"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rule, _ := chatRule(t, 0, func(int, *modeltest.Request) modeltest.Turn { return c.turn })
			h := newHouse(t, nil, rule)
			e := h.call(c.status, "POST", "/v1/responses", `{"model":"chat","input":"x"}`)
			if e.at("error", "type") != c.kind || e.at("error", "code") != c.code {
				t.Errorf("plain: got %v, want %s %s", e, c.kind, c.code)
			}
			message, _ := e.at("error", "message").(string)
			if strings.Contains(message, "sk-secret") || message == "" {
				t.Errorf("plain: the message is %q", message)
			}
			events := h.rest(h.stream(t.Context(), "POST", "/v1/responses",
				`{"model":"chat","input":"x","stream":true}`))
			var types []string
			for _, ev := range events[len(events)-2:] {
				types = append(types, ev.Type)
			}
			if strings.Join(types, " ") != "error response.failed" {
				t.Errorf("stream: ends with %v", types)
			}
		})
	}
}

// A failed response that has made calls is an answer, not an error: a retry would repeat the
// calls.
func TestFailureAfterACall(t *testing.T) {
	t.Parallel()
	call := modeltest.Reply(model.Call{ID: "call_1", Name: "shell", Arguments: `{"commands":["true"]}`},
		model.Finish{Reason: model.FinishStop})
	broken := modeltest.Turn{Refusal: &modeltest.Refusal{Status: http.StatusBadRequest, Message: "no more"}}
	rule, _ := chatRule(t, 0, modeltest.Play(call, broken))
	h := newHouse(t, nil, rule)
	r := h.call(200, "POST", "/v1/responses",
		`{"model":"chat","input":"x","tools":[{"type":"shell","environment":{"type":"container_auto"}}]}`)
	if r["status"] != "failed" || r.at("error", "message") == nil || r.at("output", 1, "type") != "shell_call_output" {
		t.Errorf("got %v", r)
	}
}
