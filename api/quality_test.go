package api_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-run/berth/model"
)

// types are the types of a response's items.
func itemTypesOf(r object) string {
	var all []string
	for _, it := range r["output"].([]any) {
		all = append(all, it.(map[string]any)["type"].(string))
	}
	return strings.Join(all, " ")
}

// Checks and approvals use items that OpenAI's clients know.
func TestExtensions(t *testing.T) {
	t.Parallel()
	call := func(command string) []any {
		return []any{model.Call{ID: "call_1", Name: "shell", Arguments: `{"commands":["` + command + `"]}`},
			model.Finish{Reason: model.FinishStop}}
	}
	says := []any{model.Text{Text: "done"}, model.Finish{Reason: model.FinishStop}}
	played := &playedModel{turns: [][]any{says, call("touch made"), says, says, call("rm made"), says}}
	h := newHouse(t, nil, model.Rule{Match: "played", Provider: played})
	ask := func(status int, rest string) object {
		t.Helper()
		return h.call(status, "POST", "/v1/responses",
			`{"model":"played","tools":[{"type":"shell","environment":{"type":"container_auto"}}],`+rest+`}`)
	}
	r := ask(200, `"input":"x","berth":{"checks":{"commands":["test -e made"]}}`)
	if got := itemTypesOf(r); r.at("status") != "completed" ||
		got != "message shell_call shell_call_output shell_call shell_call_output message shell_call shell_call_output" {
		t.Errorf("got %v with %s", r.at("status"), got)
	}
	if r.at("berth", "template") != "sha256:none" {
		t.Errorf("got %v, want the template's digest", r.at("berth"))
	}
	if got := []any{r.at("output", 1, "berth", "check_round"), r.at("output", 3, "berth"), r.at("output", 6, "berth",
		"check_round")}; !cmp.Equal(got, []any{1.0, nil, 2.0}) {
		t.Errorf("got rounds %v", got)
	}
	made := map[string]any{"files": []any{map[string]any{"path": "/mnt/data/made", "type": "created", "bytes": 0.0}}}
	if diff := cmp.Diff([]any{nil, made}, []any{r.at("output", 2, "berth"), r.at("output", 4, "berth")}); diff != "" {
		t.Errorf("what the calls did to files (-want +got):\n%s", diff)
	}
	if r := ask(200, `"input":"x","berth":{"checks":{"commands":["false"],"max_rounds":1}}`); r.at(
		"status") != "incomplete" || r.at("incomplete_details", "reason") != "checks_failed" {
		t.Errorf("got %v, %v", r.at("status"), r.at("incomplete_details"))
	}
	r = ask(200, `"input":"x","previous_response_id":"`+r.id()+`","berth":{"require_approval":"always"}`)
	if got := itemTypesOf(r); got != "mcp_approval_request" || r.at("status") != "completed" {
		t.Fatalf("got %v with %s", r.at("status"), got)
	}
	answer := `"input":[{"type":"mcp_approval_response","approval_request_id":"` + r.at("output", 0, "id").(string) +
		`","approve":true}],"previous_response_id":"` + r.id() + `"`
	h.call(400, "POST", "/v1/responses", `{"model":"played",`+answer+`}`) // nowhere to run it
	r = ask(200, answer+`,"berth":{"require_approval":"always"}`)
	if got := itemTypesOf(r); got != "shell_call shell_call_output message" || r.at("output", 1, "output", 0, "outcome",
		"exit_code") != 0.0 {
		t.Errorf("got %s, %v", got, r.at("output", 1))
	}
	items := h.call(200, "GET", "/v1/responses/"+r.id()+"/input_items", nil)
	if items.at("data", 0, "type") != "mcp_approval_response" || items.at("data", 0, "approve") != true {
		t.Errorf("input items: %v", items)
	}
	for _, wrong := range []string{`{"checks":{}}`, `{"inherit":1}`, `{"checks":{"commands":[]}}`,
		`{"budget":{"max_turns":0}}`, `{"require_approval":"sometimes"}`,
		`{"require_approval":{"always":{"tool_names":["x"]}}}`, `{"approvals":1}`} {
		ask(400, `"input":"x","berth":`+wrong)
	}
}
