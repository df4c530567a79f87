package api_test

import (
	"strings"
	"testing"

	"github.com/berth-run/berth"
)

func TestInputTokens(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	count := func(body string) float64 {
		t.Helper()
		got := h.call(200, "POST", "/v1/responses/input_tokens", body)
		if len(got) != 2 || got["object"] != "response.input_tokens" {
			t.Fatalf("got %v", got)
		}
		return got["input_tokens"].(float64)
	}
	hi := count(`{"model":"vendor/fed","input":"hi"}`)
	if hi < 2 || hi > 12 {
		t.Errorf("got %v tokens for a word", hi)
	}
	if got := count(`{"input":"hi"}`); got != hi {
		t.Errorf("without a model: got %v tokens, want %v", got, hi)
	}
	for name, fields := range map[string]string{
		"instructions": `"instructions":"Answer in one word."`,
		"function":     `"tools":[{"type":"function","name":"f","parameters":{"type":"object","properties":{"path":{"type":"string"}}}}]`,
		"shell":        `"tools":[{"type":"shell","environment":{"type":"container_auto"}}],"tool_choice":{"type":"shell"},"parallel_tool_calls":false`,
		"format":       `"text":{"format":{"type":"json_schema","name":"a","schema":{"type":"object"}}}`,
	} {
		if got := count(`{"input":"hi",` + fields + `}`); got <= hi {
			t.Errorf("%s: got %v tokens, which is not above %v", name, got, hi)
		}
	}
	if got := count(
		`{"input":"hi","truncation":"auto","reasoning":{"effort":"low"},"text":{"verbosity":"low"},"model":null}`); got != hi {
		t.Errorf("with fields that are no context: got %v tokens, want %v", got, hi)
	}
	// The count of a provider equals the tokens that it charges.
	used := h.call(200, "POST", "/v1/responses",
		`{"model":"scripted","input":"one two three","instructions":"Be brief."}`)
	if got := count(`{"model":"scripted","input":"one two three","instructions":"Be brief."}`); got != used.at("usage",
		"input_tokens") {
		t.Errorf("got %v tokens, and a response uses %v", got, used.at("usage", "input_tokens"))
	}
	if page := h.call(200, "GET", "/v1/containers", nil); len(page.at("data").([]any)) != 0 {
		t.Errorf("counting made a container: %v", page)
	}
}

// The context of a chain is counted, and a chain of another project is not found.
func TestInputTokensOfChain(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	h.key("sk-one", "proj_one")
	long := strings.Repeat("a word ", 500)
	first := h.call(200, "POST", "/v1/responses", `{"model":"scripted","input":"`+long+`"}`)
	got := h.call(200, "POST", "/v1/responses/input_tokens",
		`{"model":"vendor/fed","previous_response_id":"`+first.id()+`","input":"go on"}`)
	if n := got["input_tokens"].(float64); n < 1000 {
		t.Errorf("got %v tokens, want those of the chain as well", n)
	}
	h.key("sk-two", berth.ProjectID("proj_two"))
	refused := h.call(400, "POST", "/v1/responses/input_tokens", `{"previous_response_id":"`+first.id()+`"}`)
	if refused.at("error", "code") != "previous_response_not_found" {
		t.Errorf("got %v", refused)
	}
}

func TestInputTokensRefused(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	for body, want := range map[string]string{
		`{"model":"missing","input":"hi"}`:           "model_not_found",
		`{"input":"hi","personality":"friendly"}`:    "unsupported_parameter",
		`{"input":"hi","max_output_tokens":100}`:     "unknown_parameter",
		`{"input":"hi","truncation":"sometimes"}`:    "invalid_value",
		`{"input":[{"role":"user","content":true}]}`: "invalid_type",
	} {
		status := 400
		if want == "model_not_found" {
			status = 404
		}
		if got := h.call(status, "POST", "/v1/responses/input_tokens", body); got.at("error", "code") != want {
			t.Errorf("%s: got %v, want %s", body, got, want)
		}
	}
}
