package api_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/model"
	"github.com/berth-run/berth/model/modeltest"
)

// The tables are from recordings of OpenAI's service. Where Berth differs, the line is
// Berth's and a comment explains it.

// opening and closing frame every stream.
var opening = []string{"created response{in_progress []}", "in_progress response{in_progress []}"}

func completed(output string) []string {
	return []string{"completed response{completed [" + output + "] usage}"}
}

// message returns the events of a message. phase is "" or "phase:… ".
func message(phase, logprobs string) []string {
	return []string{
		"output_item.added item{content:[] id:msg_ " + phase +
			"role:assistant status:in_progress type:message} output_index",
		`content_part.added content_index item_id:msg_ output_index part{annotations:[] logprobs:[] text:"" type:output_text}`,
		"output_text.delta content_index delta item_id:msg_ " + logprobs + " output_index",
		"output_text.done content_index item_id:msg_ " + logprobs + " output_index text",
		"content_part.done content_index item_id:msg_ output_index part{annotations:[] " + logprobs +
			" text type:output_text}",
		"output_item.done item{content:[{annotations:[] " + logprobs + " text type:output_text}] id:msg_ " + phase +
			"role:assistant status:completed type:message} output_index",
	}
}

var said = message("", "logprobs:[]")

// cited is a message that mentions a file of the container.
var cited = func() []string {
	const citation = "{container_id:cntr_ end_index file_id:cfile_ filename start_index type:container_file_citation}"
	told := slices.Clone(said)
	for _, i := range []int{4, 5} {
		told[i] = strings.Replace(told[i], "annotations:[]", "annotations:["+citation+"]", 1)
	}
	return slices.Insert(told, 3,
		"output_text.annotation.added annotation"+citation+" annotation_index content_index item_id:msg_ output_index")
}()

// functionCalled has a name in arguments.done, as OpenAI's document requires and the
// recordings do not show.
var functionCalled = []string{
	`output_item.added item{arguments:"" call_id:call_ id:fc_ name status:in_progress type:function_call} output_index`,
	"function_call_arguments.delta delta item_id:fc_ output_index",
	"function_call_arguments.done arguments item_id:fc_ name output_index",
	"output_item.done item{arguments call_id:call_ id:fc_ name status:completed type:function_call} output_index",
}

var summarized = []string{
	"output_item.added item{id:rs_ summary:[] type:reasoning} output_index",
	`reasoning_summary_part.added item_id:rs_ output_index part{text:"" type:summary_text} summary_index`,
	"reasoning_summary_text.delta delta item_id:rs_ output_index summary_index",
	"reasoning_summary_text.done item_id:rs_ output_index summary_index text",
	"reasoning_summary_part.done item_id:rs_ output_index part{text type:summary_text} summary_index",
	"output_item.done item{id:rs_ summary:[{text type:summary_text}] type:reasoning} output_index",
}

// thought is reasoning that the hosted service never shows, as its document has it.
// kept is "encrypted_content " if the request includes that.
func thought(kept string) []string {
	return []string{
		"output_item.added item{" + kept + "id:rs_ summary:[] type:reasoning} output_index",
		`content_part.added content_index item_id:rs_ output_index part{text:"" type:reasoning_text}`,
		"reasoning_text.delta content_index delta item_id:rs_ output_index",
		"reasoning_text.done content_index item_id:rs_ output_index text",
		"content_part.done content_index item_id:rs_ output_index part{text type:reasoning_text}",
		"output_item.done item{content:[{text type:reasoning_text}] " + kept +
			"id:rs_ summary:[] type:reasoning} output_index",
	}
}

// shellCalled is a call of the shell in an environment.
func shellCalled(environment string) []string {
	return []string{
		"output_item.added item{action{commands:[] max_output_length:null timeout_ms:null} call_id:call_ " +
			environment + " id:sh_ status:in_progress type:shell_call} output_index",
		`shell_call_command.added command:"" command_index output_index`,
		"shell_call_command.delta command_index delta output_index",
		"shell_call_command.done command command_index output_index",
		"output_item.done item{action{commands max_output_length:null timeout_ms:null} call_id:call_ " + environment +
			" id:sh_ status:completed type:shell_call} output_index",
	}
}

var inContainer = shellCalled("environment{container_id:cntr_ type:container_reference}")

