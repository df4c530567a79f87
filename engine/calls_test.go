package engine_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/model"
)

// withClients offers one tool of each sort that the client runs.
const withClients = `"model":"played","tools":[
	{"type":"function","name":"add","parameters":{}},
	{"type":"custom","name":"sql","description":"Asks the harbour's database."},
	{"type":"local_shell"},
	{"type":"apply_patch"},
	{"type":"shell","environment":{"type":"local"}},
	{"type":"namespace","name":"crm","description":"Customers","tools":[
		{"type":"function","name":"add","parameters":{}},{"type":"custom","name":"note"}]}]`

func call(id, name, arguments string) turn {
	return turn{model.Call{ID: id, Name: name, Arguments: arguments}}
}

// Each kind of client tool shows its own item. The response ends, and the next request
// brings the output. The model then sees its own call and the output.
func TestClientCalls(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, function, arguments string
		item                      string // without its id
		output                    string
		seen                      string // what the model sees of the output, in JSON
		again                     string // the arguments that the model sees again, if not the same
	}{
		{"function", "add", `{"a":1}`,
			`{"type":"function_call","status":"completed","arguments":"{\"a\":1}","call_id":"call_1","name":"add"}`,
			`{"type":"function_call_output","call_id":"call_1","output":"2"}`, `"2"`, ""},
		{"function in a namespace", "crm__add", `{}`,
			`{"type":"function_call","status":"completed","arguments":"{}","call_id":"call_1","name":"add","namespace":"crm"}`,
			`{"type":"function_call_output","call_id":"call_1","output":"2"}`, `"2"`, ""},
		{"custom", "sql", `{"input":"SELECT \"x\""}`,
			`{"type":"custom_tool_call","status":"completed","call_id":"call_1","input":"SELECT \"x\"","name":"sql"}`,
			`{"type":"custom_tool_call_output","call_id":"call_1","output":[{"type":"input_text","text":"row"}]}`,
			`[{"type":"input_text","text":"row"}]`, ""},
		{"custom in a namespace", "crm__note", `{"input":"n"}`,
			`{"type":"custom_tool_call","status":"completed","call_id":"call_1","input":"n","name":"note","namespace":"crm"}`,
			`{"type":"custom_tool_call_output","call_id":"call_1","output":"ok"}`, `"ok"`, ""},
		{"custom without JSON", "sql", `SELECT 1`,
			`{"type":"custom_tool_call","status":"completed","call_id":"call_1","input":"SELECT 1","name":"sql"}`,
			`{"type":"custom_tool_call_output","call_id":"call_1","output":"ok"}`, `"ok"`, `{"input":"SELECT 1"}`},
		{"custom with a name of its own", "sql", `{"query":"SELECT 1"}`,
			`{"type":"custom_tool_call","status":"completed","call_id":"call_1","input":"SELECT 1","name":"sql"}`,
			`{"type":"custom_tool_call_output","call_id":"call_1","output":"ok"}`, `"ok"`, `{"input":"SELECT 1"}`},
		{"local shell", "local_shell", `{"command":["ls","-a"],"timeout_ms":5}`,
			`{"type":"local_shell_call","status":"completed","action":{"type":"exec","command":["ls","-a"],"env":{},"timeout_ms":5},"call_id":"call_1"}`,
			`{"type":"local_shell_call_output","call_id":"call_1","output":"."}`, `"."`, ""},
		{"local shell with a line", "local_shell", `{"command":"ls | wc"}`,
			`{"type":"local_shell_call","status":"completed","action":{"type":"exec","command":["bash","-lc","ls | wc"],"env":{}},"call_id":"call_1"}`,
			`{"type":"local_shell_call_output","call_id":"call_1","output":"0"}`, `"0"`,
			`{"command":["bash","-lc","ls | wc"]}`},
		{"create a file", "apply_patch", `{"type":"create_file","path":"a","diff":"+x\n"}`,
			`{"type":"apply_patch_call","status":"completed","call_id":"call_1","operation":{"type":"create_file","diff":"+x\n","path":"a"}}`,
			`{"type":"apply_patch_call_output","call_id":"call_1","status":"completed"}`, `"completed"`, ""},
		{"create an empty file", "apply_patch", `{"type":"create_file","path":"a"}`,
			`{"type":"apply_patch_call","status":"completed","call_id":"call_1","operation":{"type":"create_file","diff":"","path":"a"}}`,
			`{"type":"apply_patch_call_output","call_id":"call_1","status":"completed","output":null}`, `"completed"`,
			`{"type":"create_file","diff":"","path":"a"}`},
		{"delete a file", "apply_patch", `{"path":"a","type":"delete_file"}`,
			`{"type":"apply_patch_call","status":"completed","call_id":"call_1","operation":{"type":"delete_file","path":"a"}}`,
			`{"type":"apply_patch_call_output","call_id":"call_1","status":"failed","output":"no such file"}`,
			`"failed: no such file"`, ""},
		{"shell", "shell", `{"commands":["ls"]}`,
			`{"type":"shell_call","status":"completed","action":{"commands":["ls"],"max_output_length":null,"timeout_ms":null},"call_id":"call_1","environment":{"type":"local"}}`,
			`{"type":"shell_call_output","call_id":"call_1","output":[{"outcome":{"type":"exit","exit_code":0},"stderr":"","stdout":"."}]}`,
			`"{\"output\":[{\"outcome\":{\"type\":\"exit\",\"exit_code\":0},\"stderr\":\"\",\"stdout\":\".\"}]}"`,
			`{"commands":["ls"],"max_output_length":null,"timeout_ms":null}`},
	} {
		runInBubble(t, tc.name, func(t *testing.T) {
			h := newHouse(t, call("call_1", tc.function, tc.arguments), say("thanks"))
			first := h.final(h.create(`{` + withClients + `,"input":"x"}`).ID)
			if first.Status != berth.StatusCompleted || len(first.Output) != 1 {
				t.Fatalf("status %s, output %v", first.Status, outline(t, first.Output))
			}
			var got, want map[string]any
			decode(t, first.Output[0], &got)
			delete(got, "id")
			if err := json.Unmarshal([]byte(tc.item), &want); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("item (-want +got):\n%s", diff)
			}
			previous := `,"previous_response_id":"` + string(first.ID) + `"}`
			words := strings.ReplaceAll(got["type"].(string), "_", " ")
			if _, err := h.tryCreate(t.Context(), `{`+withClients+`,"input":"well?"`+previous); err == nil ||
				!strings.Contains(err.Error(), "No tool output found for "+words+" call_1.") {
				t.Errorf("without the output: got %v", err)
			}
			stray := strings.ReplaceAll(tc.output, "call_1", "call_x")
			if _, err := h.tryCreate(t.Context(), `{`+withClients+`,"input":[`+stray+`]`+previous); err == nil ||
				!strings.Contains(err.Error(), "No tool call found for "+words+" output with call_id call_x.") {
				t.Errorf("an output without its call: got %v", err)
			}
			h.final(h.create(`{` + withClients + `,"input":[` + tc.output + `]` + previous).ID)
			items := h.model.requests[1].Items
			if len(items) != 3 {
				t.Fatalf("the model saw %d items, want 3", len(items))
			}
			var c berth.FunctionCall
			var o berth.FunctionCallOutput
			decode(t, items[1], &c)
			decode(t, items[2], &o)
			if tc.again == "" {
				tc.again = tc.arguments
			}
			if c.Name != tc.function || c.CallID != "call_1" || !sameJSON(t, c.Arguments, tc.again) {
				t.Errorf("the model saw the call %s %s, want %s %s", c.Name, c.Arguments, tc.function, tc.again)
			}
			if o.CallID != "call_1" || !sameJSON(t, string(o.Output), tc.seen) {
				t.Errorf("the model saw the output %s, want %s", o.Output, tc.seen)
			}
		})
	}
}

