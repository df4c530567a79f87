package api_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/berth-run/berth/api"
)

// programInput returns the input with which the scripted model runs a program.
func programInput(code string) string {
	arguments, _ := json.Marshal(map[string]string{"code": code})
	input, _ := json.Marshal("```json programmatic_tool_calling\n" + string(arguments) + "\n```")
	return string(input)
}

// stockTools are the tools of the recorded streams.
const stockTools = `"tools":[{"type":"programmatic_tool_calling"},
	{"type":"function","name":"getInventory","allowed_callers":["programmatic"],"parameters":{"type":"object","properties":{"sku":{"type":"string"}},"required":["sku"],"additionalProperties":false},
		"output_schema":{"type":"object"}},
	{"type":"function","name":"getDemand","allowed_callers":["programmatic"],"parameters":{"type":"object","properties":{"sku":{"type":"string"}},"required":["sku"],"additionalProperties":false}}]`

const stockProgram = `const inventory = await tools.getInventory({sku: "sku_123"});
const demand = await tools.getDemand({sku: "sku_123"});
text(JSON.stringify({inventory, demand}));
`

// programCalled is the call of a function by a program. The recordings leave the call
// in_progress, which Berth completes.
var programCalled = []string{
	`output_item.added item{arguments:"" call_id:call_ caller{caller_id:call_ type:program} id:fc_ name status:in_progress type:function_call} output_index`,
	"function_call_arguments.delta delta item_id:fc_ output_index",
	"function_call_arguments.done arguments item_id:fc_ name output_index",
	"output_item.done item{arguments call_id:call_ caller{caller_id:call_ type:program} id:fc_ name status:completed type:function_call} output_index",
}

// programAnswered is the end of a program.
var programAnswered = []string{
	`output_item.added item{call_id:call_ id:cmo_ result:"" status:completed type:program_output} output_index`,
	"output_item.done item{call_id:call_ id:cmo_ result status:completed type:program_output} output_index",
}

// callsOf returns the items of a type in an answer's output.
func callsOf(answer object, kind string) []object {
	var found []object
	for _, it := range answer["output"].([]any) {
		if it := object(it.(map[string]any)); it["type"] == kind {
			found = append(found, it)
		}
	}
	return found
}

// outputFor returns an input item that answers a call of a function.
func outputFor(call object, output string) object {
	return object{"type": "function_call_output", "call_id": call["call_id"], "output": output}
}

// The streams of a program have the events of the recorded ones, and it continues in responses
// that continue its first one, or that get all items as input.
func TestProgramOrder(t *testing.T) {
	t.Parallel()
	program := []string{
		`output_item.added item{call_id:call_ code:"" fingerprint id:cm_ type:program} output_index`,
		"output_item.done item{call_id:call_ code fingerprint id:cm_ type:program} output_index",
	}
	want := [][]string{
		stream(program, programCalled, completed("program function_call")),
		stream(programCalled, completed("function_call")),
		stream(programAnswered, said, completed("program_output message")),
	}
	for _, stateless := range []bool{false, true} {
		t.Run(fmt.Sprintf("stateless %v", stateless), func(t *testing.T) {
			h := newHouse(t, nil)
			var items []any
			var previous any
			check(t, json.Unmarshal([]byte(`[{"role":"user","content":`+programInput(stockProgram)+`}]`), &items))
			answers := []string{`{"availableUnits":42}`, `{"requestedUnits":31}`, ""}
			for i, want := range want {
				var request object
				check(t, json.Unmarshal([]byte(`{"model":"scripted","stream":true,`+stockTools+`}`), &request))
				request["input"], request["store"], request["previous_response_id"] = items, !stateless, previous
				events := h.rest(h.stream(t.Context(), "POST", "/v1/responses", marshal(t, request)))
				if diff := cmp.Diff(want, shapes(t, events)); diff != "" {
					t.Errorf("response %d (-want +got):\n%s", i+1, diff)
				}
				var last struct{ Response object }
				check(t, json.Unmarshal(events[len(events)-1].Data, &last))
				if !stateless {
					items, previous = nil, last.Response["id"]
				}
				if stateless {
					items = append(items, last.Response["output"].([]any)...)
				}
				if i == 1 && last.Response["usage"].(map[string]any)["total_tokens"] != 0.0 {
					t.Errorf("no model was called, and the usage is %v", last.Response["usage"])
				}
				if i < 2 {
					items = append(items, outputFor(callsOf(last.Response, "function_call")[0], answers[i]))
					continue
				}
				out := callsOf(last.Response, "program_output")[0]
				if out["result"] != `{"inventory":{"availableUnits":42},"demand":{"requestedUnits":31}}` {
					t.Errorf("the result is %v", out["result"])
				}
			}
		})
	}
}