// shellAnswered starts in progress, because output is sent while commands run. The
// recordings wait for the commands' end and start with completed.
var shellAnswered = []string{
	"output_item.added item{call_id:call_ id:sho_ max_output_length:null output:[] status:in_progress type:shell_call_output} output_index",
	"shell_call_output_content.delta command_index delta{stdout} item_id:sho_ output_index",
	`shell_call_output_content.done command_index item_id:sho_ output:[{outcome{exit_code type:exit} stderr:"" stdout}] output_index`,
	`output_item.done item{call_id:call_ id:sho_ max_output_length:null output:[{outcome{exit_code type:exit} stderr:"" stdout}] status:completed type:shell_call_output} output_index`,
}

// stream joins the parts of a stream.
func stream(parts ...[]string) []string {
	return slices.Concat(append([][]string{opening}, parts...)...)
}

func raw(item string) berth.Item {
	var it berth.Item
	if err := json.Unmarshal([]byte(item), &it); err != nil {
		panic(err)
	}
	return it
}

const ctr = `"input":"x","tools":[{"type":"shell","environment":{"type":"container_auto"}}]`

var words = []modeltest.Step{model.Text{Text: "Ahoy, "}, model.Text{Text: "harbour."}}

func calls(name string, arguments ...string) []modeltest.Step {
	steps := []modeltest.Step{model.Call{ID: "call_1", Name: name}}
	for _, a := range arguments {
		steps = append(steps, model.Call{Arguments: a})
	}
	return steps
}

