package chat

import (
	"encoding/json"
	"errors"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/exchange"

	"github.com/berth-run/berth/internal/rule"
	"github.com/berth-run/berth/tool"
	"github.com/berth-run/berth/tool/standard"
)

// rules are the rules for the tools of a server.
var rules = newRules(tool.NewRegistry(standard.Kinds(standard.Options{})...))

// readCompletion decodes a body as Create does.
func readCompletion(body string) (*completionRequest, *berth.ResponseRequest, error) {
	tree, err := exchange.ParseJSON([]byte(body))
	if err != nil {
		return nil, nil, err
	}
	if err := rules.shape("", tree); err != nil {
		return nil, nil, err
	}
	var c completionRequest
	if err := json.Unmarshal([]byte(body), &c); err != nil {
		return nil, nil, err
	}
	if err := c.check(); err != nil {
		return &c, nil, err
	}
	r, err := c.response(rules)
	return &c, r, err
}

var madeIDs = regexp.MustCompile(`"(id|call_id)":"(msg|fc|fco|ctc|ctco|rs|call)_[0-9a-f]{48}"`)

// The request of a completion is converted to this request for a response.
func TestCompletionRequest(t *testing.T) {
	tests := []struct{ name, fields, want string }{
		{"messages of all roles",
			`"messages":[{"role":"developer","content":"D"},{"role":"system","content":[{"type":"text","text":"S"}],"name":"s"},
			{"role":"user","name":"ann","content":[{"type":"text","text":"U"},{"type":"image_url","image_url":{"url":"https://x.example/a.png","detail":"low"}},
				{"type":"file","file":{"file_data":"data:text/plain;base64,YQ==","filename":"a.txt"}},{"type":"file","file":{"file_id":"file-1"}}]},
			{"role":"assistant","content":[{"type":"text","text":"A"},{"type":"refusal","refusal":"R"}],"annotations":[],"refusal":null}]`,
			`"input":[{"content":[{"type":"input_text","text":"D"}],"id":"msg","role":"developer","status":"completed","type":"message"},
			{"content":[{"type":"input_text","text":"S"}],"id":"msg","name":"s","role":"system","status":"completed","type":"message"},
			{"content":[{"type":"input_text","text":"U"},{"type":"input_image","detail":"low","image_url":"https://x.example/a.png"},
				{"type":"input_file","file_data":"data:text/plain;base64,YQ==","filename":"a.txt"},{"type":"input_file","file_id":"file-1"}],"id":"msg","name":"ann","role":"user","status":"completed","type":"message"},
			{"content":[{"type":"output_text","annotations":[],"logprobs":[],"text":"A"},{"type":"refusal","refusal":"R"}],"id":"msg","role":"assistant","status":"completed","type":"message"}],
			"store":false`},
		{"calls and their outputs",
			`"messages":[{"role":"user","content":"U"},
			{"role":"assistant","content":"","reasoning_content":"Hm.","refusal":"R","tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":"{"}},{"id":"b","type":"custom","custom":{"name":"c","input":"x"}}]},
			{"role":"tool","tool_call_id":"b","content":[{"type":"text","text":"2"}]},{"role":"tool","tool_call_id":"a","content":"1"},
			{"role":"assistant","content":null,"function_call":{"name":"g","arguments":"{}"}},{"role":"function","name":"g","content":"3"}]`,
			`"input":[{"content":[{"type":"input_text","text":"U"}],"id":"msg","role":"user","status":"completed","type":"message"},
			{"id":"rs","type":"reasoning","summary":[],"content":[{"type":"reasoning_text","text":"Hm."}]},
			{"content":[{"type":"refusal","refusal":"R"}],"id":"msg","role":"assistant","status":"completed","type":"message"},
			{"arguments":"{","call_id":"a","id":"fc","name":"f","status":"completed","type":"function_call"},
			{"call_id":"b","id":"ctc","input":"x","name":"c","status":"completed","type":"custom_tool_call"},
			{"call_id":"b","id":"ctco","output":[{"type":"input_text","text":"2"}],"status":"completed","type":"custom_tool_call_output"},
			{"call_id":"a","id":"fco","output":"1","status":"completed","type":"function_call_output"},
			{"arguments":"{}","call_id":"call","id":"fc","name":"g","status":"completed","type":"function_call"},
			{"call_id":"call","id":"fco","output":"3","status":"completed","type":"function_call_output"}],
			"store":false`},
		{"tools",
			`"tools":[{"type":"function","function":{"name":"f","description":"F","parameters":{"type":"object"}}},{"type":"function","function":{"name":"g","strict":true}},
			{"type":"custom","custom":{"name":"c","description":"C","format":{"type":"grammar","grammar":{"syntax":"lark","definition":"start: X"}}}},{"type":"custom","custom":{"name":"d","format":{"type":"text"}}},
			{"type":"shell"}],"tool_choice":"required","parallel_tool_calls":false`,
			`"tools":[{"type":"function","name":"f","description":"F","parameters":{"type":"object"},"strict":false},{"type":"function","name":"g","strict":true},
			{"type":"custom","name":"c","description":"C","format":{"type":"grammar","syntax":"lark","definition":"start: X"}},{"type":"custom","name":"d","format":{"type":"text"}},
			{"type":"shell","environment":{"type":"container_auto"}}],"tool_choice":"required","parallel_tool_calls":false,"store":false`},
		{"a tool that is chosen",
			`"tools":[{"type":"shell","environment":{"type":"container_reference","container_id":"cntr_1"}}],"tool_choice":{"type":"shell"}`,
			`"tools":[{"type":"shell","environment":{"type":"container_reference","container_id":"cntr_1"}}],"tool_choice":{"type":"shell"},"store":false`},
		{"a function that is chosen",
			`"tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":{"type":"function","function":{"name":"f"}}`,
			`"tools":[{"type":"function","name":"f","strict":false}],"tool_choice":{"type":"function","name":"f"},"store":false`},
		{"tools that are allowed",
			`"tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"auto","tools":[{"type":"function","function":{"name":"f"}},{"type":"custom","custom":{"name":"c"}},{"type":"shell"}]}}`,
			`"tools":[{"type":"function","name":"f","strict":false}],"tool_choice":{"type":"allowed_tools","mode":"auto","tools":[{"type":"function","name":"f"},{"type":"custom","name":"c"},{"type":"shell"}]},"store":false`},
		{"functions", `"functions":[{"name":"f","parameters":{}}],"function_call":{"name":"f"}`,
			`"tools":[{"type":"function","name":"f","parameters":{},"strict":false}],"tool_choice":{"type":"function","name":"f"},"parallel_tool_calls":false,"store":false`},
		{"a schema",
			`"response_format":{"type":"json_schema","json_schema":{"name":"n","description":"d","schema":{"type":"object","additionalProperties":false},"strict":true}},"verbosity":"low"`,
			`"text":{"format":{"description":"d","name":"n","schema":{"type":"object","additionalProperties":false},"strict":true,"type":"json_schema"},"verbosity":"low"},"store":false`},
		{"a schema that is left out", `"response_format":{"type":"json_schema","json_schema":{"name":"n"}}`,
			`"text":{"format":{"name":"n","schema":{},"type":"json_schema"},"verbosity":""},"store":false`},
		{"an object",
			`"messages":[{"role":"system","content":"Answer in JSON."}],"response_format":{"type":"json_object"}`,
			`"input":[{"content":[{"type":"input_text","text":"Answer in JSON."}],"id":"msg","role":"system","status":"completed","type":"message"}],"text":{"format":{"type":"json_object"},"verbosity":""},"store":false`},
		{"parameters",
			`"max_completion_tokens":5,"temperature":0.5,"top_p":0.25,"logprobs":true,"top_logprobs":2,"reasoning_effort":"low","service_tier":"flex","user":"u","safety_identifier":"s",
			"prompt_cache_key":"k","prompt_cache_retention":"24h","stop":["a","b"],"frequency_penalty":-1,"presence_penalty":1,"seed":-3,"logit_bias":{"5":-100},"modalities":["text"],"n":2,"store":true,"metadata":{"a":"b"}`,
			`"max_output_tokens":5,"temperature":0.5,"top_p":0.25,"top_logprobs":2,"reasoning":{"effort":"low","summary":null},
			"include":["message.output_text.logprobs"],"store":false,"service_tier":"flex","user":"u","safety_identifier":"s","prompt_cache_key":"k","prompt_cache_retention":"24h",
			"stop":["a","b"],"frequency_penalty":-1,"presence_penalty":1,"seed":-3,"logit_bias":{"5":-100}`},
		{"the older bound, one stop", `"max_tokens":5,"stop":"a"`, `"max_output_tokens":5,"store":false,"stop":["a"]`},
		{"nulls", `"stop":null,"tools":null,"tool_choice":null,"n":null,"stream":null,"stream_options":null,"store":null,"response_format":null,"functions":null,"function_call":null,"audio":null`,
			`"store":false`},
	}
	const hi = `"messages":[{"role":"user","content":"hi"}]`
	const hiInput = `"input":[{"content":[{"type":"input_text","text":"hi"}],"id":"msg","role":"user","status":"completed","type":"message"}]`
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			fields, want := tt.fields, tt.want
			if !strings.Contains(fields, `"messages"`) {
				fields, want = fields+","+hi, want+","+hiInput
			}
			_, r, err := readCompletion(`{"model":"m",` + fields + `}`)
			if err != nil {
				t.Fatal(err)
			}
			got, err := json.Marshal(r)
			if err != nil {
				t.Fatal(err)
			}
			got = madeIDs.ReplaceAll(got, []byte(`"$1":"$2"`))
			if diff := cmp.Diff(decodedJSON(t, `{"model":"m",`+want+`}`), decodedJSON(t, string(got))); diff != "" {
				t.Errorf("request (-want +got):\n%s", diff)
			}
		})
	}
}

