package api_test

import (
	"strings"
	"testing"

	"github.com/berth-run/berth/model"
	"github.com/berth-run/berth/model/modeltest"
)

// Reasoning of an upstream is returned to it by a client that stores items itself and drops
// unknown fields, as coding agents do.
func TestEncryptedReasoningOverChat(t *testing.T) {
	t.Parallel()
	rule, double := chatRule(t, 0, modeltest.Play(
		modeltest.Reply(model.Thought{Text: "I should look."}, model.Call{ID: "call_1", Name: "look", Arguments: "{}"},
			model.Finish{Reason: model.FinishStop}),
		finished("found")))
	double.Reasoning = "reasoning_content"
	h := newHouse(t, nil, rule)
	const head = `{"model":"chat","store":false,"include":["reasoning.encrypted_content"],"tools":[{"type":"function","name":"look","strict":false,"parameters":{"type":"object","properties":{}}}],"input":[{"role":"user","content":"find it"}`
	first := h.call(200, "POST", "/v1/responses", head+"]}")
	sealed, _ := first.at("output", 0, "encrypted_content").(string)
	if sealed == "" || strings.Contains(sealed, "look") {
		t.Fatalf("got %v", first["output"])
	}
	second := h.call(200, "POST", "/v1/responses",
		head+`,{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"`+sealed+`"},`+
			marshal(t, first.at("output", 1))+`,{"type":"function_call_output","call_id":"call_1","output":"here"}]}`)
	if second["status"] != "completed" {
		t.Errorf("got %v", second)
	}
	if got := double.Requests()[1].Messages[1]; got.Thought != "I should look." || len(got.Calls) != 1 {
		t.Errorf("the upstream heard %+v", got)
	}
	altered := strings.Replace(sealed, sealed[10:14], "AAAA", 1)
	if e := h.call(400, "POST", "/v1/responses",
		head+`,{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"`+altered+`"}]}`); e.at("error",
		"code") != "invalid_encrypted_content" {
		t.Errorf("got %v", e)
	}
}
