package api_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/model"
	"github.com/berth-run/berth/tool/websearch/backend"
)

// oneHit is a search service that finds one page.
type oneHit struct{ backend.Backend }

func (oneHit) Search(context.Context, backend.Query) ([]berth.WebSearchResult, error) {
	return []berth.WebSearchResult{{URL: "https://a.example/x", Title: "A", Text: "The sky is blue.",
		Published: "2026-01-01"}}, nil
}

// kindsOf returns the types of the blocks of a message.
func kindsOf(content any) string {
	var kinds []string
	for _, b := range content.([]any) {
		kinds = append(kinds, b.(map[string]any)["type"].(string))
	}
	return strings.Join(kinds, " ")
}

// The shell of a container is the code execution of a message, for any model. A later message names the container.
func TestMessagesCodeExecution(t *testing.T) {
	t.Parallel()
	run := func(command string) []any {
		return turn(model.Text{Text: "Run:"}, model.Call{ID: "call_1", Name: "shell",
			Arguments: `{"commands":["` + command + `"]}`}, stopped)
	}
	says := turn(model.Text{Text: "Done."}, stopped)
	h, m := playing(t, run("echo hi; echo no >&2; echo x > made; exit 3"), says, run("cat made"), says)
	const fields = `"tools":[{"type":"code_execution_20250825","name":"code_execution"}],"messages":[{"role":"user","content":"hi"}`
	o := h.message(fields + `]`)
	if got := kindsOf(o["content"]); got != "text server_tool_use bash_code_execution_tool_result text" {
		t.Fatalf("got %s", got)
	}
	use, result := o.at("content", 1).(map[string]any), o.at("content", 2).(map[string]any)
	if use["name"] != "bash_code_execution" || !strings.HasPrefix(use["id"].(string), "srvtoolu_") ||
		result["tool_use_id"] != use["id"] {
		t.Errorf("got %v and %v", use, result)
	}
	made, _ := result["content"].(map[string]any)["content"].([]any)
	if len(made) != 1 || made[0].(map[string]any)["type"] != "bash_code_execution_output" {
		t.Fatalf("the files are %v", made)
	}
	h.readsOutput(made[0].(map[string]any)["file_id"].(string), "made", "x\n")
	want := map[string]any{"type": "bash_code_execution_result", "stdout": "hi\n", "stderr": "no\n",
		"return_code": 3.0, "content": made}
	if diff := cmp.Diff(want, result["content"]); diff != "" {
		t.Errorf("the result (-want +got):\n%s", diff)
	}
	id, _ := o.at("container", "id").(string)
	if expires, _ := o.at("container", "expires_at").(string); id == "" || expires == "" {
		t.Fatalf("the container is %v", o["container"])
	}
	content, err := json.Marshal(o["content"])
	check(t, err)
	answer, kinds := h.streamed(`"container":"` + id + `",` + fields + `,{"role":"assistant","content":` +
		string(content) + `},{"role":"user","content":"again"}]`)
	if len(answer.Content) != 4 || answer.Content[2].Content.Stdout != "x\n" || answer.Container.ID != id ||
		string(answer.Content[1].Input) != `{"command":"cat made"}` {
		t.Errorf("streamed %s in %v", answer.RawJSON(), kinds)
	}
	var history []string
	for _, it := range m.asked[2].Items {
		history = append(history, string(it.Type()))
	}
	if got := strings.Join(history, " "); got != "message message function_call function_call_output message message" {
		t.Errorf("the model got %s", got)
	}
}