func decodedJSON(t *testing.T, s string) (v any) {
	t.Helper()
	if err := json.Unmarshal([]byte(s), &v); err != nil {
		t.Fatalf("%s: %v", s, err)
	}
	return v
}

// Unsupported requests are refused with their place, in OpenAI's words.
func TestCompletionRequestErrors(t *testing.T) {
	const call = `{"role":"assistant","tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":"{}"}}]}`
	tests := []struct{ fields, param, code, message string }{
		{`"messages":[]`, "messages", "empty_array",
			"Invalid 'messages': empty array. Expected an array with minimum length 1, but got an empty array instead."},
		{`"messages":[{"content":"x"}]`, "messages[0].role", "missing_required_parameter",
			"Missing required parameter: 'messages[0].role'."},
		{`"messages":[{"role":"bot","content":"x"}]`, "messages[0].role", "invalid_value",
			"Invalid value: 'bot'. Supported values are: 'assistant', 'developer', 'function', 'system', 'tool', and 'user'."},
		{`"messages":[{"role":"user","content":7}]`, "messages[0].content", "invalid_type",
			"Invalid type for 'messages[0].content': expected one of a string or array of objects, but got an integer instead."},
		{`"messages":[{"role":"user","content":[]}]`, "messages[0].content", "empty_array", ""},
		{`"messages":[{"role":"user","content":"x","parsed":1}]`, "messages[0].parsed", "unknown_parameter",
			"Unknown parameter: 'messages[0].parsed'."},
		{`"messages":[{"role":"user","content":[{"type":"input_audio","input_audio":{"data":"","format":"wav"}}]}]`,
			"messages[0].content[0].type", "unsupported_value", ""},
		{`"messages":[{"role":"assistant"}]`, "messages[0].content", "missing_required_parameter", ""},
		{`"messages":[{"role":"tool","tool_call_id":"a","content":"x"}]`, "messages.[0].role", "",
			"Invalid parameter: messages with role 'tool' must be a response to a preceding message with 'tool_calls'."},
		{`"messages":[` + call + `,{"role":"user","content":"x"}]`, "messages.[1].role", "",
			"An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. The following tool_call_ids did not have response messages: a"},
		{`"messages":[` + call + `]`, "messages.[0].role", "", ""},
		{`"messages":[` + call +
			`,{"role":"tool","tool_call_id":"a","content":"x"},{"role":"tool","tool_call_id":"a","content":"x"}]`,
			"messages.[2].role", "", ""},
		{`"messages":[{"role":"function","name":"f","content":"x"}]`, "messages.[0].role", "",
			"Invalid parameter: messages with role 'function' must be a response to a preceding message with 'function_call'."},
		{`"n":9`, "n", "integer_above_max_value",
			"Invalid 'n': integer above maximum value. Expected a value <= 8, but got 9 instead."},
		{`"stop":["a","b","c","d","e"]`, "stop", "array_above_max_length", ""},
		{`"stop":7`, "stop", "invalid_type",
			"Invalid type for 'stop': expected one of a string or array of strings, but got an integer instead."},
		{`"stream_options":{}`, "stream_options", "",
			"The 'stream_options' parameter is only allowed when 'stream' is enabled."},
		{`"top_logprobs":1`, "top_logprobs", "",
			"The 'top_logprobs' parameter is only allowed when 'logprobs' is enabled."},
		{`"max_tokens":1,"max_completion_tokens":1`, "max_tokens", "invalid_parameter_combination", ""},
		{`"tool_choice":"auto"`, "tool_choice", "",
			"Invalid value for 'tool_choice': 'tool_choice' is only allowed when 'tools' are specified."},
		{`"parallel_tool_calls":true`, "parallel_tool_calls", "", ""},
		{`"function_call":"auto"`, "function_call", "", ""},
		{`"functions":[{"name":"f"}],"tools":[{"type":"shell"}]`, "functions", "", ""},
		{`"functions":[]`, "functions", "empty_array", ""},
		{`"tools":[{"type":"shell","environment":{"type":"local"}}]`, "tools[0].environment.type", "unsupported_value",
			""},
		{`"tools":[{"type":"apply_patch"}]`, "tools[0].type", "unsupported_value",
			"Unsupported value: 'apply_patch' tools are not supported by this server."},
		{`"tools":[{"type":"web_search"}]`, "tools[0].type", "unsupported_value", ""},
		{`"tools":[{"type":"function","name":"f"}]`, "tools[0].name", "unknown_parameter", ""},
		{`"modalities":["text","audio"]`, "modalities[1]", "unsupported_value", ""},
		{`"audio":{}`, "audio", "unsupported_parameter",
			"Unsupported parameter: 'audio' is not supported by this server."},
		{`"prediction":{}`, "prediction", "unsupported_parameter", ""},
		{`"web_search_options":{"search_context_size":"huge"}`, "web_search_options.search_context_size",
			"invalid_value", ""},
		{`"web_search_options":{"user_location":{"type":"approximate"}}`,
			"web_search_options.user_location.approximate", "missing_required_parameter", ""},
		{`"web_search_options":{"user_location":{"type":"exact","approximate":{}}}`,
			"web_search_options.user_location.type", "invalid_value", ""},
		{`"logit_bias":{"x":1}`, "logit_bias", "invalid_value", ""},
		{`"logit_bias":{"1":101}`, "logit_bias.1", "integer_above_max_value", ""},
		{`"frequency_penalty":3`, "frequency_penalty", "decimal_above_max_value", ""},
		{`"metadata":{"a":1}`, "metadata.a", "invalid_type", ""},
		{`"max_output_tokens":1`, "max_output_tokens", "unknown_parameter", ""},
	}
	for _, tt := range tests {
		fields := tt.fields
		if !strings.Contains(fields, `"messages"`) {
			fields += `,"messages":[{"role":"user","content":"hi"}]`
		}
		_, _, err := readCompletion(`{"model":"m",` + fields + `}`)
		e, ok := errors.AsType[*berth.Error](err)
		if !ok || e.Param != tt.param || e.Wire != tt.code || tt.message != "" && e.Message != tt.message {
			t.Errorf("%s:\ngot  %#v\nwant %s %s: %s", tt.fields, err, tt.code, tt.param, tt.message)
		}
	}
}

