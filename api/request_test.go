package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/exchange"
	"github.com/berth-run/berth/api/request"
	"github.com/berth-run/berth/tool"
	"github.com/berth-run/berth/tool/standard"
)

// rules are the rules for the tools of a server.
var rules = request.New(tool.NewRegistry(standard.Kinds(standard.Options{})...))

// decode reads a body as POST /v1/responses does.
func decode(body string) (req *berth.ResponseRequest, err error) {
	err = decoded(httptest.NewRequest("POST", "/v1/responses", strings.NewReader(body)),
		exchange.Limits{MaxBody: 1 << 20}, func(x *exchange.Exchange, r *http.Request) (err error) {
			req, err = (&storedResponses{rules: rules}).decode(x, r)
			return err
		})
	return req, err
}

// clientError returns the error as the client gets it.
func clientError(t *testing.T, err error) exchange.Error {
	t.Helper()
	if err == nil {
		return exchange.Error{}
	}
	if berth.ErrorCode(err) == berth.CodeInternal {
		t.Errorf("an internal error: %v", err)
	}
	_, e := exchange.Describe(err, "req_1")
	return e
}

func TestRequestErrors(t *testing.T) {
	t.Parallel()
	with := func(fields string) string { return `{"model":"m","input":"x",` + fields + `}` }
	item := func(item string) string { return `{"model":"m","input":[` + item + `]}` }
	shell := func(environment string) string {
		return with(`"tools":[{"type":"shell","environment":` + environment + `}]`)
	}
	pairs := strings.TrimSuffix(strings.Repeat(`"k%d":"v",`, 17), ",")
	for i := range 17 {
		pairs = strings.Replace(pairs, "%d", fmt.Sprint(i), 1)
	}
	tests := []struct{ name, body, message, param, code string }{
		// the body as a whole
		{"empty", ``, "We could not parse the JSON body of your request: it is empty.", "", ""},
		{"cut", `{"model":`, "We could not parse the JSON body of your request: it is incomplete.", "", ""},
		{"cut in an object", `{"model":"m"`, "We could not parse the JSON body of your request: it is incomplete.", "",
			""},
		{"broken", `{"model":"m",}`,
			"We could not parse the JSON body of your request: invalid character '}' looking for beginning of object key string, near byte 13.",
			"", ""},
		{"two values", `{"model":"m","input":"x"}{}`,
			"We could not parse the JSON body of your request: there is data after the object.", "", ""},
		{"not UTF-8", "{\"model\":\"\xff\"}",
			"We could not parse the JSON body of your request: it is not valid UTF-8.", "", ""},
		{"a name twice", `{"model":"m","input":"x","model":"n"}`,
			`We could not parse the JSON body of your request: an object contains the name "model" twice.`, "", ""},
		{"too deep", with(`"text":` + strings.Repeat(`[`, 300) + strings.Repeat(`]`, 300)),
			"We could not parse the JSON body of your request: it is nested more than 256 deep.", "", ""},
		{"not an object", `[]`, "Invalid body: expected a JSON object, but got an array instead.", "", "invalid_type"},
		{"too large", with(`"instructions":"` + strings.Repeat("x", 1<<20) + `"`),
			"The request body is larger than 1048576 bytes.", "", "request_too_large"},

		// fields
		{"unknown field", with(`"temprature":1`), "Unknown parameter: 'temprature'.", "temprature",
			"unknown_parameter"},
		{"wrong case", `{"Model":"m","model":"m","input":"x"}`, "Unknown parameter: 'Model'.", "Model",
			"unknown_parameter"},
		{"unserved field", with(`"reasoning":{"mode":"pro"}`),
			"Unsupported parameter: 'reasoning.mode' is not supported by this server.", "reasoning.mode",
			"unsupported_parameter"},
		{"moderation that blocks", with(`"moderation":{"model":"omni","policy":{"input":{"mode":"block"}}}`),
			"Unsupported value: 'moderation.policy.input.mode' cannot be 'block'. This server does not moderate; check the input with a moderation service of your own.",
			"moderation.policy.input.mode", "unsupported_value"},
		{"json_object without the word", `{"model":"m","input":"hello","text":{"format":{"type":"json_object"}}}`,
			"Response input messages must contain the word 'json' in some form to use 'text.format' of type 'json_object'.",
			"input", ""},
		{"an image that is no URL", item(`{"role":"user","content":[{"type":"input_image","image_url":"nonsense"}]}`),
			"Invalid 'input[0].content[0].image_url'. Expected a valid URL, but got a value with an invalid format.",
			"input[0].content[0].image_url", "invalid_value"},
		{"a file that is no URL",
			item(`{"role":"user","content":[{"type":"input_file","file_url":"file:///etc/passwd"}]}`),
			"Invalid 'input[0].content[0].file_url'. Expected a valid URL, but got a value with an invalid format.",
			"input[0].content[0].file_url", "invalid_value"},
		{"a strict format with other properties",
			with(`"text":{"format":{"type":"json_schema","name":"n","strict":true,"schema":{"type":"object","properties":{"a":{"type":"string"}},"required":["a"]}}}`),
			"Invalid schema for response_format 'n': In context=(), 'additionalProperties' is required to be supplied and to be false.",
			"text.format.schema", "invalid_json_schema"},
		{"a strict format with an optional property",
			with(`"text":{"format":{"type":"json_schema","name":"n","strict":true,"schema":{"type":"object","properties":{"a":{"type":"object","properties":{"b":{}},"required":[],"additionalProperties":false}},"required":["a"],"additionalProperties":false}}}`),
			"Invalid schema for response_format 'n': In context=('properties', 'a'), 'required' is required to be supplied and to be an array including every key in properties. Missing 'b'.",
			"text.format.schema", "invalid_json_schema"},
		{"a strict format that is no object",
			with(`"text":{"format":{"type":"json_schema","name":"n","strict":true,"schema":{"type":"array"}}}`),
			`Invalid schema for response_format 'n': schema must be a JSON Schema of 'type: "object"', got 'type: "array"'.`,
			"text.format.schema", "invalid_json_schema"},
		{"a strict function",
			with(`"tools":[{"type":"function","name":"f","strict":true,"parameters":{"type":"object","properties":{},"additionalProperties":false,"required":[],"oneOf":[]}}]`),
			"Invalid schema for function 'f': In context=(), 'oneOf' is not permitted.", "tools[0].parameters",
			"invalid_function_parameters"},
		{"an update of nothing known", item(`{"type":"configuration_update","reasoning":{"summary":"auto"}}`),
			"Unknown parameter: 'input[0].reasoning.summary'.", "input[0].reasoning.summary", "unknown_parameter"},
		{"conversation of a wrong type", with(`"conversation":5`),
			"Invalid type for 'conversation': expected one of a string or an object, but got an integer instead.",
			"conversation", "invalid_type"},
		{"no name of a conversation", with(`"conversation":""`),
			"Invalid 'conversation': empty string. Expected a string with minimum length 1, but got an empty string instead.",
			"conversation", "empty_string"},
		{"no id of a conversation", with(`"conversation":{}`), "Missing required parameter: 'conversation.id'.",
			"conversation.id", "missing_required_parameter"},
		{"two sources", with(`"conversation":"conv_1","previous_response_id":"resp_1"`),
			"Mutually exclusive parameters: 'previous_response_id' and 'conversation'. Ensure you are only providing one of: 'previous_response_id' or 'conversation'.",
			"", "mutually_exclusive_parameters"},
		{"a foreign id in a conversation",
			`{"model":"m","conversation":"conv_1","input":[{"role":"user","id":"conv_2","content":"x"}]}`,
			"Invalid 'input[0].id': 'conv_2'. Expected an ID that begins with 'msg'.", "input[0].id", "invalid_value"},
		{"no model", `{"input":"x"}`, "Missing required parameter: 'model'.", "model", "missing_required_parameter"},
		{"no input", `{"model":"m"}`, "Missing required parameter: 'input'.", "input", "missing_required_parameter"},
		{"null input", `{"model":"m","input":null}`, "Missing required parameter: 'input'.", "input",
			"missing_required_parameter"},
		{"input of a wrong type", `{"model":"m","input":5}`,
			"Invalid type for 'input': expected one of an array of input items or a string, but got an integer instead.",
			"input", "invalid_type"},
		{"instructions of a wrong type", with(`"instructions":["x"]`),
			"Invalid type for 'instructions': expected a string, but got an array instead.", "instructions",
			"invalid_type"},
		{"boolean", with(`"stream":"yes"`), "Invalid type for 'stream': expected a boolean, but got a string instead.",
			"stream", "invalid_type"},
		{"temperature low", with(`"temperature":-0.5`),
			"Invalid 'temperature': decimal below minimum value. Expected a value >= 0, but got -0.5 instead.",
			"temperature", "decimal_below_min_value"},
		{"temperature high", with(`"temperature":9`),
			"Invalid 'temperature': decimal above maximum value. Expected a value <= 2, but got 9 instead.",
			"temperature", "decimal_above_max_value"},
		{"temperature beyond a float", with(`"temperature":1e999`),
			"Invalid 'temperature': the number 1e999 is out of range.", "temperature", "invalid_value"},
		{"top_p", with(`"top_p":1.1`),
			"Invalid 'top_p': decimal above maximum value. Expected a value <= 1, but got 1.1 instead.", "top_p",
			"decimal_above_max_value"},
		{"max_output_tokens", with(`"max_output_tokens":15`),
			"Invalid 'max_output_tokens': integer below minimum value. Expected a value >= 16, but got 15 instead.",
			"max_output_tokens", "integer_below_min_value"},
		{"max_output_tokens with a fraction", with(`"max_output_tokens":16.5`),
			"Invalid type for 'max_output_tokens': expected an integer, but got a decimal number instead.",
			"max_output_tokens", "invalid_type"},
		{"max_output_tokens beyond an integer", with(`"max_output_tokens":99999999999999999999`),
			"Invalid 'max_output_tokens': the integer 99999999999999999999 is out of range.", "max_output_tokens",
			"invalid_value"},
		{"top_logprobs", with(`"top_logprobs":21`),
			"Invalid 'top_logprobs': integer above maximum value. Expected a value <= 20, but got 21 instead.",
			"top_logprobs", "integer_above_max_value"},
		{"include", with(`"include":["all"]`),
			"Invalid value: 'all'. Supported values are: 'file_search_call.results', 'web_search_call.results', 'web_search_call.action.sources', 'message.input_image.image_url', 'computer_call_output.output.image_url', 'code_interpreter_call.outputs', 'reasoning.encrypted_content', and 'message.output_text.logprobs'.",
			"include[0]", "invalid_value"},
		{"truncation", with(`"truncation":"some"`),
			"Invalid value: 'some'. Supported values are: 'auto' and 'disabled'.", "truncation", "invalid_value"},
		{"stream options without a stream", with(`"stream_options":{"include_obfuscation":false}`),
			"The 'stream_options' parameter is only allowed when 'stream' is enabled.", "stream_options", ""},
		{"metadata pairs", with(`"metadata":{` + pairs + `}`),
			"Invalid 'metadata': too many properties. Expected an object with at most 16 properties, but got an object with 17 properties instead.",
			"metadata", "object_above_max_properties"},
		{"metadata key", with(`"metadata":{"` + strings.Repeat("k", 65) + `":""}`), "Invalid 'metadata' key '" +
			strings.Repeat("k", 65) +
			"': string too long. Expected a string with maximum length 64, but got a string with length 65 instead.",
			"metadata", "string_above_max_length"},
		{"metadata value", with(`"metadata":{"k":"` + strings.Repeat("ü", 513) + `"}`),
			"Invalid 'metadata.k': string too long. Expected a string with maximum length 512, but got a string with length 513 instead.",
			"metadata.k", "string_above_max_length"},
		{"metadata value type", with(`"metadata":{"k":1}`),
			"Invalid type for 'metadata.k': expected a string, but got an integer instead.", "metadata.k",
			"invalid_type"},
		{"reasoning effort", with(`"reasoning":{"effort":"huge"}`),
			"Invalid value: 'huge'. Supported values are: 'none', 'minimal', 'low', 'medium', 'high', 'xhigh', and 'max'.",
			"reasoning.effort", "invalid_value"},
		{"unserved reasoning", with(`"reasoning":{"context":"auto"}`),
			"Unsupported parameter: 'reasoning.context' is not supported by this server.", "reasoning.context",
			"unsupported_parameter"},
		{"format without a schema", with(`"text":{"format":{"type":"json_schema","name":"n"}}`),
			"Missing required parameter: 'text.format.schema'.", "text.format.schema", "missing_required_parameter"},
		{"format of another type", with(`"text":{"format":{"type":"xml"}}`),
			"Invalid value: 'xml'. Supported values are: 'json_object', 'json_schema', and 'text'.", "text.format.type",
			"invalid_value"},

		// tools
		{"unknown tool", with(`"tools":[{"type":"hammer"}]`), "Invalid value: 'hammer'. Supported values are:",
			"tools[0].type", "invalid_value"},
		{"tool without a type", with(`"tools":[{"name":"f"}]`), "Missing required parameter: 'tools[0].type'.",
			"tools[0].type", "missing_required_parameter"},
		{"tool that is a string", with(`"tools":["shell"]`),
			"Invalid type for 'tools[0]': expected an object, but got a string instead.", "tools[0]", "invalid_type"},
		{"function in the form of chat completions", with(`"tools":[{"type":"function","function":{"name":"f"}}]`),
			"Missing required parameter: 'tools[0].name'.", "tools[0].name", "missing_required_parameter"},
		{"function without a name", with(`"tools":[{"type":"function"}]`),
			"Missing required parameter: 'tools[0].name'.", "tools[0].name", "missing_required_parameter"},
		{"function's name", with(`"tools":[{"type":"function","name":"get weather"}]`),
			"Invalid 'tools[0].name': string does not match pattern. Expected a string that matches the pattern '^[a-zA-Z0-9_-]+$'.",
			"tools[0].name", "invalid_value"},
		{"function's parameters", with(`"tools":[{"type":"function","name":"f","parameters":"{}"}]`),
			"Invalid type for 'tools[0].parameters': expected an object, but got a string instead.",
			"tools[0].parameters", "invalid_type"},
		{"search by another", with(`"tools":[{"type":"tool_search","execution":"me"}]`),
			"Invalid value: 'me'. Supported values are: 'server' and 'client'.", "tools[0].execution", "invalid_value"},
		{"function for others", with(`"tools":[{"type":"function","name":"f","allowed_callers":["direct","agents"]}]`),
			"Invalid value: 'agents'. Supported values are: 'direct' and 'programmatic'.",
			"tools[0].allowed_callers[1]", "invalid_value"},
		{"custom tool without a name", with(`"tools":[{"type":"custom"}]`),
			"Missing required parameter: 'tools[0].name'.", "tools[0].name", "missing_required_parameter"},
		{"custom tool's format", with(`"tools":[{"type":"custom","name":"c","format":{"type":"xml"}}]`),
			"Invalid value: 'xml'. Supported values are: 'grammar' and 'text'.", "tools[0].format.type",
			"invalid_value"},
		{"grammar's syntax",
			with(`"tools":[{"type":"custom","name":"c","format":{"type":"grammar","syntax":"ebnf","definition":"x"}}]`),
			"Invalid value: 'ebnf'. Supported values are: 'lark' and 'regex'.", "tools[0].format.syntax",
			"invalid_value"},
		{"grammar of nothing",
			with(`"tools":[{"type":"custom","name":"c","format":{"type":"grammar","syntax":"lark"}}]`),
			"Missing required parameter: 'tools[0].format.definition'.", "tools[0].format.definition",
			"missing_required_parameter"},
		{"namespace of nothing", with(`"tools":[{"type":"namespace","name":"n","description":"d"}]`),
			"Missing required parameter: 'tools[0].tools'.", "tools[0].tools", "missing_required_parameter"},
		{"namespace in a namespace",
			with(`"tools":[{"type":"namespace","name":"n","description":"d","tools":[{"type":"namespace"}]}]`),
			"Invalid value: 'namespace'. Supported values are: 'custom' and 'function'.", "tools[0].tools[0].type",
			"invalid_value"},
		{"local shell with more", with(`"tools":[{"type":"local_shell","environment":{}}]`),
			"Unknown parameter: 'tools[0].environment'.", "tools[0].environment", "unknown_parameter"},
		{"environment", shell(`{"type":"moon"}`),
			"Invalid value: 'moon'. Supported values are: 'container_auto', 'container_reference', and 'local'.",
			"tools[0].environment.type", "invalid_value"},
		{"reference to nothing", shell(`{"type":"container_reference"}`),
			"Missing required parameter: 'tools[0].environment.container_id'.", "tools[0].environment.container_id",
			"missing_required_parameter"},
		{"memory", shell(`{"type":"container_auto","memory_limit":"2g"}`),
			"Invalid value: '2g'. Supported values are: '1g', '4g', '16g', and '64g'.",
			"tools[0].environment.memory_limit", "invalid_value"},
		{"files", shell(`{"type":"container_auto","file_ids":[` + strings.Repeat(`"f",`, 50) + `"f"]}`),
			"Invalid 'tools[0].environment.file_ids': array too long. Expected an array with maximum length 50, but got an array with length 51 instead.",
			"tools[0].environment.file_ids", "array_above_max_length"},
		{"skill", shell(`{"type":"container_auto","skills":[{"type":"magic"}]}`),
			"Invalid value: 'magic'. Supported values are: 'inline' and 'skill_reference'.",
			"tools[0].environment.skills[0].type", "invalid_value"},
		{"skill without an id", shell(`{"type":"container_auto","skills":[{"type":"skill_reference"}]}`),
			"Missing required parameter: 'tools[0].environment.skills[0].skill_id'.",
			"tools[0].environment.skills[0].skill_id", "missing_required_parameter"},
		{"local skill without a path", shell(`{"type":"local","skills":[{"name":"a","description":"b"}]}`),
			"Missing required parameter: 'tools[0].environment.skills[0].path'.", "tools[0].environment.skills[0].path",
			"missing_required_parameter"},
		{"network", shell(`{"type":"container_auto","network_policy":{"type":"bridge"}}`),
			"Invalid value: 'bridge'. Supported values are: 'allowlist', 'disabled', and 'open'.",
			"tools[0].environment.network_policy.type", "invalid_value"},
		{"tool choice", with(`"tool_choice":"maybe"`),
			"Invalid value: 'maybe'. Supported values are: 'none', 'auto', and 'required'.", "tool_choice",
			"invalid_value"},
		{"allowed tool without a name",
			with(`"tool_choice":{"type":"allowed_tools","mode":"auto","tools":[{"type":"custom"}]}`),
			"Missing required parameter: 'tool_choice.tools[0].name'.", "tool_choice.tools[0].name",
			"missing_required_parameter"},
		{"chosen function without a name", with(`"tool_choice":{"type":"function"}`),
			"Missing required parameter: 'tool_choice.name'.", "tool_choice.name", "missing_required_parameter"},

		// items
		{"item that is a string", item(`"x"`),
			"Invalid type for 'input[0]': expected an object, but got a string instead.", "input[0]", "invalid_type"},
		{"unknown item", item(`{"type":"sonnet"}`), "Invalid value: 'sonnet'. Supported values are:", "input[0].type",
			"invalid_value"},
		{"program without its fingerprint", item(`{"type":"program","id":"cm_1","call_id":"c","code":""}`),
			"Missing required parameter: 'input[0].fingerprint'.", "input[0].fingerprint",
			"missing_required_parameter"},
		{"program without result", item(`{"type":"program_output","id":"cmo_1","call_id":"c","status":"completed"}`),
			"Missing required parameter: 'input[0].result'.", "input[0].result", "missing_required_parameter"},
		{"field of programs", with(`"tools":[{"type":"programmatic_tool_calling","language":"python"}]`),
			"Unknown parameter: 'tools[0].language'.", "tools[0].language", "unknown_parameter"},
		{"item of nothing", item(`{}`), "Missing required parameter: 'input[0].role'.", "input[0].role",
			"missing_required_parameter"},
		{"role", item(`{"role":"king","content":"x"}`),
			"Invalid value: 'king'. Supported values are: 'user', 'assistant', 'system', and 'developer'.",
			"input[0].role", "invalid_value"},
		{"field of another case", item(`{"role":"user","ROLE":"king","content":"x"}`),
			"Unknown parameter: 'input[0].ROLE'.", "input[0].ROLE", "unknown_parameter"},
		{"no content", item(`{"role":"user"}`), "Missing required parameter: 'input[0].content'.", "input[0].content",
			"missing_required_parameter"},
		{"content", item(`{"role":"user","content":5}`),
			"Invalid type for 'input[0].content': expected an array, but got an integer instead.", "input[0].content",
			"invalid_type"},
		{"part", item(`{"role":"user","content":[{"type":"output_text","text":"x"}]}`),
			"Invalid value: 'output_text'. Supported values are: 'input_file', 'input_image', and 'input_text'.",
			"input[0].content[0].type", "invalid_value"},
		{"part of the model", item(`{"role":"assistant","content":[{"type":"input_text","text":"x"}]}`),
			"Invalid value: 'input_text'. Supported values are: 'output_text' and 'refusal'.",
			"input[0].content[0].type", "invalid_value"},
		{"part without text", item(`{"role":"user","content":[{"type":"input_text"}]}`),
			"Missing required parameter: 'input[0].content[0].text'.", "input[0].content[0].text",
			"missing_required_parameter"},
		{"an image that is no base64",
			item(`{"role":"user","content":[{"type":"input_image","image_url":"data:image/png;base64,%%%"}]}`),
			"Invalid 'input[0].content[0].image_url'. Expected a base64-encoded data URL with an image MIME type (e.g. 'data:image/png;base64,aW1nIGJ5dGVzIGhlcmU='), but got an invalid base64-encoded value.",
			"input[0].content[0].image_url", "invalid_value"},
		{"an image without data",
			item(`{"role":"user","content":[{"type":"input_image","image_url":"data:image/png;base64,"}]}`),
			"Invalid 'input[0].content[0].image_url'. Expected a base64-encoded data URL with an image MIME type (e.g. 'data:image/png;base64,aW1nIGJ5dGVzIGhlcmU='), but got an invalid base64-encoded value.",
			"input[0].content[0].image_url", "invalid_value"},
		{"image of nothing", item(`{"role":"user","content":[{"type":"input_image"}]}`),
			"Missing required parameter: 'input[0].content[0].image_url'.", "input[0].content[0].image_url",
			"missing_required_parameter"},
		{"output without a call", item(`{"type":"function_call_output","output":"x"}`),
			"Missing required parameter: 'input[0].call_id'.", "input[0].call_id", "missing_required_parameter"},
		{"output of a wrong type", item(`{"type":"function_call_output","call_id":"c","output":{}}`),
			"Invalid type for 'input[0].output': expected one of a string or an array, but got an object instead.",
			"input[0].output", "invalid_type"},
		{"arguments", item(`{"type":"function_call","call_id":"c","name":"f","arguments":{}}`),
			"Invalid type for 'input[0].arguments': expected a string, but got an object instead.",
			"input[0].arguments", "invalid_type"},
		{"commands", item(`{"type":"shell_call","call_id":"c","action":{"commands":"ls"}}`),
			"Invalid type for 'input[0].action.commands': expected an array, but got a string instead.",
			"input[0].action.commands", "invalid_type"},
		{"outcome", item(
			`{"type":"shell_call_output","call_id":"c","output":[{"stdout":"","stderr":"","outcome":{"type":"exit"}}]}`),
			"Missing required parameter: 'input[0].output[0].outcome.exit_code'.",
			"input[0].output[0].outcome.exit_code", "missing_required_parameter"},
		{"custom output of a wrong type",
			item(`{"type":"custom_tool_call_output","call_id":"c","output":[{"type":"output_text","text":"x"}]}`),
			"Invalid value: 'output_text'. Supported values are: 'input_file', 'input_image', and 'input_text'.",
			"input[0].output[0].type", "invalid_value"},
		{"custom call without input", item(`{"type":"custom_tool_call","call_id":"c","name":"f"}`),
			"Missing required parameter: 'input[0].input'.", "input[0].input", "missing_required_parameter"},
		{"patch of a wrong kind", item(`{"type":"apply_patch_call","call_id":"c","operation":{"type":"rename_file"}}`),
			"Invalid value: 'rename_file'. Supported values are: 'create_file', 'delete_file', and 'update_file'.",
			"input[0].operation.type", "invalid_value"},
		{"patch without a diff",
			item(`{"type":"apply_patch_call","call_id":"c","operation":{"type":"create_file","path":"a"}}`),
			"Missing required parameter: 'input[0].operation.diff'.", "input[0].operation.diff",
			"missing_required_parameter"},
		{"patch output without a status", item(`{"type":"apply_patch_call_output","call_id":"c"}`),
			"Missing required parameter: 'input[0].status'.", "input[0].status", "missing_required_parameter"},
		{"patch output's status", item(`{"type":"apply_patch_call_output","call_id":"c","status":"incomplete"}`),
			"Invalid value: 'incomplete'. Supported values are: 'completed' and 'failed'.", "input[0].status",
			"invalid_value"},
		{"local shell's variables",
			item(`{"type":"local_shell_call","call_id":"c","action":{"type":"exec","command":["ls"],"env":{"A":1}}}`),
			"Invalid type for 'input[0].action.env.A': expected a string, but got an integer instead.",
			"input[0].action.env.A", "invalid_type"},
		{"local shell output of no call", item(`{"type":"local_shell_call_output","output":"x"}`),
			"Missing required parameter: 'input[0].call_id'.", "input[0].call_id", "missing_required_parameter"},
		{"call by no program",
			item(`{"type":"function_call","call_id":"c","name":"f","arguments":"","caller":{"type":"program"}}`),
			"Missing required parameter: 'input[0].caller.caller_id'.", "input[0].caller.caller_id",
			"missing_required_parameter"},
		{"container among found tools",
			item(`{"type":"tool_search_output","call_id":"c","tools":[{"type":"shell","environment":{"type":"container_auto"}}]}`),
			"Invalid value: 'container_auto'. Supported values are: 'local'.", "input[0].tools[0].environment.type",
			"invalid_value"},
		{"tools of the user", item(`{"type":"additional_tools","role":"user","tools":[]}`),
			"Invalid value: 'user'. Supported values are: 'developer'.", "input[0].role", "invalid_value"},
		{"reference to no item", item(`{"type":"item_reference"}`), "Missing required parameter: 'input[0].id'.",
			"input[0].id", "missing_required_parameter"},
		{"status", item(`{"role":"user","content":"x","status":"late"}`),
			"Invalid value: 'late'. Supported values are: 'in_progress', 'completed', and 'incomplete'.",
			"input[0].status", "invalid_value"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := decode(tt.body)
			got := clientError(t, err)
			want := exchange.Error{Message: tt.message, Type: exchange.TypeInvalid, Param: exchange.OrNull(tt.param),
				Code: exchange.OrNull(tt.code)}
			if strings.HasSuffix(tt.message, ":") && strings.HasPrefix(got.Message, tt.message) {
				want.Message = got.Message // a long list follows
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("error (-want +got):\n%s", diff)
			}
		})
	}
}