// askProgram sends a request that runs a program.
func (h *house) askProgram(code, fields string) object {
	h.t.Helper()
	return h.call(http.StatusOK, "POST", "/v1/responses",
		`{"model":"scripted","input":`+programInput(code)+`,`+fields+`}`)
}

// resultOfProgram returns the result of the only program of an answer.
func resultOfProgram(t *testing.T, answer object) string {
	t.Helper()
	outputs := callsOf(answer, "program_output")
	if len(outputs) != 1 {
		t.Fatalf("%d outputs of programs in %v", len(outputs), answer["output"])
	}
	return outputs[0]["result"].(string)
}

// A program calls hosted tools on the server, in one response. The model sees the program's
// output, and not the calls.
func TestProgramHosted(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	lab := newToolServer(t, streamable)
	lab.add(&sdk.Tool{Name: "ports", InputSchema: json.RawMessage(`{"type":"object"}`)},
		func(context.Context, map[string]any) (*sdk.CallToolResult, error) {
			return textResult(`[{"name":"Brest","ships":3},{"name":"Kiel","ships":5}]`), nil
		})
	tools := `"tools":[{"type":"programmatic_tool_calling"},{"type":"shell","environment":{"type":"container_auto"},"allowed_callers":["programmatic"]},` +
		mcpTool(h.reachable(lab.URL), unapproved+`,"allowed_callers":["direct","programmatic"]`) + `]`
	answer := h.askProgram(`
		const ports = await tools.lab__ports({})
		const counted = await Promise.all(ports.map(p => tools.shell({commands: ["echo " + p.name + " " + p.ships * 2]})))
		text(counted.map(c => c.output[0].stdout.trim()).join(", "))
		try { await tools.lab__fail({}) } catch (e) { text(e.message) }`, tools)
	if got, want := resultOfProgram(t, answer), "Brest 6, Kiel 10\nThe call failed. The disk is on fire."; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	var types []string
	for n, it := range answer["output"].([]any) {
		it := it.(map[string]any)
		types = append(types, it["type"].(string))
		if caller, ok := it["caller"].(map[string]any); n > 1 && n < 8 && (!ok || caller["type"] != "program" ||
			caller["caller_id"] != callsOf(answer, "program")[0]["call_id"]) {
			t.Errorf("item %d has the caller %v", n, it["caller"])
		}
	}
	if want := "mcp_list_tools program mcp_call shell_call shell_call shell_call_output shell_call_output mcp_call program_output message"; strings.Join(types,
		" ") != want {
		t.Errorf("items: %v", types)
	}
	if got := lab.received(); !slices.Equal(got, []string{"ports{}", "fail{}"}) {
		t.Errorf("the server received %v", got)
	}
	next := h.call(http.StatusOK, "POST", "/v1/responses", marshal(t, object{"model": "vendor/fed", "input": "And?",
		"previous_response_id": answer["id"], "background": true}))
	h.fed.words <- ""
	close(h.fed.words)
	var shown []string
	for _, it := range h.fed.asked.Load().Items {
		shown = append(shown, string(it.Type()))
	}
	if want := "message function_call function_call_output message message"; strings.Join(shown, " ") != want {
		t.Errorf("after response %v the model sees %v", next["id"], shown)
	}
}

