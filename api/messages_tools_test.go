package api_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/berth-run/berth/model"
)

// named returns the names of the functions that a model got.
func named(req *model.Request) []string {
	var names []string
	for _, f := range req.Tools {
		names = append(names, f.Name)
	}
	return names
}

// again returns an answer's content as the assistant's message before another one.
func again(t *testing.T, o object, next string) string {
	t.Helper()
	content, err := json.Marshal(o["content"])
	check(t, err)
	return `"messages":[{"role":"user","content":"hi"},{"role":"assistant","content":` + string(content) +
		`},{"role":"user","content":` + next + `}]`
}

// A model finds a deferred tool with the search of the server, and has it in later turns.
func TestMessagesToolSearch(t *testing.T) {
	t.Parallel()
	for kind, input := range map[string]string{"tool_search_tool_regex": `{"pattern":"weather"}`,
		"tool_search_tool_bm25": `{"query":"weather"}`} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			h, m := playing(t,
				turn(model.Call{ID: "call_1", Name: "tool_search", Arguments: `{"paths":["weather"]}`}, stopped),
				turn(model.Call{ID: "call_2", Name: "weather", Arguments: `{}`}, stopped), turn(model.Text{Text: "Sun."}, stopped))
			tools := `"tools":[{"type":"` + kind + `_20251119","name":"` + kind + `"},
				{"name":"weather","description":"W","input_schema":{"type":"object"},"defer_loading":true},
				{"name":"tides","description":"T","input_schema":{"type":"object"},"defer_loading":true}],`
			o := h.message(tools + hello)
			if got := kindsOf(o["content"]); got != "server_tool_use tool_search_tool_result tool_use" {
				t.Fatalf("got %s", got)
			}
			raw, err := json.Marshal(o.at("content", 0, "input"))
			check(t, err)
			if string(raw) != input || o.at("content", 0, "name") != kind ||
				o.at("content", 1, "tool_use_id") != o.at("content", 0, "id") ||
				o.at("content", 1, "content", "tool_references", 0, "tool_name") != "weather" {
				t.Errorf("got %v", o["content"])
			}
			if names := named(m.asked[0]); slices.Contains(names, "weather") {
				t.Errorf("before the search, the model has %v", names)
			}
			h.message(tools + again(t, o, `[{"type":"tool_result","tool_use_id":"call_2","content":"sunny"}]`))
			if names := named(m.asked[2]); !slices.Contains(names, "weather") || slices.Contains(names, "tides") {
				t.Errorf("in the next request, the model has %v", names)
			}
		})
	}
}

// A tool that is deferred without a search of the server is offered when a result of the client's search refers to it.
func TestMessagesToolReference(t *testing.T) {
	t.Parallel()
	h, m := playing(t, turn(model.Call{ID: "call_1", Name: "find", Arguments: `{}`}, stopped), turn(stopped))
	const tools = `"tools":[{"name":"find","input_schema":{"type":"object"}},
		{"name":"weather","input_schema":{"type":"object"},"defer_loading":true}],`
	o := h.message(tools + hello)
	h.message(tools + again(t, o, `[{"type":"tool_result","tool_use_id":"call_1","content":[{"type":"tool_reference","tool_name":"weather"}]}]`))
	if first, second := named(m.asked[0]), named(m.asked[1]); slices.Contains(first, "weather") ||
		!slices.Contains(second, "weather") {
		t.Errorf("the model had %v, then %v", first, second)
	}
	const all = `{"model":"played","max_tokens":9,"tools":[{"name":"weather","input_schema":{"type":"object"},"defer_loading":true}],`
	if got := h.call(400, "POST", "/v1/messages", all+hello+`}`).at("error", "message"); got !=
		"tools: At least one tool must have defer_loading=false." {
		t.Errorf("got %v", got)
	}
}

// A program calls functions of the client, continues with their results in the next request, and returns its output.
func TestMessagesPrograms(t *testing.T) {
	t.Parallel()
	arguments, err := json.Marshal(map[string]string{"code": `const [a, b] = await Promise.all([1, 2].map(n => tools.units({n})));
		text(a.units + b.units);`})
	check(t, err)
	h, m := playing(t, turn(model.Call{ID: "call_1", Name: "programmatic_tool_calling", Arguments: string(arguments)}, stopped),
		turn(model.Text{Text: "42."}, stopped))
	const tools = `"tools":[{"type":"code_execution_20260120","name":"code_execution"},
		{"name":"units","input_schema":{"type":"object","properties":{"n":{"type":"integer"}}},"allowed_callers":["code_execution_20260120"]}],`
	o := h.message(tools + hello)
	if got := kindsOf(o["content"]); got != "server_tool_use tool_use tool_use" || o["stop_reason"] != "tool_use" {
		t.Fatalf("got %s, %v", got, o["stop_reason"])
	}
	program := o.at("content", 0, "id")
	if o.at("content", 1, "caller", "type") != "code_execution_20260120" ||
		o.at("content", 1, "caller", "tool_id") != program || o.at("content", 0, "name") != "code_execution" {
		t.Errorf("got %v", o["content"])
	}
	result := func(i int, units string) string {
		return `{"type":"tool_result","tool_use_id":"` + o.at("content", i, "id").(string) + `","content":"{\"units\":` + units + `}"}`
	}
	next := h.message(tools + again(t, o, `[`+result(1, "40")+`,`+result(2, "2")+`]`))
	if got := kindsOf(next["content"]); got != "code_execution_tool_result text" {
		t.Fatalf("the next answer has %s", got)
	}
	if next.at("content", 0, "tool_use_id") != program || next.at("content", 0, "content", "stdout") != "42" {
		t.Errorf("the program returned %v", next.at("content", 0))
	}
	h.message(tools + strings.TrimSuffix(again(t, o, `[`+result(1, "40")+`,`+result(2, "2")+`]`), "]") +
		`,{"role":"assistant","content":` + encoded(t, next["content"]) + `},{"role":"user","content":"more"}]`)
	var kinds []string
	for _, it := range m.asked[2].Items {
		kinds = append(kinds, string(it.Type()))
	}
	if got := strings.Join(kinds, " "); got != "message function_call function_call_output message message" {
		t.Errorf("the model got %s", got)
	}
}

func encoded(t *testing.T, v any) string {
	t.Helper()
	raw, err := json.Marshal(v)
	check(t, err)
	return string(raw)
}
