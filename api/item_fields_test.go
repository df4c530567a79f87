package api_test

import (
	"strings"
	"testing"
)

// An unknown field of an item, or of a part of one, is refused by its place, as OpenAI does. Fields of OpenAI's document
// and Berth's own pass.
func TestUnknownItemFields(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	conversation := h.call(200, "POST", "/v1/conversations", `{}`).id()
	const output = `{"type":"function_call_output","call_id":"c","output":"1"}`
	for _, tc := range []struct{ items, param string }{
		{`{"role":"user","content":"hi","zzz":1}`, "[0].zzz"},
		{`{"role":"user","content":"hi"},{"type":"message","role":"assistant","content":"ho","zzz":1}`, "[1].zzz"},
		{`{"role":"user","content":[{"type":"input_text","text":"hi","zzz":1}]}`, "[0].content[0].zzz"},
		{`{"role":"user","content":[{"type":"input_text","text":"hi","parsed":null}]}`, "[0].content[0].parsed"},
		{`{"role":"user","content":"hi","parsed_arguments":null}`, "[0].parsed_arguments"},
		{`{"type":"function_call","call_id":"c","name":"f","arguments":"{}"},` + strings.Replace(output, "{", `{"zzz":1,`,
			1), "[1].zzz"},
		{`{"type":"function_call","call_id":"c","name":"f","arguments":"{}"},` + strings.Replace(output, `"1"`,
			`[{"type":"input_text","text":"1","zzz":1}]`, 1), "[1].output[0].zzz"},
		{`{"type":"reasoning","summary":[{"type":"summary_text","text":"a","zzz":1}]}`, "[0].summary[0].zzz"},
		{`{"type":"reasoning","summary":[],"arguments":"x"}`, "[0].arguments"},
		{`{"type":"shell_call","call_id":"c","action":{"commands":["ls"]},"zzz":1}`, "[0].zzz"},
		{`{"role":"user","content":[{"type":"input_text","text":"hi","prompt_cache_breakpoint":{"mode":"explicit"}}]},
			{"type":"message","role":"assistant","phase":"final_answer","created_by":"x","agent":null,"berth":{"a":1},
			"content":[{"type":"output_text","text":"hi","annotations":[],"logprobs":[],"berth":{"b":1}}]},
			{"type":"function_call","call_id":"c","name":"f","parsed_arguments":null,"caller":{"type":"direct"},"arguments":"{}"},` +
			output + `,{"role":"user","content":"x"}`, ""},
	} {
		for path, body := range map[string]string{
			"/v1/responses":                                `{"model":"scripted","input":[` + tc.items + `]}`,
			"/v1/responses/input_tokens":                   `{"model":"scripted","input":[` + tc.items + `]}`,
			"/v1/conversations":                            `{"items":[` + tc.items + `]}`,
			"/v1/conversations/" + conversation + "/items": `{"items":[` + tc.items + `]}`,
		} {
			status, field := 400, "input"
			if tc.param == "" {
				status = 200
			}
			if strings.Contains(path, "conversations") {
				field = "items"
			}
			answer := h.call(status, "POST", path, body)
			if want := field + tc.param; tc.param != "" && (answer.at("error", "param") != want ||
				answer.at("error", "message") != "Unknown parameter: '"+want+"'.") {
				t.Errorf("%s with %s: got %v, want %s", path, tc.items, answer, want)
			}
		}
	}
}
