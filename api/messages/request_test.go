package messages

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/exchange"
	"github.com/berth-run/berth/api/request"
	"github.com/berth-run/berth/internal/rule"
	"github.com/berth-run/berth/tool"
	"github.com/berth-run/berth/tool/standard"
)

var items = request.New(tool.NewRegistry(standard.Kinds(standard.Options{})...))

// read reads a body as the door does.
func read(body string) (*translation, error) {
	tree, err := exchange.ParseJSON([]byte(body))
	if err != nil {
		return nil, err
	}
	if err := createRule("", tree); err != nil {
		return nil, err
	}
	var m messageRequest
	if err := json.Unmarshal([]byte(body), &m); err != nil {
		return nil, err
	}
	return m.translate(items)
}

// Tools and MCP servers become the tools of a response.
func TestTools(t *testing.T) {
	for _, tc := range []struct{ fields, tools, choice string }{
		{`"tools":[{"name":"f","input_schema":{"type":"object"},"strict":true,"input_examples":[{"a":1}]}]`,
			`[{"type":"function","name":"f","description":"\n\nExamples of the input:\n{\"a\":1}","parameters":{"type":"object"},"strict":false}]`, ``},
		{`"tools":[{"type":"web_search_20250305","name":"web_search","allowed_domains":["a.example"]},{"type":"web_fetch_20250910","name":"web_fetch","allowed_domains":["b.example"]}],"tool_choice":{"type":"tool","name":"web_fetch"}`,
			`[{"type":"web_search","filters":{"allowed_domains":["a.example","b.example"]}}]`, `{"type":"web_search"}`},
		{`"tools":[{"type":"web_search_20250305","name":"web_search","blocked_domains":["a.example"]}]`,
			`[{"type":"web_search","filters":{"allowed_domains":null,"blocked_domains":["a.example"]}}]`, ``},
		{`"container":"cntr_1","tools":[{"type":"code_execution_20260120","name":"code_execution"}],"tool_choice":{"type":"tool","name":"code_execution"}`,
			`[{"type":"shell","environment":{"type":"container_reference","container_id":"cntr_1"}},{"type":"text_editor","environment":{"type":"container_reference","container_id":"cntr_1"}}]`, `{"type":"shell"}`},
		{`"container":{"skills":[{"type":"custom","skill_id":"skill_1","version":"2"}]},"tools":[{"type":"code_execution_20250825","name":"code_execution"}],"tool_choice":{"type":"any"}`,
			`[{"type":"shell","environment":{"type":"container_auto","skills":[{"type":"skill_reference","skill_id":"skill_1","version":"2"}]}},{"type":"text_editor","environment":{"type":"container_auto"}}]`, `"required"`},
		{`"mcp_servers":[{"type":"url","url":"https://x.example","name":"s","authorization_token":"k"}],"tools":[{"type":"mcp_toolset","mcp_server_name":"s","default_config":{"enabled":false},"configs":{"a":{"enabled":true}}}]`,
			`[{"allowed_tools":{"tool_names":["a"]},"authorization":"k","require_approval":"never","server_label":"s","server_url":"https://x.example","type":"mcp"}]`, ``},
		{`"mcp_servers":[{"type":"url","url":"https://x.example","name":"s","tool_configuration":{"allowed_tools":["b"]}}]`,
			`[{"allowed_tools":{"tool_names":["b"]},"require_approval":"never","server_label":"s","server_url":"https://x.example","type":"mcp"}]`, ``},
	} {
		got, err := read(`{"model":"m","max_tokens":1,"messages":[{"role":"user","content":"x"}],` + tc.fields + `}`)
		if err != nil {
			t.Errorf("%s: %v", tc.fields, err)
			continue
		}
		raw, err := json.Marshal(got.request.Tools)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(tc.tools, string(raw)); diff != "" || string(got.request.ToolChoice) != tc.choice {
			t.Errorf("%s: choice %s, tools (-want +got):\n%s", tc.fields, got.request.ToolChoice, diff)
		}
	}
}