// A web search of the server has the vendor's results and citations, which come back with the next request.
func TestMessagesWebSearch(t *testing.T) {
	t.Parallel()
	mark := model.Text{Text: "It is blue.【1】"}
	h, m := playing(t, turn(model.Call{ID: "call_1", Name: "web_search",
		Arguments: `{"type":"search","queries":["sky"]}`}, stopped), turn(mark, stopped))
	h.search.Backend = oneHit{}
	const fields = `"tools":[{"type":"web_search_20250305","name":"web_search","max_uses":2,"allowed_domains":["a.example"]}],"messages":[{"role":"user","content":"hi"}`
	o := h.message(fields + `]`)
	if got := kindsOf(o["content"]); got != "server_tool_use web_search_tool_result text" {
		t.Fatalf("got %s", got)
	}
	if o.at("content", 0, "input", "query") != "sky" || o.at("content", 1, "content", 0, "url") != "https://a.example/x" ||
		o.at("usage", "server_tool_use", "web_search_requests") != 1.0 {
		t.Errorf("got %v", o)
	}
	content, err := json.Marshal(o["content"])
	check(t, err)
	h.message(fields + `,{"role":"assistant","content":` + string(content) + `},{"role":"user","content":"again"}]`)
	found := false
	for _, it := range m.asked[2].Items {
		found = found || strings.Contains(it.String(), "The sky is blue.")
	}
	if !found {
		t.Errorf("the model does not see the page again: %v", m.asked[2].Items)
	}
	answer, _ := h.streamed(fields + `]`)
	if len(answer.Content) != 3 || len(answer.Content[1].Content.OfBetaWebSearchResultBlockArray) != 1 {
		t.Errorf("streamed %s", answer.RawJSON())
	}
}

// Pages of blocked domains are neither found nor opened.
func TestMessagesBlockedDomains(t *testing.T) {
	t.Parallel()
	h, m := playing(t, turn(model.Call{ID: "call_1", Name: "web_search", Arguments: `{"type":"search","queries":["sky"]}`},
		stopped), turn(model.Call{ID: "call_2", Name: "web_search",
		Arguments: `{"type":"open_page","url":"https://sub.A.example./x"}`}, stopped), turn(model.Text{Text: "No."}, stopped))
	h.search.Backend = oneHit{}
	h.message(`"tools":[{"type":"web_search_20250305","name":"web_search","blocked_domains":["A.example"]}],` + hello)
	for i, want := range []string{"", "the request's filters do not allow"} {
		got := m.asked[i+1].Items[len(m.asked[i+1].Items)-1].String()
		if !strings.Contains(got, want) || strings.Contains(got, "The sky is blue.") {
			t.Errorf("call %d: the model got %s", i+1, got)
		}
	}
}

// A use beyond max_uses of its tool has the vendor's error as its result, which also the model sees. Other tools of the
// request continue to work.
func TestMessagesMaxUses(t *testing.T) {
	t.Parallel()
	search := model.Call{ID: "call_1", Name: "web_search", Arguments: `{"type":"search","queries":["sky"]}`}
	open := model.Call{ID: "call_2", Name: "web_search", Arguments: `{"type":"open_page","url":"https://a.example/x"}`}
	empty := model.Call{ID: "call_3", Name: "web_search", Arguments: `{"type":"search"}`}
	h, m := playing(t, turn(empty, stopped), turn(search, stopped), turn(search, stopped), turn(open, stopped), turn(open, stopped),
		turn(model.Call{ID: "call_4", Name: "shell", Arguments: `{"commands":["echo hi"]}`}, stopped),
		turn(model.Text{Text: "Done."}, stopped))
	h.search.Backend = oneHit{}
	const fields = `"tools":[{"type":"web_search_20250305","name":"web_search","max_uses":1},
		{"type":"web_fetch_20250910","name":"web_fetch","max_uses":1},
		{"type":"code_execution_20250825","name":"code_execution"}],` + hello
	o := h.message(fields)
	if got := kindsOf(o["content"]); got != "server_tool_use web_search_tool_result server_tool_use web_search_tool_result "+
		"server_tool_use web_search_tool_result server_tool_use web_fetch_tool_result "+
		"server_tool_use web_fetch_tool_result server_tool_use bash_code_execution_tool_result text" {
		t.Fatalf("got %s", got)
	}
	for i, want := range map[int]any{1: "invalid_tool_input", 5: "max_uses_exceeded", 7: "url_not_accessible",
		9: "max_uses_exceeded"} {
		if got := o.at("content", i, "content", "error_code"); got != want {
			t.Errorf("block %d has the error %v, want %v", i, got, want)
		}
	}
	if o.at("content", 3, "content", 0, "title") != "A" || o.at("content", 11, "content", "stdout") != "hi\n" {
		t.Errorf("got %v", o["content"])
	}
	if o.at("usage", "server_tool_use", "web_search_requests") != 2.0 || o.at("usage", "server_tool_use", "web_fetch_requests") != 1.0 {
		t.Errorf("the usage is %v", o["usage"])
	}
	if last := m.asked[3].Items[len(m.asked[3].Items)-1].String(); !strings.Contains(last, "at most 1 times") {
		t.Errorf("the model got %s", last)
	}
	answer, _ := h.streamed(fields)
	if got := answer.Content[5].Content.ErrorCode; got != "max_uses_exceeded" {
		t.Errorf("streamed %s", answer.RawJSON())
	}
	h.message(`"tools":[{"type":"web_search_20250305","name":"web_search"}],` + again(t, o, `"more"`))
	if got := m.asked[len(m.asked)-1].Items; !strings.Contains(encoded(t, got), "max_uses_exceeded") {
		t.Errorf("the next request has %v", got)
	}
}