func TestCompletionParam(t *testing.T) {
	for param, want := range map[string]string{
		"input": "messages", "input[0].content": "messages[0].content", "inputs": "inputs",
		"max_output_tokens":  "max_completion_tokens",
		"text.format.schema": "response_format.schema", "reasoning.effort": "reasoning_effort",
		"tools[3].name":                     "tools[3].function.name",
		"tools[0].environment.container_id": "tools[0].environment.container_id", "model": "model", "": "",
	} {
		if got := new(completionRequest).param(param); got != want {
			t.Errorf("%s: got %s, want %s", param, got, want)
		}
	}
	if got := (&completionRequest{Functions: []json.RawMessage{nil}}).param(
		"tools[3].name"); got != "functions[3].name" {
		t.Errorf("of a function: got %s", got)
	}
}

// Any body becomes a request that can be stored and read again, or an error for the client.
func FuzzCompletionRequest(f *testing.F) {
	f.Add(`{"model":"m","messages":[{"role":"user","content":"hi"}],"stop":"a","tools":[{"type":"shell"}],"tool_choice":{"type":"shell"}}`)
	f.Add(`{"model":"m","messages":[{"role":"assistant","content":null,"function_call":{"name":"f","arguments":""}},{"role":"function","name":"f"}],"functions":[{"name":"f"}]}`)
	f.Add(`{"model":"m","messages":[{"role":"assistant","tool_calls":[{"id":"a","type":"custom","custom":{"name":"c","input":""}}]},{"role":"tool","tool_call_id":"a","content":[{"type":"text","text":""}]}],"response_format":{"type":"json_schema","json_schema":{"name":"n"}}}`)
	f.Fuzz(func(t *testing.T, body string) {
		c, r, err := readCompletion(body)
		if err != nil {
			if _, ok := errors.AsType[*berth.Error](err); !ok {
				t.Fatalf("%s: an error that is not the client's: %v", body, err)
			}
			return
		}
		raw, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		var again berth.ResponseRequest
		if err := json.Unmarshal(raw, &again); err != nil {
			t.Fatalf("%s became %s: %v", body, raw, err)
		}
		tree, err := exchange.ParseJSON(raw)
		if err != nil {
			t.Fatal(err)
		}
		if err := rule.List(rules.request.Item, 0)("input", tree.(map[string]any)["input"]); err != nil &&
			len(r.Input) > 0 {
			t.Fatalf("%s became items that Responses refuses: %s: %v", body, raw, err)
		}
		for i := range c.Messages {
			if _, err := json.Marshal(newStoredMessage("x", &c.Messages[i])); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// A registered kind of hosted tool is accepted and converted as its Chat describes.
func TestHostedToolInChat(t *testing.T) {
	echo := tool.Kind{Type: "echo", Name: "echo", Chat: &tool.Chat{
		Tool:   rule.Object(rule.Fields{"type": rule.AnyText, "loud": rule.Boolean}),
		Choice: rule.Object(rule.Fields{"type": rule.AnyText}),
	}}
	rules := newRules(tool.NewRegistry(append(standard.Kinds(standard.Options{}), echo)...))
	body := `{"model":"m","messages":[{"role":"user","content":"Hi."}],"tools":[{"type":"echo","loud":true}],"tool_choice":{"type":"echo"}}`
	tree, err := exchange.ParseJSON([]byte(body))
	if err != nil {
		t.Fatal(err)
	}
	if err := rules.shape("", tree); err != nil {
		t.Fatalf("shape: %v", err)
	}
	var c completionRequest
	if err := json.Unmarshal([]byte(body), &c); err != nil {
		t.Fatal(err)
	}
	r, err := c.response(rules)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := json.Marshal(r.Tools); err != nil || string(got) != `[{"type":"echo","loud":true}]` {
		t.Errorf("tools are %s, %v; want the entry unchanged", got, err)
	}
	if string(r.ToolChoice) != `{"type":"echo"}` {
		t.Errorf("tool_choice is %s", r.ToolChoice)
	}
}

// An error about the tool that web_search_options stand for names that field.
func TestWebSearchParam(t *testing.T) {
	c := &completionRequest{Tools: []json.RawMessage{[]byte(`{}`)}, WebSearchOptions: &webSearchOptions{}}
	if got := c.param("tools[1].type"); got != "web_search_options" {
		t.Errorf("got %s", got)
	}
	if got := c.param("tools[0].type"); got != "tools[0].type" {
		t.Errorf("got %s", got)
	}
}