// A program learns why a call cannot be made, and continues. The model learns why a program
// failed, and at which line.
func TestProgramRefusals(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	lab := newToolServer(t, streamable)
	const f = `{"type":"function","name":"f","allowed_callers":["programmatic"]},{"type":"function","name":"direct"}`
	tools := func(more string) string { return `"tools":[{"type":"programmatic_tool_calling"},` + f + more + `]` }
	shell := `,{"type":"shell","environment":{"type":"container_auto"},"allowed_callers":["programmatic"]}`
	caught := func(call string) string { return "try { await " + call + " } catch (e) { text(e.message) }" }
	for name, c := range map[string]struct{ code, fields, want string }{
		"unknown tool": {caught("tools.unknown()"), tools(""), "There is no tool named unknown. There are: f"},
		"not allowed": {caught("tools.direct()"), tools(""),
			"Programs cannot call direct: its allowed_callers do not include them. Call it directly."},
		"itself": {caught(`tools.programmatic_tool_calling({code: "1"})`), tools(""),
			"Programs cannot call programmatic_tool_calling"},
		"approval": {caught(`tools.shell({commands: ["id"]})`),
			tools(shell) + `,"berth":{"require_approval":"always"}`, "needs the user's approval"},
		"server's": {caught("tools.lab__echo({text: 1})"),
			tools("," + mcpTool(h.reachable(lab.URL), `,"allowed_callers":["programmatic"]`)),
			"needs the user's approval"},
		"max calls": {caught(`tools.shell({commands: ["id"]})`), tools(shell) + `,"max_tool_calls":1`,
			"max_tool_calls is reached"},
		"syntax error": {"const a = 1\nconst b = )", tools(""),
			"[The program failed] SyntaxError: program: Line 2:11"},
		"exception": {"text('so far')\nlet a\na.b.c()", tools(""),
			"so far\n[The program failed] TypeError: Cannot read property 'b' of undefined\n    at program:3"},
		"no arguments": {`await tools.shell({})`, tools(shell), ""},
		"allowed tools": {caught("tools.f()"),
			tools("") + `,"tool_choice":{"type":"allowed_tools","mode":"auto","tools":[{"type":"programmatic_tool_calling"}]}`,
			"Programs cannot call f"},
	} {
		t.Run(name, func(t *testing.T) {
			answer := h.askProgram(c.code, c.fields)
			if got := resultOfProgram(t, answer); !strings.Contains(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
			if failed := strings.Contains(c.want, "[The program"); failed != (callsOf(answer,
				"program_output")[0]["status"] == "incomplete") {
				t.Errorf("the output is %v", callsOf(answer, "program_output")[0])
			}
		})
	}
	if got := lab.received(); len(got) > 0 {
		t.Errorf("the server received %v", got)
	}
	answer := h.call(http.StatusOK, "POST", "/v1/responses",
		`{"model":"scripted","input":"`+"```json f\\n{}\\n```"+`",`+tools("")+`}`)
	if types := callsOf(answer, "function_call"); len(types) > 0 || answer["status"] != "completed" {
		t.Errorf("a direct call of a tool for programs: %v", answer["output"])
	}
}

// A request that could not be answered is refused.
func TestProgramRequests(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	handler := api.New(h.opts)
	const item = `{"role":"user","content":"x"},{"type":"program","id":"cm_1","call_id":"p","code":"await tools.f()","fingerprint":"gAAAA"},
		{"type":"function_call","call_id":"c","name":"f","arguments":"{}","caller":{"type":"program","caller_id":"p"}},{"type":"function_call_output","call_id":"c","output":"1"}`
	const f = `{"type":"function","name":"f","allowed_callers":["programmatic"]}`
	for body, want := range map[string]string{
		`"input":"x","tools":[` + f +
			`]`: "Only programs can call 'f', by its 'allowed_callers'. Add a tool of type 'programmatic_tool_calling' to 'tools', or 'direct' to the 'allowed_callers'.",
		`"input":"x","tools":[{"type":"programmatic_tool_calling"},` + f +
			`],"tool_choice":{"type":"function","name":"f"}`: "Tool choice 'f' can be called by programs only. Choose 'programmatic_tool_calling'.",
		`"input":[` + item +
			`]`: "The input has outputs for calls of program 'cm_1'. Add a tool of type 'programmatic_tool_calling' to 'tools'.",
		`"input":[` + item + `],"tools":[{"type":"programmatic_tool_calling"},` + f +
			`]`: "The fingerprint of program 'cm_1' was not made by this server.",
		`"input":[{"type":"program_output","id":"cmo_1","call_id":"p","status":"completed","result":""}]`:                      "No tool call found for program output with call_id p.",
		`"input":"x","tools":[{"type":"programmatic_tool_calling"},{"type":"programmatic_tool_calling"}]`:                      "Duplicate tool",
		`"input":"x","tools":[{"type":"programmatic_tool_calling"},{"type":"file_search","allowed_callers":["programmatic"]}]`: "Unknown parameter: 'tools[1].allowed_callers'.",
	} {
		if status, answer := post(t, handler, `{"model":"scripted",`+body+`}`); status != http.StatusBadRequest ||
			!strings.Contains(answer, want) {
			t.Errorf("%s: %d %s, want %q", body, status, answer, want)
		}
	}
	// The program's output from another server needs no fingerprint of this one.
	done := strings.TrimSuffix(strings.Split(item, ",\n")[0], ",") +
		`,{"type":"program_output","id":"cmo_1","call_id":"p","status":"completed","result":"2"},{"role":"user","content":"y"}`
	if status, answer := post(t, handler, `{"model":"scripted","input":[`+done+`]}`); status != http.StatusOK {
		t.Errorf("an ended program: %d %s", status, answer)
	}
}

// Calls of the client and of the server in one round: the program waits for both. Calls
// without an answer of the client are refused as those of the model are.
func TestProgramRound(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	tools := `"tools":[{"type":"programmatic_tool_calling"},{"type":"shell","environment":{"type":"container_auto"},"allowed_callers":["programmatic"]},
		{"type":"function","name":"f","allowed_callers":["programmatic"]},{"type":"custom","name":"note","allowed_callers":["programmatic"]},
		{"type":"namespace","name":"crm","description":"d","tools":[{"type":"function","name":"find","allowed_callers":["programmatic"]}]}]`
	first := h.askProgram(`
		const [s, a, b, n, c] = await Promise.all([tools.shell({commands: ["echo here"]}), tools.f({n: 1}), tools.f({n: 2}), tools.note("a line"), tools.crm__find({q: "x"})])
		text([s.output[0].stdout, a, b.x, n, c, Math.random(), Date.now()])`, tools)
	calls := slices.Concat(callsOf(first, "function_call"), callsOf(first, "custom_tool_call"))
	if len(calls) != 4 || calls[2]["namespace"] != "crm" || calls[3]["input"] != "a line" ||
		len(callsOf(first, "shell_call_output")) != 1 {
		t.Fatalf("output: %v", first["output"])
	}
	note := outputFor(calls[3], "noted")
	note["type"] = "custom_tool_call_output"
	input := []any{outputFor(calls[1], `{"x": 2}`), outputFor(calls[0], "one"), note}
	var request object
	check(t, json.Unmarshal([]byte(`{"model":"scripted",`+tools+`}`), &request))
	request["previous_response_id"], request["input"] = first["id"], input
	h.wantError(http.StatusBadRequest, "POST", "/v1/responses", marshal(t, request),
		"No tool output found for function call "+calls[2]["call_id"].(string)+".", "input", "")
	request["input"] = append(input, outputFor(calls[2], "found"))
	var results []string
	for range 2 { // the program is continued twice, with the same clock and random numbers
		results = append(results, resultOfProgram(t, h.call(http.StatusOK, "POST", "/v1/responses",
			marshal(t, request))))
	}
	var values []any
	check(t, json.Unmarshal([]byte(results[0]), &values))
	if results[0] != results[1] || len(values) != 7 || fmt.Sprint(values[:5]) != "[here\n one 2 noted found]" {
		t.Errorf("results: %v", results)
	}
}