// All valid values, including null and empty ones, are decoded.
func TestRequestAccepted(t *testing.T) {
	t.Parallel()
	bodies := map[string]string{
		"nulls": `{"model":"m","input":"x","background":null,"conversation":null,"include":null,"instructions":null,"max_output_tokens":null,
			"metadata":null,"prompt":null,"reasoning":null,"stream":null,"stream_options":null,"temperature":null,"text":null,"tool_choice":null,
			"tools":null,"top_p":null,"truncation":null,"user":null,"moderation":null,"previous_response_id":null}`,
		"everything": `{"model":"m","input":[],"background":true,"include":["reasoning.encrypted_content"],"instructions":"","max_output_tokens":16,
			"max_tool_calls":3,"metadata":{"a":"b"},"parallel_tool_calls":false,"previous_response_id":"resp_1","prompt_cache_key":"k",
			"prompt_cache_retention":"24h","reasoning":{"effort":"low","summary":"auto"},"safety_identifier":"s","service_tier":"flex","store":true,
			"stream":true,"stream_options":{"include_obfuscation":false},"temperature":2,"text":{"format":{"type":"json_schema","name":"n","schema":{},
			"strict":null},"verbosity":"low"},"tool_choice":{"type":"allowed_tools","mode":"auto","tools":[{"type":"shell"}]},
			"tools":[{"type":"shell","environment":{"type":"container_auto","file_ids":[],"memory_limit":"4g","network_policy":{"type":"disabled"},
			"skills":[]}},{"type":"function","name":"f","description":null,"parameters":null,"strict":null}],"top_logprobs":20,"top_p":0,
			"truncation":"auto","user":"u"}`,
		"history": `{"model":"m","input":[
			{"role":"system","content":"s"},
			{"type":"message","role":"user","content":[{"type":"input_text","text":""},{"type":"input_image","image_url":"data:,","detail":"low"},
				{"type":"input_file","file_id":"file-1","filename":null}]},
			{"id":"rs_1","type":"reasoning","summary":[{"type":"summary_text","text":"s"}],"encrypted_content":null,"status":null},
			{"id":"msg_1","type":"message","role":"assistant","status":"completed","phase":"final","content":[{"type":"output_text","text":"a",
				"annotations":[],"logprobs":[],"parsed":null},{"type":"refusal","refusal":"no"}]},
			{"type":"function_call","call_id":"c1","name":"f","arguments":"{broken","parsed_arguments":{}},
			{"type":"function_call_output","call_id":"c1","output":[{"type":"input_text","text":"t"}]},
			{"id":"sh_1","type":"shell_call","call_id":"c2","status":"completed","action":{"commands":["ls"],"timeout_ms":null,"max_output_length":9},
				"environment":{"type":"container_reference","container_id":"cntr_1"},"created_by":null},
			{"id":"sho_1","type":"shell_call_output","call_id":"c2","max_output_length":null,"output":[{"stdout":"","stderr":"",
				"outcome":{"type":"timeout"}},{"stdout":"","stderr":"","outcome":{"type":"exit","exit_code":-1}}]},
			{"type":"function_call","call_id":"c3","name":"f","namespace":"n","arguments":"","caller":{"type":"direct"}},
			{"type":"program","id":"cm_1","call_id":"p1","code":"text(1)","fingerprint":"x"},{"type":"program_output","id":"cmo_1","call_id":"p1","status":"incomplete","result":"1"},
			{"type":"function_call","call_id":"c7","name":"f","arguments":"{}","caller":{"type":"program","caller_id":"p1"}},
			{"type":"function_call_output","call_id":"c7","output":"","caller":{"type":"program","caller_id":"p1","berth":{"call":1}}},
			{"type":"function_call_output","call_id":"c3","output":"","caller":null},
			{"id":"ctc_1","type":"custom_tool_call","call_id":"c4","name":"f","input":"","status":"completed"},
			{"type":"custom_tool_call_output","call_id":"c4","output":[{"type":"input_image","image_url":"data:,"}]},
			{"id":"lsh_1","type":"local_shell_call","call_id":"c5","status":"completed","action":{"type":"exec","command":["ls"],"env":{"A":"b"},
				"timeout_ms":null,"user":null,"working_directory":"/"}},
			{"type":"local_shell_call_output","call_id":"c5","output":"."},
			{"id":"apc_1","type":"apply_patch_call","call_id":"c6","status":"completed","operation":{"type":"delete_file","path":"a"}},
			{"type":"apply_patch_call_output","call_id":"c6","status":"failed","output":null},
			{"type":"item_reference","id":"msg_0"},{"id":"msg_0"}]}`,
		"tools of the client": `{"model":"m","input":"x","tool_choice":{"type":"allowed_tools","mode":"auto","tools":[{"type":"namespace","name":"n"},{"type":"custom","name":"c"}]},
			"tools":[{"type":"custom","name":"c","description":"d","format":{"type":"grammar","syntax":"regex","definition":"a+"},"defer_loading":false},
				{"type":"custom","name":"t","format":{"type":"text"},"allowed_callers":["direct"]},{"type":"local_shell"},{"type":"apply_patch","allowed_callers":null},
				{"type":"namespace","name":"n","description":"d","tools":[{"type":"function","name":"f","output_schema":{"type":"string"}},{"type":"custom","name":"c"}]}]}`,
	}
	for name, body := range bodies {
		t.Run(name, func(t *testing.T) {
			req, err := decode(body)
			if err != nil {
				t.Fatalf("got %v, want no error", err)
			}
			if req.ToolChoice != nil && request.IsNull(req.ToolChoice) {
				t.Error("tool_choice null was not left out")
			}
		})
	}
}

