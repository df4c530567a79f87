package console

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/berth-run/berth"
)

// TestTask: a request has all fields of the form, and what a response was asked for fills the form again, without
// its secrets.
func TestTask(t *testing.T) {
	form := task{Model: "m", Text: "Push it", Instructions: "Be brief.", Effort: "low", Temperature: "0.5",
		Tools: []string{berth.ToolShell, berth.ToolCode, berth.ToolFileSearch}, Approve: true, Store: "vs_1",
		Hosts: "a.example, *.b.example", Template: "node", Memory: "4g", SkillIDs: []string{"skill_1"},
		SecretName: "TOKEN", SecretHost: "c.example", secret: "hunter2", MCPLabel: "docs", MCPURL: "https://mcp.example",
		Checks: "go test\n\n go vet \n", MaxTurns: "7", MaxTime: "60", MaxCost: "0.25"}
	raw, err := json.Marshal(form.request([]berth.FileID{"file-1"}))
	if err != nil {
		t.Fatal(err)
	}
	const container = `"berth":{"template":"node"},"file_ids":["file-1"],"memory_limit":"4g","network_policy":{"type":"allowlist",` +
		`"allowed_domains":["a.example","*.b.example","c.example"],"domain_secrets":[{"domain":"c.example","name":"TOKEN","value":"hunter2"}]}`
	const want = `{"berth":{"budget":{"max_cost":0.25,"max_seconds":60,"max_turns":7},"checks":{"commands":["go test","go vet"]},` +
		`"require_approval":"always"},"input":"Push it","instructions":"Be brief.","model":"m","reasoning":{"effort":"low"},"temperature":0.5,` +
		`"tools":[{"environment":{` + container + `,"skills":[{"skill_id":"skill_1","type":"skill_reference"}],"type":"container_auto"},"type":"shell"},` +
		`{"container":{` + container + `,"type":"auto"},"type":"code_interpreter"},{"type":"file_search","vector_store_ids":["vs_1"]},` +
		`{"server_label":"docs","server_url":"https://mcp.example","type":"mcp"}]}`
	if string(raw) != want {
		t.Errorf("got\n%s\nwant\n%s", raw, want)
	}

	var turn turnView
	stored := map[string]any{"model": "m", "instructions": "Be brief.", "reasoning": map[string]any{"effort": "low"}}
	var req struct{ Tools json.RawMessage }
	if err := json.Unmarshal(raw, &req); err != nil {
		t.Fatal(err)
	}
	stored["tools"] = req.Tools
	if raw, err = json.Marshal(stored); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(raw, &turn.Response); err != nil {
		t.Fatal(err)
	}
	again := taskOfTurn(&turn)
	if !slices.Equal(again.Tools, form.Tools) || again.Store != "vs_1" || again.Template != "node" || again.Memory != "4g" ||
		again.Hosts != "a.example *.b.example c.example" || !slices.Equal(again.SkillIDs, form.SkillIDs) ||
		again.MCPURL != form.MCPURL || again.Instructions != "Be brief." || again.Effort != "low" || again.secret != "" {
		t.Errorf("the form is filled with %+v", again)
	}
}

// TestTaskOfContainer: a stored response names its container, whose settings fill the form.
func TestTaskOfContainer(t *testing.T) {
	var turn turnView
	const stored = `{"model":"m","tools":[{"type":"shell","environment":{"type":"container_reference","container_id":"cntr_1"}},
		{"type":"code_interpreter","container":"cntr_1"},{"type":"web_search"}]}`
	if err := json.Unmarshal([]byte(stored), &turn.Response); err != nil {
		t.Fatal(err)
	}
	got := taskOfTurn(&turn)
	if got.used != "cntr_1" || len(got.Tools) != 3 {
		t.Fatalf("got %+v", got)
	}
	got.addContainer(berth.Container{MemoryLimit: "4g", NetworkPolicy: berth.NetworkPolicy{AllowedDomains: []string{"a", "b"}},
		Berth: berth.ContainerBerth{Template: "sha256:1", Skills: []berth.ContainerSkill{{SkillID: "skill_1"}, {Name: "inline"}}}},
		[]berth.Template{{ID: "sha256:0", Names: []string{"x"}}, {ID: "sha256:1", Names: []string{"node"}}})
	if got.Memory != "4g" || got.Hosts != "a b" || got.Template != "node" || !slices.Equal(got.SkillIDs, []string{"skill_1"}) {
		t.Errorf("got %+v", got)
	}
}

// TestReason: a tool that is missing has the API's reason in a sentence.
func TestReason(t *testing.T) {
	for message, want := range map[string]string{
		"Unsupported value: 'web_search' needs a search service, and this server has none. Its operator can set it.": "needs a search service, and this server has none.",
		"Something else.": "Something else.", "": ""} {
		if got := reasonOf(message, "web_search"); got != want {
			t.Errorf("%q: got %q", message, got)
		}
	}
}

// TestTaskNumbers: a value that is no number stays text, so that the API refuses it with a reason.
func TestTaskNumbers(t *testing.T) {
	for text, want := range map[string]string{"1": "1", "0.5": "0.5", "many": `"many"`, "1,5": `"1,5"`, "Inf": `"Inf"`, "0x1p3": `"0x1p3"`,
		"1}": `"1}"`} {
		if raw, err := json.Marshal(number(text)); err != nil || string(raw) != want {
			t.Errorf("%s: got %s, %v", text, raw, err)
		}
	}
	if req := (task{Model: "m", Text: "x"}).request(nil); len(req) != 2 {
		t.Errorf("an empty form asks for %v", req)
	}
}