func sameJSON(t *testing.T, a, b string) bool {
	t.Helper()
	var x, y any
	if err := json.Unmarshal([]byte(a), &x); err != nil {
		t.Fatalf("%v in %s", err, a)
	}
	if err := json.Unmarshal([]byte(b), &y); err != nil {
		t.Fatalf("%v in %s", err, b)
	}
	return cmp.Equal(x, y)
}

// A call that can neither run nor be passed to the client is refused to the model, which
// tries again. The client sees at most the start of the call.
func TestRefusedCalls(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, function, arguments string
		want                      string // for the model
		shown                     []string
	}{
		{"unknown function", "python", `{}`, "no function named", nil},
		{"local shell without a command", "local_shell", `{"command":[]}`, "no command", nil},
		{"local shell that is cut", "local_shell", `{"command":["ls`, "not valid", nil},
		{"local shell with a bad timeout", "local_shell", `{"command":["ls"],"timeout_ms":0}`, "timeout_ms", nil},
		{"patch of no kind", "apply_patch", `{"path":"a","diff":"+x"}`, "create_file, update_file or delete_file", nil},
		{"patch of an unknown kind", "apply_patch", `{"type":"rename_file","path":"a","diff":"+x"}`,
			"create_file, update_file or delete_file", nil},
		{"patch of no file", "apply_patch", `{"type":"delete_file","path":""}`, "path", nil},
		{"update without a diff", "apply_patch", `{"type":"update_file","path":"a"}`, "needs a",
			[]string{"apply_patch_call incomplete"}},
		{"patch that is cut", "apply_patch", `{"type":"create_file","path":"a","diff":"+x`, "end within",
			[]string{"apply_patch_call incomplete"}},
		{"custom input that is cut", "sql", `{"input":"SEL`, "end within", []string{"custom_tool_call incomplete"}},
		{"shell without commands", "shell", `{}`, "no commands", []string{"shell_call incomplete "}},
	} {
		runInBubble(t, tc.name, func(t *testing.T) {
			h := newHouse(t, append(turn{model.Text{Text: "Let me see."}}, call("call_1", tc.function,
				tc.arguments)...), say("sorry"))
			r := h.final(h.create(`{` + withClients + `,"input":"x"}`).ID)
			want := append(append([]string{"message completed Let me see."}, tc.shown...), "message completed sorry")
			if diff := cmp.Diff(want, outline(t, r.Output)); diff != "" {
				t.Errorf("output (-want +got):\n%s", diff)
			}
			if len(h.model.requests) != 2 {
				t.Fatalf("the model was called %d times, want twice", len(h.model.requests))
			}
			items := h.model.requests[1].Items
			if len(items) != 4 || items[2].Type() != berth.ItemFunctionCall || items[3].CallID() != items[2].CallID() ||
				!strings.Contains(string(items[3].Raw()), tc.want) {
				t.Errorf("the model saw %s, want the call and an output with %q", asJSON(t, items), tc.want)
			}
			h.model.turns = []turn{say("on")}
			h.final(h.create(`{` + withClients + `,"input":"go on","previous_response_id":"` + string(r.ID) + `"}`).ID)
		})
	}
}

