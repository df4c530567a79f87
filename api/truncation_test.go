package api_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/berth-run/berth/model"
	"github.com/berth-run/berth/model/chat"
	"github.com/berth-run/berth/model/modeltest"
	"github.com/berth-run/berth/model/upstream"
)

// chatRule sends the model "chat" to a double of Chat Completions.
func chatRule(t *testing.T, window int, script modeltest.Script) (model.Rule, *modeltest.ChatHandler) {
	t.Helper()
	double := modeltest.NewChatServer(t, script)
	p, err := chat.New(chat.Options{Options: upstream.Options{BaseURL: double.URL}, Reasoning: "reasoning_content"})
	check(t, err)
	return model.Rule{Match: "chat", Provider: p, Window: window}, double
}

// If an upstream reports its context window in its own words, the request is retried with
// less, if the client allows that. Otherwise, the client gets OpenAI's error code.
func TestTruncationOverChat(t *testing.T) {
	t.Parallel()
	tooLong := modeltest.Turn{Refusal: &modeltest.Refusal{Status: http.StatusBadRequest, Code: "400",
		Message: "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens."}}
	input := `[{"role":"user","content":"` + strings.Repeat("old ", 900) +
		`"},{"role":"assistant","content":"yes"},{"role":"user","content":"new"}]`
	answer := modeltest.Reply(model.Text{Text: "fine"}, model.Finish{Reason: model.FinishStop})

	rule, double := chatRule(t, 0, modeltest.Play(tooLong, answer))
	h := newHouse(t, nil, rule)
	got := h.call(200, "POST", "/v1/responses", `{"model":"chat","truncation":"auto","input":`+input+`}`)
	if got["status"] != "completed" || got["truncation"] != "auto" {
		t.Errorf("got %v", got)
	}
	if heard := double.Requests(); len(heard) != 2 || len(heard[1].Messages) != 1 ||
		heard[1].Messages[0].Text != "new" {
		t.Errorf("the upstream got %d requests, last %+v", len(heard), heard[len(heard)-1].Messages)
	}

	rule, _ = chatRule(t, 0, modeltest.Play(tooLong))
	h = newHouse(t, nil, rule)
	got = h.call(400, "POST", "/v1/responses", `{"model":"chat","input":`+input+`}`)
	if got.at("error", "code") != "context_length_exceeded" {
		t.Errorf("got %v", got)
	}

	rule, double = chatRule(t, 100, modeltest.Play(answer))
	h = newHouse(t, nil, rule)
	got = h.call(400, "POST", "/v1/responses", `{"model":"chat","input":`+input+`}`)
	if got.at("error", "code") != "context_length_exceeded" || got.at("error", "type") != "invalid_request_error" ||
		len(double.Requests()) != 0 {
		t.Errorf("got %v", got)
	}
}