var recordings = []recording{
	{name: "text", request: `"input":"x"`, says: words, want: stream(said, completed("message"))},
	{name: "text with probabilities",
		request: `"input":"x","top_logprobs":1,"include":["message.output_text.logprobs"]`,
		says: []modeltest.Step{model.Text{Text: "Ahoy",
			Logprobs: []json.RawMessage{json.RawMessage(
				`{"token":"Ahoy","logprob":-0.1,"bytes":[65],"top_logprobs":[{"token":"Ahoy","logprob":-0.1,"bytes":[65]}]}`)}}},
		want: stream(message("", "logprobs:[{bytes logprob token top_logprobs:[{bytes logprob token}]}]"),
			completed("message"))},
	{name: "refusal", request: `"input":"x"`,
		says: []modeltest.Step{model.Refusal{Text: "I will "}, model.Refusal{Text: "not."}}, want: stream([]string{
			"output_item.added item{content:[] id:msg_ role:assistant status:in_progress type:message} output_index",
			`content_part.added content_index item_id:msg_ output_index part{refusal:"" type:refusal}`,
			"refusal.delta content_index delta item_id:msg_ output_index",
			"refusal.done content_index item_id:msg_ output_index refusal",
			"content_part.done content_index item_id:msg_ output_index part{refusal type:refusal}",
			"output_item.done item{content:[{refusal type:refusal}] id:msg_ role:assistant status:completed type:message} output_index",
		}, completed("message"))},
	{name: "text in phases", request: `"input":"x"`, plays: []model.Delta{
		model.Text{Text: "I look first.", Phase: "commentary"}, model.Text{Text: "Here it ", Phase: "final_answer"},
		model.Text{Text: "is.", Phase: "final_answer"},
	}, want: stream(message("phase:commentary ", "logprobs:[]"), message("phase:final_answer ", "logprobs:[]"),
		completed("message message"))},
	{name: "error", request: `"input":"x"`,
		fails: &modeltest.Refusal{Status: http.StatusTooManyRequests, Code: "insufficient_quota",
			Message: "You exceeded your current quota."},
		// The fields of the error are beside it too, as OpenAI's document requires.
		want: stream([]string{"error code error{code message param:null type:server_error} message param:null",
			"failed response{failed [] error}"})},

	{name: "function", request: `"input":"x","tools":[{"type":"function","name":"parallel"}]`,
		says: calls("parallel", `{"tool_uses":[{"recipient_name":"functions.weather",`, `"parameters":{}}]}`),
		want: stream(functionCalled, completed("function_call"))},
	{name: "functions side by side", request: `"input":"x","tools":[{"type":"function","name":"f"}]`,
		says: []modeltest.Step{model.Text{Text: "Both."}, model.Call{ID: "call_1", Name: "f", Arguments: "{}"},
			model.Call{Index: 1, ID: "call_2", Name: "f", Arguments: "{}"}},
		want: stream(said, functionCalled, functionCalled, completed("message function_call function_call"))},
	{name: "reasoning, then a function", request: `"input":"x","tools":[{"type":"function","name":"calculator"}]`,
		plays: []model.Delta{model.Thought{Text: "**Calcu", Summary: true},
			model.Thought{Text: "lating**", Summary: true}, model.Call{ID: "call_1", Name: "calculator",
				Arguments: `{"a":12}`}},
		want: stream(summarized, functionCalled, completed("reasoning function_call"))},
	{name: "reasoning, then a message", request: `"input":"x"`,
		plays: []model.Delta{model.Thought{Text: "**Counting**", Summary: true},
			model.Text{Text: "Three.", Phase: "final_answer"}},
		want: stream(summarized, message("phase:final_answer ", "logprobs:[]"), completed("reasoning message"))},
	{name: "reasoning that the client keeps",
		request: `"input":"x","store":false,"include":["reasoning.encrypted_content"],"tools":[{"type":"function","name":"f"}]`,
		says: []modeltest.Step{model.Thought{Text: "Let me "}, model.Thought{Text: "see."},
			model.Call{ID: "call_1", Name: "f", Arguments: "{}"}}, want: stream(thought("encrypted_content "),
			functionCalled, completed("reasoning function_call"))},
	{name: "code interpreter", request: `"input":"x","tools":[{"type":"code_interpreter","container":{"type":"auto"}}]`,
		says: calls("code_interpreter", `{"code":"sums`, `[:20]\n"}`), then: words, want: stream([]string{
			`output_item.added item{code:"" container_id:cntr_ id:ci_ outputs:[] status:in_progress type:code_interpreter_call} output_index`,
			"code_interpreter_call.in_progress item_id:ci_ output_index",
			"code_interpreter_call_code.delta delta item_id:ci_ output_index",
			"code_interpreter_call_code.done code item_id:ci_ output_index",
			"code_interpreter_call.interpreting item_id:ci_ output_index",
			"code_interpreter_call.completed item_id:ci_ output_index",
			"output_item.done item{code container_id:cntr_ id:ci_ outputs:[{logs type:logs}] status:completed type:code_interpreter_call} output_index",
		}, said, completed("code_interpreter_call message"))},
	{name: "a compaction", request: `"input":"` + strings.Repeat("word ", 2000) +
		`","context_management":[{"type":"compaction","compact_threshold":1000}]`,
		says: words, then: words, want: stream(said, []string{
			"output_item.added item{encrypted_content id:cmp_ type:compaction} output_index",
			"output_item.done item{encrypted_content id:cmp_ type:compaction} output_index",
		}, completed("message compaction"))},
	{name: "open reasoning", request: `"input":"x"`,
		says: []modeltest.Step{model.Thought{Text: "Let me "}, model.Thought{Text: "see."}, model.Text{Text: "Three."}},
		want: stream(thought(""), said, completed("reasoning message"))},

	{name: "custom tool",
		request: `"input":"x","tool_choice":"required","tools":[{"type":"custom","name":"write_sql","format":{"type":"grammar","syntax":"regex","definition":"SELECT .+"}}]`,
		says:    calls("write_sql", `{"input":"SEL`, `ECT 1`, `"}`), want: stream([]string{
			// The recording was made by hand: it lacks the status here, "done", and has ct_.
			`output_item.added item{call_id:call_ id:ctc_ input:"" name status:in_progress type:custom_tool_call} output_index`,
			"custom_tool_call_input.delta delta item_id:ctc_ output_index",
			"custom_tool_call_input.done input item_id:ctc_ output_index",
			"output_item.done item{call_id:call_ id:ctc_ input name status:completed type:custom_tool_call} output_index",
		}, completed("custom_tool_call"))},
	{name: "apply_patch creates", request: `"input":"x","tools":[{"type":"apply_patch"}]`,
		says: calls("apply_patch", `{"type":"create_file","path":"list.md","diff":"+## `, `List\n+\n`, `"}`),
		want: stream([]string{
			`output_item.added item{call_id:call_ id:apc_ operation{diff:"" path type:create_file} status:in_progress type:apply_patch_call} output_index`,
			"apply_patch_call_operation_diff.delta delta item_id:apc_ output_index",
			"apply_patch_call_operation_diff.done diff item_id:apc_ output_index",
			"output_item.done item{call_id:call_ id:apc_ operation{diff path type:create_file} status:completed type:apply_patch_call} output_index",
		}, completed("apply_patch_call"))},
	{name: "apply_patch deletes", request: `"input":"x","tools":[{"type":"apply_patch"}]`,
		says: calls("apply_patch", `{"type":"delete_file",`, `"path":"obsolete.txt"}`), want: stream([]string{
			"output_item.added item{call_id:call_ id:apc_ operation{path type:delete_file} status:in_progress type:apply_patch_call} output_index",
			"output_item.done item{call_id:call_ id:apc_ operation{path type:delete_file} status:completed type:apply_patch_call} output_index",
		}, completed("apply_patch_call"))},
	{name: "local shell", request: `"input":"x","tools":[{"type":"local_shell"}]`,
		plays: []model.Delta{
			model.Item{Item: raw(`{"id":"rs_1","type":"reasoning","summary":[]}`)},
			model.Call{ID: "call_1", Name: "local_shell", Arguments: `{"command":["ls",`},
			model.Call{Arguments: `"-a"]}`},
		}, want: stream([]string{
			"output_item.added item{id:rs_ summary:[] type:reasoning} output_index",
			"output_item.done item{id:rs_ summary:[] type:reasoning} output_index",
			"output_item.added item{action{command:[] env{} type:exec} call_id:call_ id:lsh_ status:in_progress type:local_shell_call} output_index",
			"output_item.done item{action{command env{} type:exec} call_id:call_ id:lsh_ status:completed type:local_shell_call} output_index",
		}, completed("reasoning local_shell_call"))},

	{name: "search for tools",
		request: `"input":"x","tools":[{"type":"function","name":"get_weather","defer_loading":true},{"type":"tool_search","execution":"client"}]`,
		says:    calls("tool_search", `{"goal":`, `"weather"}`), want: stream([]string{
			"output_item.added item{arguments{} call_id:call_ execution id:tsc_ status:in_progress type:tool_search_call} output_index",
			"output_item.done item{arguments{goal} call_id:call_ execution id:tsc_ status:completed type:tool_search_call} output_index",
		}, completed("tool_search_call"))},
	// In the recording the function that was found is called with its own name as namespace.
	{name: "search for tools by the server",
		request: `"input":"x","tools":[{"type":"function","name":"get_weather","defer_loading":true},{"type":"tool_search"}]`,
		says:    calls("tool_search", `{"paths":`, `["get_weather"]}`), then: calls("get_weather", `{"location":`,
			`"Kiel"}`), want: stream([]string{
			"output_item.added item{arguments{} call_id:null execution id:tsc_ status:in_progress type:tool_search_call} output_index",
			"output_item.done item{arguments{paths} call_id:null execution id:tsc_ status:completed type:tool_search_call} output_index",
			"output_item.added item{call_id:null execution id:tso_ status:in_progress tools:[{defer_loading description:null name parameters:null strict type:function}] type:tool_search_output} output_index",
			"output_item.done item{call_id:null execution id:tso_ status:completed tools:[{defer_loading description:null name parameters:null strict type:function}] type:tool_search_output} output_index",
		}, functionCalled, completed("tool_search_call tool_search_output function_call"))},
	{name: "what was found is called", request: `"tools":[{"type":"tool_search","execution":"client"}],"input":[
			{"type":"tool_search_call","call_id":"call_0","arguments":{"goal":"weather"}},
			{"type":"tool_search_output","call_id":"call_0","tools":[{"type":"function","name":"get_weather"}]}]`,
		says: calls("get_weather", `{"location":`, `"Kiel"}`), want: stream(functionCalled,
			completed("function_call"))},

	// The recording is older than the field "environment", in which a call repeats that of the tool.
	{name: "shell of the client", request: `"input":"x","tools":[{"type":"shell","environment":{"type":"local"}}]`,
		says: calls("shell", `{"commands":["ls `, `-a"]}`), want: stream(shellCalled("environment{type:local}"),
			completed("shell_call"))},
	{name: "shell of the client, answered", request: `"tools":[{"type":"shell","environment":{"type":"local"}}],"input":[
			{"type":"shell_call","call_id":"call_1","action":{"commands":["uname -m"]}},
			{"type":"shell_call_output","call_id":"call_1","output":[{"stdout":"arm64","stderr":"","outcome":{"type":"exit","exit_code":0}}]}]`,
		says: words, want: stream(said, completed("message"))},
	{name: "shell in a container", request: ctr,
		says: calls("shell", `{"commands":["echo `, `'Hello from container!'"]}`), then: words,
		want: stream(inContainer, shellAnswered, said, completed("shell_call shell_call_output message"))},
	{name: "a file of the container", request: ctr, says: calls("shell", `{"commands":["echo 1 | tee sums.csv"]}`),
		then: []modeltest.Step{model.Text{Text: "[Here](sandbox:/mnt/data/sums.csv) "}, model.Text{Text: "it is."}},
		want: stream(inContainer, shellAnswered, cited, completed("shell_call shell_call_output message"))},
	{name: "shell in a container, without a call", request: ctr, says: words, want: stream(said, completed("message"))},
}