// A response fails after a number of turns with only refused calls.
func TestRefusedForEver(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var turns []turn
		for i := range 20 {
			turns = append(turns, call(fmt.Sprint("call_", i), "python", "{}"))
		}
		h := newHouse(t, turns...)
		r := h.final(h.create(`{` + withClients + `,"input":"x"}`).ID)
		if r.Status != berth.StatusFailed || !strings.Contains(r.Error.Message, "no function named") {
			t.Errorf("status %s, error %v", r.Status, r.Error)
		}
		if got, want := len(h.model.requests), 5; got != want {
			t.Errorf("the model was called %d times, want %d", got, want)
		}
	})
}

// With a refused call beside a valid client call, the client answers first.
func TestRefusedBesideGood(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		h := newHouse(t, turn{
			model.Call{Index: 0, ID: "call_1", Name: "python", Arguments: "{}"},
			model.Call{Index: 1, ID: "call_2", Name: "add", Arguments: "{}"},
		})
		r := h.final(h.create(`{` + withClients + `,"input":"x"}`).ID)
		if diff := cmp.Diff([]string{"function_call completed add{}"},
			outline(t, r.Output)); r.Status != berth.StatusCompleted || diff != "" {
			t.Errorf("status %s, output (-want +got):\n%s", r.Status, diff)
		}
	})
}