// The history may have calls of server tools that this server does not know.
func TestMessagesForeignHistory(t *testing.T) {
	t.Parallel()
	h, m := playing(t, turn(stopped))
	h.message(`"messages":[{"role":"user","content":"hi"},{"role":"assistant","content":[
		{"type":"thinking","thinking":"Hm.","signature":"EuYB"},{"type":"redacted_thinking","data":"EmwK"},
		{"type":"server_tool_use","id":"srvtoolu_1","name":"text_editor_code_execution","input":{"command":"view","path":"a"}},
		{"type":"text_editor_code_execution_tool_result","tool_use_id":"srvtoolu_1","content":{"type":"text_editor_code_execution_view_result","content":"body","file_type":"text"}},
		{"type":"server_tool_use","id":"srvtoolu_2","name":"web_search","input":{"query":"q"}},
		{"type":"web_search_tool_result","tool_use_id":"srvtoolu_2","content":{"type":"web_search_tool_result_error","error_code":"unavailable"}},
		{"type":"mcp_tool_use","id":"mcptoolu_1","name":"t","server_name":"s","input":{}},
		{"type":"mcp_tool_result","tool_use_id":"mcptoolu_1","is_error":false,"content":[{"type":"text","text":"mcp says"}]},
		{"type":"server_tool_use","id":"srvtoolu_3","name":"web_fetch","input":{"url":"https://x.example"}},
		{"type":"text","text":"so","citations":[{"type":"char_location"}]}]},{"role":"user","content":"go"}]`)
	var all strings.Builder
	for _, it := range m.asked[0].Items {
		all.WriteString(it.String() + "\n")
	}
	for _, want := range []string{"Hm.", "body", "The search failed: unavailable", "mcp says", "The call has no result.", "so"} {
		if !strings.Contains(all.String(), want) {
			t.Errorf("the model does not get %q:\n%s", want, all.String())
		}
	}
}

// An MCP server that the request names serves the model.
func TestMessagesMCP(t *testing.T) {
	t.Parallel()
	h, m := playing(t, turn(model.Text{Text: "a"}, stopped))
	const server = `"mcp_servers":[{"type":"url","url":"https://mcp.example/x","name":"srv"}],`
	o := h.call(400, "POST", "/v1/messages", `{"model":"played","max_tokens":9,`+server+
		`"tools":[{"type":"mcp_toolset","mcp_server_name":"other"}],`+hello+`}`)
	if got := o.at("error", "message"); got != "tools.0.mcp_server_name: MCP server 'other' not found in `mcp_servers`" {
		t.Errorf("got %v", got)
	}
	s := newToolServer(t, streamable)
	s.add(&sdk.Tool{Name: "add", InputSchema: json.RawMessage(`{"type":"object"}`)},
		func(context.Context, map[string]any) (*sdk.CallToolResult, error) { return textResult("three"), nil })
	m.play([][]any{turn(model.Call{ID: "call_1", Name: "lab__add", Arguments: `{"a":1}`}, stopped),
		turn(model.Text{Text: "It is three."}, stopped)})
	o = h.message(`"mcp_servers":[{"type":"url","url":"` + h.reachable(s.URL) + `","name":"lab"}],` +
		`"tools":[{"type":"mcp_toolset","mcp_server_name":"lab"}],` + hello)
	if got := kindsOf(o["content"]); got != "mcp_tool_use mcp_tool_result text" {
		t.Fatalf("got %s", got)
	}
	if o.at("content", 0, "name") != "add" || o.at("content", 0, "server_name") != "lab" ||
		o.at("content", 1, "content", 0, "text") != "three" || o.at("content", 1, "is_error") != false {
		t.Errorf("got %v", o["content"])
	}
}