func TestNormalize(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, item, want string }{
		{"short message", `{"role":"user","content":"x"}`,
			`{"content":[{"type":"input_text","text":"x"}],"id":"msg_","role":"user","status":"completed","type":"message"}`},
		{"short message of the model", `{"role":"assistant","content":"x"}`,
			`{"content":[{"type":"output_text","annotations":[],"logprobs":[],"text":"x"}],"id":"msg_","role":"assistant","status":"completed","type":"message"}`},
		{"parts of the model",
			`{"role":"assistant","content":[{"type":"output_text","text":"x","logprobs":null,"parsed":1}]}`,
			`{"content":[{"annotations":[],"logprobs":[],"parsed":1,"text":"x","type":"output_text"}],"id":"msg_","role":"assistant","status":"completed","type":"message"}`},
		{"fields without a rule stay",
			`{"role":"user","content":[{"type":"input_text","text":"x","prompt_cache_breakpoint":{"a":[1.50]}}],"phase":"one"}`,
			`{"content":[{"type":"input_text","text":"x","prompt_cache_breakpoint":{"a":[1.50]}}],"id":"msg_","phase":"one","role":"user","status":"completed","type":"message"}`},
		{"complete",
			`{"id":"fc_1","type":"function_call","status":"incomplete","call_id":"c","name":"f","arguments":""}`,
			`{"id":"fc_1","type":"function_call","status":"incomplete","call_id":"c","name":"f","arguments":""}`},
		{"call", `{"type":"function_call","call_id":"c","name":"f","arguments":""}`,
			`{"arguments":"","call_id":"c","id":"fc_","name":"f","status":"completed","type":"function_call"}`},
		{"output", `{"type":"function_call_output","call_id":"c","output":""}`,
			`{"call_id":"c","id":"fco_","output":"","status":"completed","type":"function_call_output"}`},
		{"shell call", `{"type":"shell_call","call_id":"c","action":{"commands":[]}}`,
			`{"action":{"commands":[],"max_output_length":null,"timeout_ms":null},"call_id":"c","environment":null,"id":"sh_","status":"completed","type":"shell_call"}`},
		{"shell output", `{"type":"shell_call_output","call_id":"c","output":[]}`,
			`{"call_id":"c","id":"sho_","max_output_length":null,"output":[],"status":"completed","type":"shell_call_output"}`},
		{"custom call", `{"type":"custom_tool_call","call_id":"c","name":"f","input":""}`,
			`{"call_id":"c","id":"ctc_","input":"","name":"f","status":"completed","type":"custom_tool_call"}`},
		{"custom output", `{"type":"custom_tool_call_output","call_id":"c","output":""}`,
			`{"call_id":"c","id":"ctco_","output":"","status":"completed","type":"custom_tool_call_output"}`},
		{"local shell call", `{"type":"local_shell_call","call_id":"c","action":{"type":"exec","command":[],"env":{}}}`,
			`{"action":{"type":"exec","command":[],"env":{}},"call_id":"c","id":"lsh_","status":"completed","type":"local_shell_call"}`},
		{"local shell output that names its call by id", `{"type":"local_shell_call_output","id":"c","output":""}`,
			`{"call_id":"c","id":"lsho_","output":"","status":"completed","type":"local_shell_call_output"}`},
		{"patch call", `{"type":"apply_patch_call","call_id":"c","operation":{"type":"delete_file","path":"a"}}`,
			`{"call_id":"c","id":"apc_","operation":{"type":"delete_file","path":"a"},"status":"completed","type":"apply_patch_call"}`},
		{"patch output", `{"type":"apply_patch_call_output","call_id":"c","status":"failed"}`,
			`{"call_id":"c","id":"apco_","status":"failed","type":"apply_patch_call_output"}`},
		{"search", `{"type":"tool_search_call","call_id":"c","arguments":{}}`,
			`{"arguments":{},"call_id":"c","execution":"client","id":"tsc_","status":"completed","type":"tool_search_call"}`},
		{"found tools", `{"type":"tool_search_output","call_id":"c","tools":[]}`,
			`{"call_id":"c","execution":"client","id":"tso_","status":"completed","tools":[],"type":"tool_search_output"}`},
		{"additional tools have no status", `{"type":"additional_tools","role":"developer","tools":[]}`,
			`{"id":"at_","role":"developer","tools":[],"type":"additional_tools"}`},
		{"reasoning has no status", `{"type":"reasoning","summary":[]}`,
			`{"id":"rs_","summary":[],"type":"reasoning"}`},
		{"reference", `{"id":"msg_1"}`, `{"id":"msg_1","type":"item_reference"}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			req, err := decode(`{"model":"m","input":[` + tt.item + `]}`)
			if err != nil {
				t.Fatal(err)
			}
			it := req.Input[0]
			got := string(it.Raw())
			if prefix, random, made := strings.Cut(it.ID(), "_"); made && len(random) == 48 {
				got = strings.Replace(got, it.ID(), prefix+"_", 1)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("item (-want +got):\n%s", diff)
			}
			again, err := rules.Normalize(it)
			if err != nil || !bytes.Equal(again.Raw(), it.Raw()) {
				t.Errorf("normalizing again gives %s, %v, want the same", again.Raw(), err)
			}
		})
	}
	req, err := decode(`{"model":"m","input":"ahoy"}`)
	if err != nil || len(req.Input) != 1 || req.Input[0].Type() != berth.ItemMessage || req.Input[0].ID() == "" {
		t.Errorf("a bare string gives %v, %v, want one message with an id", req, err)
	}
}

// Every body is either refused with an error for the client or decoded into items that all
// other packages can read.
func FuzzRequest(f *testing.F) {
	f.Add(`{"model":"m","input":"x"}`)
	f.Add(`{"model":"m","input":[{"role":"user","content":[{"type":"input_text","text":"x"}]},{"type":"shell_call","call_id":"c","action":{"commands":["x"]},"environment":{"type":"local"}}]}`)
	f.Add(`{"model":"m","input":[{"type":"shell_call_output","call_id":"c","output":[{"stdout":"","stderr":"","outcome":{"type":"timeout"}}]},{"type":"reasoning","summary":[]}]}`)
	f.Add(`{"model":"m","input":[{"type":"function_call","call_id":"c","name":"f","arguments":""},{"type":"function_call_output","call_id":"c","output":[]}]}`)
	f.Add(`{"model":"m","previous_response_id":"r","tools":[{"type":"shell","environment":{"type":"container_auto"}},{"type":"function","name":"f"}],"text":{"format":{"type":"text"}}}`)
	f.Fuzz(func(t *testing.T, body string) {
		req, err := decode(body)
		if err != nil {
			if _, ok := errors.AsType[*berth.Error](err); !ok {
				t.Fatalf("an error that is not for the client: %v", err)
			}
			return
		}
		for _, tool := range req.Tools {
			var typed any = &berth.FunctionTool{}
			if tool.Type() == berth.ToolShell {
				typed = &berth.ShellTool{}
			}
			if err := tool.Decode(typed); err != nil {
				t.Fatalf("tool %s: %v", tool.Raw(), err)
			}
		}
		for _, it := range req.Input {
			typed := map[berth.ItemType]any{
				berth.ItemMessage: &berth.Message{}, berth.ItemReasoning: &berth.Reasoning{},
				berth.ItemReference:          &struct{}{},
				berth.ItemFunctionCall:       &berth.FunctionCall{},
				berth.ItemFunctionCallOutput: &berth.FunctionCallOutput{},
				berth.ItemShellCall:          &berth.ShellCall{}, berth.ItemShellCallOutput: &berth.ShellCallOutput{},
			}[it.Type()]
			if err := it.Decode(typed); err != nil {
				t.Fatalf("item %s: %v", it.Raw(), err)
			}
		}
		if _, err := json.Marshal(berth.NewResponse("resp_1", 0, req)); err != nil {
			t.Fatalf("the response does not marshal: %v", err)
		}
	})
}