// After a crash a refused call is forgotten: the turn is requested again, and the response
// ends.
func TestRefusedAndResumed(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		h := newHouse(t, call("call_1", "python", `{}`), turn{hang{}}, say("sorry"))
		r := h.create(`{` + withClients + `,"input":"x","background":true}`)
		h.waitCalled(2)
		h.stop()
		h.start()
		if err := h.engine.Recover(t.Context()); err != nil {
			t.Fatal(err)
		}
		got := h.final(r.ID)
		if diff := cmp.Diff([]string{"message completed sorry"},
			outline(t, got.Output)); got.Status != berth.StatusCompleted || diff != "" {
			t.Errorf("status %s, output (-want +got):\n%s", got.Status, diff)
		}
		if n := len(h.model.requests[2].Items); n != 1 {
			t.Errorf("the model saw %d items after the restart, want 1", n)
		}
	})
}

// Interleaved calls have their own places in the output, in the order in which they can be
// shown.
func TestInterleavedClientCalls(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		h := newHouse(t, turn{
			model.Call{Index: 0, ID: "call_1", Name: "apply_patch", Arguments: `{"diff":"+x",`},
			model.Call{Index: 1, ID: "call_2", Name: "sql", Arguments: `{"input":"SEL`},
			model.Call{Index: 0, Arguments: `"type":"create_file","path":"a"}`},
			model.Call{Index: 1, Arguments: `ECT"}`},
			model.Call{Index: 2, ID: "call_3", Name: "local_shell", Arguments: `{"command":["ls"]}`},
		})
		r := h.final(h.create(`{` + withClients + `,"input":"x"}`).ID)
		want := []string{"custom_tool_call completed", "apply_patch_call completed", "local_shell_call completed"}
		if diff := cmp.Diff(want, outline(t, r.Output)); diff != "" {
			t.Errorf("output (-want +got):\n%s", diff)
		}
		if got := asJSON(t, r.Output); !strings.Contains(got, `"SELECT"`) || !strings.Contains(got, `"+x"`) {
			t.Errorf("got %s", got)
		}
	})
}

// Each form of tool_choice selects its tool.
func TestToolChoices(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		for _, tc := range []struct {
			choice string
			want   model.ToolChoice
			offers int
		}{
			{`"required"`, model.ToolChoice{Mode: "required"}, 7},
			{`{"type":"function","name":"add"}`, model.ToolChoice{Mode: "function", Name: "add"}, 7},
			{`{"type":"function","name":"add","namespace":"crm"}`,
				model.ToolChoice{Mode: "function", Name: "crm__add"}, 7},
			{`{"type":"custom","name":"sql"}`, model.ToolChoice{Mode: "function", Name: "sql"}, 7},
			{`{"type":"apply_patch"}`, model.ToolChoice{Mode: "function", Name: "apply_patch"}, 7},
			{`{"type":"local_shell"}`, model.ToolChoice{Mode: "function", Name: "local_shell"}, 7},
			{`{"type":"shell"}`, model.ToolChoice{Mode: "function", Name: "shell"}, 7},
			{`{"type":"allowed_tools","mode":"required","tools":[{"type":"custom","name":"sql"},{"type":"shell"},{"type":"apply_patch"},{"type":"local_shell"}]}`,
				model.ToolChoice{Mode: "required"}, 4},
			{`{"type":"allowed_tools","mode":"auto","tools":[{"type":"namespace","name":"crm"},{"type":"function","name":"add"}]}`,
				model.ToolChoice{Mode: "auto"}, 3},
		} {
			h := newHouse(t, say("ok"))
			h.final(h.create(`{` + withClients + `,"input":"x","tool_choice":` + tc.choice + `}`).ID)
			if diff := cmp.Diff(tc.want, h.model.requests[0].ToolChoice); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.choice, diff)
			}
			if got := len(h.model.requests[0].Tools); got != tc.offers {
				t.Errorf("%s: %d tools offered, want %d", tc.choice, got, tc.offers)
			}
		}
		for _, choice := range []string{
			`{"type":"custom","name":"add"}`, `{"type":"function","name":"sql"}`,
			`{"type":"function","name":"note","namespace":"crm"}`,
			`{"type":"allowed_tools","mode":"auto","tools":[{"type":"custom","name":"nope"}]}`,
		} {
			h := newHouse(t)
			if _, err := h.tryCreate(t.Context(),
				`{`+withClients+`,"input":"x","tool_choice":`+choice+`}`); err == nil || !strings.Contains(err.Error(),
				"not found in 'tools'") {
				t.Errorf("%s: got %v", choice, err)
			}
		}
	})
}