// The uses of web_search and web_fetch are limited each by its own number. Without web_search there are no searches.
func TestMaxUses(t *testing.T) {
	const search, fetch, code = `{"type":"web_search_20250305","name":"web_search"`,
		`{"type":"web_fetch_20250910","name":"web_fetch"`, `{"type":"code_execution_20250825","name":"code_execution"}`
	for tools, want := range map[string]string{
		search + `}`:                                          "none",
		search + `,"max_uses":3}`:                             `{"searches":3,"pages":3}`,
		search + `,"max_uses":3},` + fetch + `}`:              `{"searches":3}`,
		search + `},` + fetch + `,"max_uses":2}`:              `{"pages":2}`,
		search + `,"max_uses":3},` + code:                     `{"searches":3,"pages":3}`,
		fetch + `,"max_uses":2}`:                              `{"searches":0,"pages":2}`,
		fetch + `,"max_uses":2},` + search + `,"max_uses":1}`: `{"searches":1,"pages":2}`,
	} {
		got, err := read(`{"model":"m","max_tokens":1,"messages":[{"role":"user","content":"x"}],"tools":[` + tools + `]}`)
		if err != nil {
			t.Fatal(err)
		}
		limits := "none"
		for _, of := range got.request.Tools {
			var web berth.WebSearchTool
			if of.Type() == berth.ToolWebSearch && of.Decode(&web) == nil && web.Limits != nil {
				raw, _ := json.Marshal(web.Limits)
				limits = string(raw)
			}
		}
		if limits != want || got.request.MaxToolCalls != nil {
			t.Errorf("%s has the limits %s, want %s", tools, limits, want)
		}
	}
}

// Places of the response's request are places of the message request.
func TestPlace(t *testing.T) {
	tr := &translation{itemPlaces: []string{"messages[0].content[1]"}, toolPlaces: []string{"tools[2]"}}
	for param, want := range map[string]string{
		"input[0].content[0].image_url": "messages[0].content[1]", "input": "messages", "inputs": "inputs",
		"tools[0].name": "tools[2].name", "tools[0].environment.file_ids[1]": "messages",
		"tools[0].environment.skills[0]": "container.skills[0]", "tools[0].container": "container",
		"max_output_tokens": "max_tokens", "text.format.schema": "output_config.format.schema", "model": "model",
	} {
		if got := tr.place(param); got != want {
			t.Errorf("%s: got %s, want %s", param, got, want)
		}
	}
	if got := dotted("messages[0].content[12].text"); got != "messages.0.content.12.text" {
		t.Errorf("got %s", got)
	}
}

// Documents and search results become what every model reads.
func TestDocuments(t *testing.T) {
	got, err := read(`{"model":"m","max_tokens":1,"messages":[{"role":"user","content":[
		{"type":"document","title":"T","context":"C","source":{"type":"text","media_type":"text/plain","data":"body"}},
		{"type":"document","title":"T","source":{"type":"base64","media_type":"application/pdf","data":"aGk="}},
		{"type":"document","source":{"type":"url","url":"https://x.example/a.pdf"}},
		{"type":"document","source":{"type":"file","file_id":"file-1"}},
		{"type":"document","source":{"type":"content","content":[{"type":"text","text":"part"}]}},
		{"type":"search_result","source":"s","title":"T","content":[{"type":"text","text":"found"}]},
		{"type":"image","source":{"type":"url","url":"https://x.example/a.png"}}]}]}`)
	if err != nil {
		t.Fatal(err)
	}
	var m berth.Message
	if err := got.request.Input[0].Decode(&m); err != nil {
		t.Fatal(err)
	}
	text := func(s string) berth.Content { return berth.Content{Type: "input_text", Text: s} }
	want := []berth.Content{text("<document title=\"T\" context=\"C\">\nbody\n</document>"),
		{Type: "input_file", Filename: "T document.pdf", FileData: "data:application/pdf;base64,aGk="},
		{Type: "input_file", FileURL: "https://x.example/a.pdf"}, {Type: "input_file", FileID: "file-1"},
		text("<document>\n\n"), text("part"), text("</document>"),
		text("<search_result source=\"s\" title=\"T\">\nfound\n</search_result>"),
		{Type: "input_image", Detail: "auto", ImageURL: "https://x.example/a.png"}}
	if diff := cmp.Diff(want, m.Content); diff != "" {
		t.Errorf("contents (-want +got):\n%s", diff)
	}
}

