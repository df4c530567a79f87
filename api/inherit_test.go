package api_test

import (
	"strings"
	"testing"

	"github.com/berth-run/berth/model"
)

// A request that inherits has the fields of the one before, and its own win.
func TestInherit(t *testing.T) {
	t.Parallel()
	calls := func(command string) []any {
		return []any{model.Call{ID: "call_" + command, Name: "shell"}, model.Call{Arguments: `{"commands":["` +
			command + `"]}`}, model.Finish{Reason: model.FinishStop}}
	}
	says := []any{model.Text{Text: "done"}, model.Finish{Reason: model.FinishStop}}
	played := &playedModel{turns: [][]any{calls("touch made"), says, calls("rm made"), says}}
	h := newHouse(t, nil, model.Rule{Match: "played", Provider: played}, model.Rule{Match: "other", Provider: played})
	first := h.call(200, "POST", "/v1/responses", `{"model":"played","instructions":"Be brief.","temperature":0.5,"metadata":{"a":"b"},"input":"x",
		"tools":[{"type":"shell","environment":{"type":"container_auto"}}],"berth":{"require_approval":"always","budget":{"max_turns":9}}}`)
	if got := itemTypesOf(first); got != "mcp_approval_request" {
		t.Fatalf("got %s", got)
	}
	approve := func(r object) string {
		return `"previous_response_id":"` + r.id() +
			`","input":[{"type":"mcp_approval_response","approval_request_id":"` + r.at("output", 0, "id").(string) +
			`","approve":true}]`
	}
	second := h.call(200, "POST", "/v1/responses", `{`+approve(first)+`,"berth":{"inherit":true}}`)
	if got := itemTypesOf(second); got != "shell_call shell_call_output message" || second.at("output", 1, "output", 0,
		"outcome", "exit_code") != 0.0 {
		t.Errorf("got %s: %v", got, second.at("output", 1))
	}
	if second.at("model") != "played" || second.at("instructions") != "Be brief." || second.at("temperature") != 0.5 ||
		len(second.at("metadata").(map[string]any)) != 0 {
		t.Errorf("got %v", second)
	}
	// What was inherited is inherited again, approvals too. Fields of the request win.
	third := h.call(200, "POST", "/v1/responses",
		`{"model":"other","temperature":1,"previous_response_id":"`+second.id()+`","input":"y","berth":{"inherit":true,"budget":{"max_turns":3}}}`)
	if got := itemTypesOf(third); got != "mcp_approval_request" || third.at("model") != "other" ||
		third.at("temperature") != 1.0 || third.at("instructions") != "Be brief." {
		t.Errorf("got %s: %v", got, third)
	}
	fourth := h.call(200, "POST", "/v1/responses",
		`{`+approve(third)+`,"berth":{"inherit":true,"require_approval":"never"}}`)
	if got := itemTypesOf(fourth); got != "shell_call shell_call_output message" {
		t.Errorf("got %s", got)
	}

	for request, want := range map[string]string{
		`{"input":"x","berth":{"inherit":true}}`:                                    "Set 'previous_response_id'",
		`{"input":"x","previous_response_id":"resp_none","berth":{"inherit":true}}`: "not found",
		`{"input":"x","previous_response_id":"` + first.id() +
			`","conversation":"conv_1","berth":{"inherit":true}}`: "Mutually exclusive",
		`{"input":"x","previous_response_id":"` + first.id() + `","berth":{"inherit":false}}`: "model",
	} {
		if got := h.call(400, "POST", "/v1/responses", request); !strings.Contains(got.at("error", "message").(string),
			want) {
			t.Errorf("%s: got %v", request, got)
		}
	}
	h.key("sk-other", "proj_other")
	h.call(400, "POST", "/v1/responses",
		`{"input":"x","previous_response_id":"`+first.id()+`","berth":{"inherit":true}}`, "Authorization",
		"Bearer sk-other")
}