// A function call whose arguments are not valid JSON is incomplete. The model is called
// again, and the client does not receive the call.
func TestTruncatedArguments(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		h := newHouse(t, call("call_1", "add", `{"a":`), call("call_2", "add", `{"a":1}`))
		r := h.final(h.create(`{` + withClients + `,"input":"x"}`).ID)
		var got []string
		for _, it := range r.Output {
			var c berth.FunctionCall
			decode(t, it, &c)
			got = append(got, fmt.Sprintf("%s %s %s", c.CallID, c.Status, c.Arguments))
		}
		if diff := cmp.Diff([]string{`call_1 incomplete {"a":`, `call_2 completed {"a":1}`}, got); diff != "" {
			t.Errorf("output (-want +got):\n%s", diff)
		}
		if again := asJSON(t, h.model.requests[1].Items); r.Status != berth.StatusCompleted || !strings.Contains(again,
			"not valid JSON") {
			t.Errorf("status %s; the model was shown %s", r.Status, again)
		}
		previous := `,"previous_response_id":"` + string(r.ID) + `"}`
		h.model.turns = append(h.model.turns, say("ok"))
		next := h.final(h.create(`{` + withClients +
			`,"input":[{"type":"function_call_output","call_id":"call_2","output":"2"}]` + previous).ID)
		if next.Status != berth.StatusCompleted {
			t.Errorf("after the output: %v", next)
		}
	})
}

// tool_choice "required" is refused without tools.
func TestRequiredWithoutTools(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		for _, tools := range []string{"", `,"tools":[]`} {
			h := newHouse(t, say("ok"))
			_, err := h.tryCreate(t.Context(), `{"model":"played","input":"x","tool_choice":"required"`+tools+`}`)
			e, ok := errors.AsType[*berth.Error](err)
			if !ok || e.Code != berth.CodeInvalid || e.Param != "tool_choice" ||
				e.Message != "Tool choice 'required' must be specified with 'tools' parameter." {
				t.Errorf("tools %q: got %v", tools, err)
			}
		}
	})
}

// Tools with the same function name are refused.
func TestDuplicateTools(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		const custom = `{"type":"custom","name":"f"}`
		for _, tc := range []struct{ tools, name, param string }{
			{`{"type":"function","name":"f"},` + custom, "f", "tools[1].name"},
			{`{"type":"shell"},{"type":"function","name":"shell"}`, "shell", "tools[1].name"},
			{`{"type":"shell"},{"type":"shell"}`, "shell", "tools[1]"},
			{`{"type":"local_shell"},{"type":"local_shell"}`, "local_shell", "tools[1]"},
			{`{"type":"function","name":"n__f"},{"type":"namespace","name":"n","description":"","tools":[` + custom +
				`]}`, "n__f", "tools[1].tools[0].name"},
		} {
			h := newHouse(t)
			_, err := h.tryCreate(t.Context(), `{"model":"played","input":"x","tools":[`+tc.tools+`]}`)
			e, ok := errors.AsType[*berth.Error](err)
			if !ok || e.Param != tc.param || e.Wire != "invalid_value" || !strings.Contains(e.Message,
				"Duplicate tool: more than one tool is named '"+tc.name+"'.") {
				t.Errorf("%s: got %v", tc.tools, err)
			}
		}
	})
}

// The model sees the names and descriptions of the client's tools.
func TestClientSpecs(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		h := newHouse(t, say("ok"))
		h.final(h.create(`{"model":"played","input":"x","tools":[
		{"type":"function","name":"f","description":"Tells the tide.","output_schema":{"type":"string"}},
		{"type":"custom","name":"c","description":"Asks.","format":{"type":"grammar","syntax":"lark","definition":"start: \"a\""}},
		{"type":"custom","name":"d"},{"type":"local_shell"},{"type":"apply_patch"}]}`).ID)
		tools := h.model.requests[0].Tools
		for i, want := range []string{
			"Tells the tide.\n\nReturns JSON of this schema: {\"type\":\"string\"}",
			"must match this lark grammar:\n\nstart: \"a\"",
			"the one string \"input\"",
			"Runs one command on the user's machine",
			"*** End of File",
		} {
			if !strings.Contains(tools[i].Description, want) {
				t.Errorf("the description of %s is %q, want %q in it", tools[i].Name, tools[i].Description, want)
			}
		}
		if f := tools[0]; f.Parameters != nil || f.OutputSchema != nil || f.Strict == nil || *f.Strict {
			t.Errorf("the function is %+v", f)
		}
		if strings.Contains(tools[2].Description, "grammar") || strings.HasPrefix(tools[2].Description, "\n") {
			t.Errorf("a tool without a format is described as %q", tools[2].Description)
		}
	})
}