// Any body becomes a request that can be stored and read again, or an error for the client.
func FuzzRequest(f *testing.F) {
	for _, fields := range []string{`{"role":"user","content":"hi"}],"stop_sequences":["a"],"system":[{"type":"text","text":"s"}`,
		`{"role":"assistant","content":[{"type":"tool_use","id":"a","name":"f","input":{}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"a","content":[{"type":"image","source":{"type":"file","file_id":"x"}}]}]}`,
		`{"role":"assistant","content":[{"type":"thinking","thinking":"t","signature":"berth.thought.1.s.1.x"},{"type":"redacted_thinking","data":"d"}]}`,
		`{"role":"assistant","content":[{"type":"server_tool_use","id":"a","name":"bash_code_execution","input":{"command":"x"}},{"type":"bash_code_execution_tool_result","tool_use_id":"a","content":{"type":"bash_code_execution_result","stdout":"","return_code":1}}]}`,
		`{"role":"user","content":[{"type":"document","source":{"type":"content","content":"x"}},{"type":"container_upload","file_id":"f"}]}],"tools":[{"type":"code_execution_20250825"},{"type":"web_search_20250305","max_uses":1},{"type":"bash_20250124"}],"mcp_servers":[{"url":"https://x.example","name":"s"}`,
		`{"role":"assistant","content":[{"type":"server_tool_use","id":"srvtoolu_1","name":"tool_search_tool_regex","input":{"pattern":"w"}},{"type":"tool_search_tool_result","tool_use_id":"srvtoolu_1","content":{"type":"tool_search_tool_search_result","tool_references":[{"type":"tool_reference","tool_name":"w"}]}}]}],"tools":[{"type":"tool_search_tool_regex"},{"name":"w","input_schema":{"type":"object"},"defer_loading":true}`,
		`{"role":"assistant","content":[{"type":"server_tool_use","id":"srvtoolu_prog_call_1_f_e30","name":"code_execution","input":{"code":"x"}},{"type":"tool_use","id":"a","name":"f","input":{},"caller":{"type":"code_execution_20250825","tool_id":"srvtoolu_prog_call_1_f_e30"}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"a"}]},{"role":"assistant","content":[{"type":"code_execution_tool_result","tool_use_id":"srvtoolu_prog_call_1_f_e30","content":{"type":"code_execution_result","stdout":"","return_code":0}}]}],"tools":[{"name":"f","input_schema":{"type":"object"},"allowed_callers":["code_execution_20250825"]}`,
	} {
		f.Add(`{"model":"m","max_tokens":1,"messages":[` + fields + `]}`)
	}
	f.Fuzz(func(t *testing.T, body string) {
		got, err := read(body)
		if err != nil {
			if _, ok := errors.AsType[*berth.Error](err); !ok {
				t.Fatalf("%s: an error that is not the client's: %v", body, err)
			}
			return
		}
		raw, err := json.Marshal(got.request)
		if err != nil {
			t.Fatal(err)
		}
		var again berth.ResponseRequest
		if err := json.Unmarshal(raw, &again); err != nil {
			t.Fatalf("%s became %s: %v", body, raw, err)
		}
		if len(got.request.Tools) != len(got.toolPlaces) || len(got.request.Input) != len(got.itemPlaces) {
			t.Fatalf("%s: %d tools at %v, %d items at %v", body, len(got.request.Tools), got.toolPlaces,
				len(got.request.Input), got.itemPlaces)
		}
		tree, err := exchange.ParseJSON(raw)
		if err != nil {
			t.Fatal(err)
		}
		if err := rule.List(items.Item, 0)("input", tree.(map[string]any)["input"]); err != nil &&
			len(got.request.Input) > 0 {
			t.Fatalf("%s became items that Responses refuses: %s: %v", body, raw, err)
		}
	})
}
