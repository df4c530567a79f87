package modeltest

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-run/berth/model"
)

// post sends a body to a double. It returns the status and body of the response.
func post(t *testing.T, h *ChatHandler, body string) (int, string) {
	t.Helper()
	res, err := http.Post(h.URL+"/chat/completions", "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(raw)
}

// The double refuses requests that the vendor would refuse.
func TestChatIsStrict(t *testing.T) {
	const (
		user   = `{"role":"user","content":"json"}`
		caller = `{"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":"{}"}}]}`
		answer = `{"role":"tool","tool_call_id":"c1","content":"1"}`
		tool   = `"tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object"}}}]`
	)
	base := func(messages string, more ...string) string {
		fields := append([]string{`"model":"m","stream":true,"messages":[` + messages + `]`}, more...)
		return "{" + strings.Join(fields, ",") + "}"
	}
	calls := func(call string) string {
		return base(`{"role":"assistant","tool_calls":[` + call + `]},` + answer)
	}
	h := NewChatServer(t, Always(Reply(stop)))
	for i, good := range []string{
		base(user), base(user + "," + caller + "," + answer), base(`{"role":"assistant","refusal":"no"}`),
		base(user, tool, `"tool_choice":"auto","parallel_tool_calls":true`),
		base(`{"role":"user","content":[{"type":"text","text":"a"},{"type":"image_url","image_url":{"url":"data:image/png;base64,aa","detail":"low"}}]}`),
		base(user, `"response_format":{"type":"json_object"}`),
		base(user, `"logprobs":true,"top_logprobs":20,"temperature":2,"top_p":1,"max_tokens":1,"reasoning_effort":"low"`),
	} {
		if status, body := post(t, h, good); status != 200 {
			t.Errorf("good request %d: got %d %s", i, status, body)
		}
	}
	for _, bad := range []string{
		``, `[]`, base(``), base(user, `"unknown":1`), base(user, `"max_tokens":1,"max_completion_tokens":1`),
		base(user, `"max_tokens":0`),
		`{"stream":true,"messages":[` + user + `]}`, `{"model":"m","messages":[` + user + `]}`,
		base(user, `"temperature":2.5`), base(user, `"top_p":-1`), base(user, `"top_logprobs":1`),
		base(user, `"logprobs":true,"top_logprobs":21`),
		base(user, `"reasoning_effort":"much"`), base(user, `"verbosity":"much"`),
		base(user, `"tools":[]`), base(user, `"tool_choice":"auto"`), base(user, `"parallel_tool_calls":true`),
		base(user, tool, `"tool_choice":"any"`),
		base(user, tool, `"tool_choice":{"type":"function","function":{"name":"g"}}`),
		base(user, strings.Replace(tool, `"f"`, `"a b"`, 1)), base(user, strings.Replace(tool, `"object"`, `"string"`,
			1)), base(user, `"tools":[{"type":"function","function":{"name":"f"}}]`),
		base(user, strings.Replace(tool, `"name":"f"`, `"name":"f","strict":true`, 1)),
		base(user, `"response_format":{"type":"xml"}`), base(user, `"response_format":{"type":"json_schema"}`),
		base(`{"role":"user","content":"hi"}`, `"response_format":{"type":"json_object"}`),
		base(`{"role":"stranger","content":"a"}`), base(`{"role":"user"}`), base(`{"role":"user","content":null}`),
		base(`{"role":"user","content":[]}`), base(`{"role":"user","content":7}`),
		base(`{"role":"assistant","content":null}`), base(`{"role":"user","content":"a","reasoning_content":"b"}`),
		base(`{"role":"assistant","content":"a","reasoning_content":"b"}`),
		base(`{"role":"user","content":"a","unknown":1}`),
		base(`{"role":"user","content":[{"type":"input_text","text":"a"}]}`),
		base(`{"role":"user","content":[{"type":"text"}]}`),
		base(`{"role":"system","content":[{"type":"image_url","image_url":{"url":"https://x/"}}]}`),
		base(`{"role":"user","content":[{"type":"image_url","image_url":{"url":"file-1"}}]}`),
		base(`{"role":"user","content":[{"type":"file","file":{"file_data":"data:,"}}]}`),
		base(user + "," + answer), base(caller), base(caller + "," + user + "," + answer),
		base(caller + "," + answer + "," + answer), base(caller + `,{"role":"tool","tool_call_id":"c1"}`),
		base(`{"role":"user","content":"a","tool_calls":[]}`),
		calls(`{"id":"","type":"function","function":{"name":"f","arguments":"{}"}}`),
		calls(`{"id":"c1","function":{"name":"f","arguments":"{}"}}`),
		calls(`{"id":"c1","type":"function","function":{"name":"","arguments":"{}"}}`),
		calls(`{"id":"c1","type":"function","function":{"name":"f"}}`),
		calls(`{"id":"c1","type":"function","function":{"name":"f","arguments":"{"}}`),
		calls(`{"id":"` + strings.Repeat("c", 41) + `","type":"function","function":{"name":"f","arguments":"{}"}}`),
	} {
		if status, body := post(t, h, bad); status != 400 {
			t.Errorf("%s: got %d %s, want 400", bad, status, body)
		}
	}
	if n := len(h.Requests()); n != 7 {
		t.Errorf("recorded %d requests, want the 7 good ones", n)
	}
}

// The double's stream is the documentation's example, apart from the values.
func TestChatStream(t *testing.T) {
	h := NewChatServer(t, Play(
		Reply(model.Text{Text: "a"}, stop),
		Reply(model.Call{ID: "c1", Name: "f"}, model.Call{Arguments: "{}"}, stop)))
	chunk := func(choices string) string {
		return `data: {"id":"chatcmpl-double","object":"chat.completion.chunk","created":1700000000,"model":"m","choices":[` + choices + "]}\n\n"
	}
	choice := func(delta, reason string) string {
		return chunk(fmt.Sprintf(`{"index":0,"delta":%s,"logprobs":null,"finish_reason":%s}`, delta, reason))
	}
	usage := strings.Replace(chunk(""), `"choices":[]`,
		`"choices":[],"usage":{"prompt_tokens":11,"completion_tokens":7,"total_tokens":18,"prompt_tokens_details":{"cached_tokens":4},"completion_tokens_details":{"reasoning_tokens":3}}`, 1)
	last := func(reason string) string {
		return strings.ReplaceAll(choice("{}", reason)+usage, `"model":"m"`, `"model":"double-1"`) + "data: [DONE]\n\n"
	}
	first := choice(`{"content":"","role":"assistant"}`, "null")
	for _, want := range []string{
		first + choice(`{"content":"a"}`, "null") + last(`"stop"`),
		first + choice(
			`{"tool_calls":[{"function":{"arguments":"","name":"f"},"id":"c1","index":0,"type":"function"}]}`, "null") +
			choice(`{"tool_calls":[{"function":{"arguments":"{}"},"index":0}]}`, "null") + last(`"tool_calls"`),
	} {
		_, got := post(t, h, `{"model":"m","stream":true,"messages":[{"role":"user","content":"hi"}]}`)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("stream (-want +got):\n%s", diff)
		}
	}
	if status, _ := post(t, h,
		`{"model":"m","stream":true,"messages":[{"role":"user","content":"hi"}]}`); status != 500 {
		t.Errorf("after the script: got %d, want 500", status)
	}
}