// A file that a client's tool returns reaches the model as data.
func TestFileInOutput(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		h := newHouse(t, say("a cat"))
		h.final(h.create(`{"model":"played","input":[{"type":"custom_tool_call","call_id":"c","name":"f","input":""},
		{"type":"custom_tool_call_output","call_id":"c","output":[{"type":"input_image","file_id":"file-cat"}]}]}`).ID)
		if got := asJSON(t, h.model.requests[0].Items[1]); !strings.Contains(got, `"data:image/png;base64,bWVvdw=="`) ||
			strings.Contains(got, "file_id") {
			t.Errorf("the model saw %s", got)
		}
		_, err := h.tryCreate(t.Context(), `{"model":"played","input":[{"type":"function_call","call_id":"c","name":"f","arguments":""},
		{"type":"function_call_output","call_id":"c","output":[{"type":"input_file","file_id":"file-dog"}]}]}`)
		if berth.ErrorCode(err) != berth.CodeNotFound {
			t.Errorf("a file that is not there: got %v", err)
		}
	})
}

// The client searches for tools. The model sees a deferred tool only after a search has
// found it, in this response and those that continue it.
func TestToolSearch(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		const tools = `"model":"played","tools":[{"type":"function","name":"tide","defer_loading":true},{"type":"function","name":"add"},
		{"type":"tool_search","execution":"client","description":"Finds tools.","parameters":{"type":"object"}}]`
		h := newHouse(t, call("call_1", "tool_search", `{"goal":"tides"}`), call("call_2", "tide", `{}`),
			call("call_3", "crm__note", `{"input":"x"}`), say("ok"))
		offered := func(turn int) string {
			var names []string
			for _, f := range h.model.requests[turn].Tools {
				names = append(names, f.Name)
			}
			return strings.Join(names, " ")
		}
		first := h.final(h.create(`{` + tools + `,"input":"x"}`).ID)
		if got, want := offered(0), "add tool_search"; got != want {
			t.Errorf("offered %q, want %q", got, want)
		}
		var search berth.ToolSearchCall
		decode(t, first.Output[0], &search)
		if search.Type != berth.ItemToolSearchCall || search.Execution != "client" ||
			string(search.Arguments) != `{"goal":"tides"}` || search.Status != berth.StatusCompleted {
			t.Errorf("the call is %+v", search)
		}
		second := h.final(h.create(`{` + tools + `,"previous_response_id":"` + string(first.ID) + `","input":[{"type":"tool_search_output","call_id":"call_1","tools":[
		{"type":"function","name":"tide","defer_loading":true},{"type":"function","name":"add"},
		{"type":"namespace","name":"crm","description":"","tools":[{"type":"custom","name":"note"}]}]}]}`).ID)
		if got, want := offered(1), "add tool_search tide crm__note"; got != want {
			t.Errorf("offered %q, want %q", got, want)
		}
		if got := string(h.model.requests[1].Items[2].Raw()); !strings.Contains(got,
			"These can be called now: tide, add, crm__note") {
			t.Errorf("the model saw %s", got)
		}
		if diff := cmp.Diff([]string{"function_call completed tide{}"}, outline(t, second.Output)); diff != "" {
			t.Errorf("output (-want +got):\n%s", diff)
		}
		third := h.final(h.create(`{` + tools + `,"previous_response_id":"` + string(second.ID) +
			`","input":[{"type":"function_call_output","call_id":"call_2","output":"high"}]}`).ID)
		if diff := cmp.Diff([]string{"custom_tool_call completed"}, outline(t, third.Output)); diff != "" {
			t.Errorf("output (-want +got):\n%s", diff)
		}
		_, err := h.tryCreate(t.Context(),
			`{"model":"played","input":"x","tools":[{"type":"function","name":"tide","defer_loading":true}]}`)
		if err == nil || !strings.Contains(err.Error(), "need a tool of type 'tool_search'") {
			t.Errorf("a deferred tool without a search: got %v", err)
		}
	})
}

