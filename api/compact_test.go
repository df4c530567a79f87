package api_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/berth-run/berth/model"
	"github.com/berth-run/berth/model/modeltest"
)

func finished(text string) modeltest.Turn {
	return modeltest.Reply(model.Text{Text: text}, model.Finish{Reason: model.FinishStop})
}

// marshal is a part of an answer as JSON, to be sent back.
func marshal(t *testing.T, v any) string {
	t.Helper()
	raw, err := json.Marshal(v)
	check(t, err)
	return string(raw)
}

// A compaction in the stream, and the response that continues it from there.
func TestCompactionOverChat(t *testing.T) {
	t.Parallel()
	rule, double := chatRule(t, 0, modeltest.Play(finished("an answer"), finished("SUM"), finished("more")))
	h := newHouse(t, nil, rule)
	r := h.stream(t.Context(), "POST", "/v1/responses", `{"model":"chat","stream":true,"instructions":"Be brief.",
		"context_management":[{"type":"compaction","compact_threshold":1000}],"input":"`+strings.Repeat("old ", 1500)+`"}`)
	var kinds []string
	var last object
	for {
		ev, err := r.Next()
		if err != nil {
			break
		}
		last = nil
		check(t, json.Unmarshal([]byte(ev.Data), &last))
		kinds = append(kinds, last["type"].(string))
	}
	want := []string{"response.output_item.done", "response.output_item.added", "response.output_item.done",
		"response.completed"}
	if got := kinds[len(kinds)-4:]; !slices.Equal(got, want) {
		t.Errorf("the stream ends with %v, want %v", got, want)
	}
	if kind := last.at("response", "output", 1, "type"); kind != "compaction" {
		t.Errorf("got %v", last)
	}
	next := h.call(200, "POST", "/v1/responses", `{"model":"chat","previous_response_id":"`+last.at("response",
		"id").(string)+`","input":"go on"}`)
	if next["status"] != "completed" {
		t.Errorf("got %v", next)
	}
	heard := double.Requests()
	if sum := heard[1]; sum.System != "Be brief." || !strings.Contains(sum.Messages[len(sum.Messages)-1].Text,
		"summary") {
		t.Errorf("the request of the summary is %+v", sum)
	}
	var seen []string
	for _, m := range heard[2].Messages {
		seen = append(seen, m.Role+" "+m.Text[max(0, len(m.Text)-5):])
	}
	if want := []string{"user old ", "user SUM", "user go on"}; len(seen) != 3 || seen[2] != "user go on" ||
		!strings.HasSuffix(seen[1], "SUM") {
		t.Errorf("the next turn saw %q, want %q", seen, want)
	}
}

func TestCompactResponse(t *testing.T) {
	t.Parallel()
	rule, double := chatRule(t, 0, modeltest.Play(finished("SUM"), finished("done")))
	h := newHouse(t, nil, rule)
	h.key("sk-one", "proj_one")
	first := h.call(200, "POST", "/v1/responses", `{"model":"scripted","input":"a task"}`)
	got := h.call(200, "POST", "/v1/responses/compact",
		`{"model":"chat","previous_response_id":"`+first.id()+`","input":"go on","instructions":null}`)
	if got["object"] != "response.compaction" || !strings.HasPrefix(got.id(), "resp_") ||
		got.at("usage", "total_tokens") == nil {
		t.Errorf("got %v", got)
	}
	if got.at("output", 0, "content", 0, "text") != "a task" || got.at("output", 1, "content", 0, "text") != "go on" ||
		got.at("output", 2, "type") != "compaction" {
		t.Errorf("got %v", got["output"])
	}
	window := marshal(t, got["output"])
	window = window[:len(window)-1] + `,{"role":"user","content":"and now?"}]`
	if tokens := h.call(200, "POST", "/v1/responses/input_tokens", `{"input":`+window+`}`)["input_tokens"].(float64); tokens < 20 {
		t.Errorf("the window has %v tokens", tokens)
	}
	h.call(200, "POST", "/v1/responses", `{"model":"chat","store":false,"input":`+window+`}`)
	messages := double.Requests()[1].Messages
	if len(messages) != 4 || !strings.HasSuffix(messages[2].Text, "SUM") || messages[3].Text != "and now?" {
		t.Errorf("the model saw %+v", messages)
	}

	h.key("sk-two", "proj_two")
	for _, path := range []string{"/v1/responses", "/v1/responses/compact", "/v1/responses/input_tokens"} {
		if e := h.call(400, "POST", path, `{"model":"chat","input":`+window+`}`); e.at("error", "code") != "invalid_encrypted_content" || e.at("error", "type") != "invalid_request_error" {
			t.Errorf("%s: another project's: got %v", path, e)
		}
		if e := h.call(400, "POST", path, `{"model":"chat","input":"x","previous_response_id":"`+first.id()+`"}`); e.at("error", "code") != "previous_response_not_found" {
			t.Errorf("%s: another project's chain: got %v", path, e)
		}
	}
}

func TestCompactionRefused(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	for _, tt := range []struct{ path, body, code, param string }{
		{"/v1/responses/compact", `{"model":"scripted"}`, "missing_required_parameter", "input"},
		{"/v1/responses/compact", `{"input":"x"}`, "missing_required_parameter", "model"},
		{"/v1/responses/compact", `{"model":"scripted","input":"x","temperature":1}`, "unknown_parameter", "temperature"},
		{"/v1/responses", `{"model":"scripted","input":"x","context_management":[{"type":"compaction","compact_threshold":999}]}`, "integer_below_min_value", "context_management[0].compact_threshold"},
		{"/v1/responses", `{"model":"scripted","input":"x","context_management":[{"type":"magic"}]}`, "invalid_value", "context_management[0].type"},
		{"/v1/responses", `{"model":"scripted","input":[{"type":"compaction"}]}`, "missing_required_parameter", "input[0].encrypted_content"},
		{"/v1/responses", `{"model":"scripted","input":[{"type":"compaction_trigger"},{"role":"user","content":"x"}]}`, "", "input[0]"},
	} {
		got := h.call(400, "POST", tt.path, tt.body)
		if code, _ := got.at("error", "code").(string); code != tt.code || got.at("error", "param") != tt.param {
			t.Errorf("%s: got %v, want %s at %s", tt.body, got, tt.code, tt.param)
		}
	}
	if got := h.call(404, "POST", "/v1/responses/compact", `{"model":"missing","input":"x"}`); got.at("error", "code") != "model_not_found" {
		t.Errorf("got %v", got)
	}
}