// additional_tools adds tools and shows the model no other content.
func TestAdditionalTools(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		h := newHouse(t, call("call_1", "sql", `{"input":"x"}`))
		r := h.final(h.create(`{"model":"played","input":[{"type":"additional_tools","role":"developer","tools":[{"type":"custom","name":"sql"}]},
		{"type":"message","role":"user","content":"x"}]}`).ID)
		if diff := cmp.Diff([]string{"custom_tool_call completed"}, outline(t, r.Output)); diff != "" {
			t.Errorf("output (-want +got):\n%s", diff)
		}
		if n := len(h.model.requests[0].Items); n != 1 {
			t.Errorf("the model saw %d items, want 1", n)
		}
	})
}

// A call that a client sends again beside its output, without its id, counts once.
func TestCallSentAgain(t *testing.T) {
	const tools = `"model":"played","tools":[{"type":"function","name":"f","parameters":{"type":"object"},"strict":false}]`
	const (
		again  = `{"type":"function_call","call_id":"call_1","name":"f","arguments":"{\"b\": 2, \"a\": 1}"}`
		other  = `{"type":"function_call","call_id":"call_1","name":"f","arguments":"{}"}`
		output = `{"type":"function_call_output","call_id":"call_1","output":"3"}`
		user   = `{"role":"user","content":"x"}`
		next   = `{"type":"function_call","call_id":"call_2","name":"f","arguments":"{}"},{"type":"function_call_output","call_id":"call_2","output":"4"}`
	)
	for _, tc := range []struct {
		name, input, refused string
		chain                bool
		seen                 int // items that the model sees
	}{
		{name: "in a chain", chain: true, input: again + `,` + output, seen: 3},
		{name: "in a chain, with others", chain: true, input: again + `,` + output + `,` + next + `,` + user, seen: 6},
		{name: "twice in the input", input: user + `,` + again + `,` + again + `,` + output, seen: 3},
		{name: "twice with two outputs", input: user + `,` + again + `,` + again + `,` + output + `,` + output, seen: 5},
		{name: "the same call_id later", input: user + `,` + again + `,` + output + `,` + again + `,` + output, seen: 5},
		{name: "another call with the call_id", chain: true, input: other + `,` + output,
			refused: "Found more calls than outputs with call_id call_1."},
		{name: "without an output", chain: true, input: again, refused: "No tool output found for function call call_1."},
	} {
		runInBubble(t, tc.name, func(t *testing.T) {
			h := newHouse(t, call("call_1", "f", `{"a":1,"b":2}`), say("thanks"))
			request := `{` + tools + `,"input":[` + tc.input + `]}`
			turn := 0
			if tc.chain {
				first := h.final(h.create(`{` + tools + `,"input":"x"}`).ID)
				request = strings.TrimSuffix(request, "}") + `,"previous_response_id":"` + string(first.ID) + `"}`
				turn = 1
			}
			if tc.refused != "" {
				if _, err := h.tryCreate(t.Context(), request); err == nil || !strings.Contains(err.Error(), tc.refused) {
					t.Errorf("got %v, want %q", err, tc.refused)
				}
				return
			}
			h.final(h.create(request).ID)
			if got := h.model.requests[turn].Items; len(got) != tc.seen {
				t.Errorf("the model saw %d items, want %d: %v", len(got), tc.seen, outline(t, got))
			}
		})
	}
}

// A call that is sent again with its id is refused, as each repeated item is.
func TestCallSentAgainWithID(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		h := newHouse(t, call("call_1", "f", `{}`), say("thanks"))
		const tools = `"model":"played","tools":[{"type":"function","name":"f","parameters":{"type":"object"},"strict":false}]`
		first := h.final(h.create(`{` + tools + `,"input":"x"}`).ID)
		_, err := h.tryCreate(t.Context(), `{`+tools+`,"previous_response_id":"`+string(first.ID)+`","input":[`+
			string(first.Output[0].Raw())+`,{"type":"function_call_output","call_id":"call_1","output":"3"}]}`)
		if err == nil || !strings.Contains(err.Error(), "Duplicate item found") {
			t.Errorf("got %v", err)
		}
	})
}
