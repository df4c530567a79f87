package modeltest

import (
	"io"
	"net/http"
	"strings"
	"testing"
)

// send posts a body to a double. It returns the status and body of the response.
func send(t *testing.T, url, body string, header http.Header) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header = header
	res, err := http.DefaultClient.Do(req)
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
func TestAnthropicIsStrict(t *testing.T) {
	const (
		user   = `{"role":"user","content":"hi"}`
		caller = `{"role":"assistant","content":[{"type":"tool_use","id":"c1","name":"f","input":{}}]}`
		answer = `{"role":"user","content":[{"type":"tool_result","tool_use_id":"c1","content":"1"}]}`
		tool   = `"tools":[{"name":"f","input_schema":{"type":"object"}}]`
	)
	of := func(model, messages string, more ...string) string {
		return "{" +
			strings.Join(append([]string{`"model":"` + model + `","max_tokens":2000,"stream":true,"messages":[` +
				messages + `]`}, more...), ",") + "}"
	}
	base := func(messages string, more ...string) string { return of("m", messages, more...) }
	content := func(blocks string) string { return base(`{"role":"user","content":[` + blocks + `]}`) }
	model := func(blocks string) string {
		return base(user + `,{"role":"assistant","content":[` + blocks + `]},` + answer)
	}
	header := http.Header{"Anthropic-Version": {"2023-06-01"}}
	h := NewAnthropicServer(t, Always(Reply(stop)))
	goods := []string{
		base(user), base(user + "," + caller + "," + answer), base(user, `"system":"Be brief."`),
		base(user, `"system":[{"type":"text","text":"a","cache_control":{"type":"ephemeral"}}]`),
		base(user, tool, `"tool_choice":{"type":"auto","disable_parallel_tool_use":true}`),
		base(user, tool, `"tool_choice":{"type":"tool","name":"f"}`),
		content(`{"type":"image","source":{"type":"base64","media_type":"image/png","data":"aGk="}},{"type":"document","title":"a","source":{"type":"text","media_type":"text/plain","data":"hi"}}`),
		of("claude-sonnet-4-5", user, `"thinking":{"type":"enabled","budget_tokens":1024}`), of("claude-opus-5-5", user,
			`"thinking":{"type":"adaptive"},"output_config":{"effort":"xhigh"}`),
		base(user, `"output_config":{"format":{"type":"json_schema","schema":{"type":"object","additionalProperties":false}}}`),
		base(user, `"temperature":1,"top_p":0.5,"stop_sequences":["a"],"metadata":{"user_id":"u"}`),
	}
	for i, good := range goods {
		if status, body := send(t, h.URL+"/v1/messages", good, header); status != 200 {
			t.Errorf("good request %d: got %d %s", i, status, body)
		}
	}
	for _, bad := range []string{
		``, `[]`, base(``), base(user, `"unknown":1`), `{"model":"m","stream":true,"messages":[` + user + `]}`,
		`{"max_tokens":1,"stream":true,"messages":[` + user + `]}`, `{"model":"m","max_tokens":1,"messages":[` + user +
			`]}`,
		strings.Replace(base(user), "2000", "0", 1), base(user, `"temperature":1.5`), base(user, `"top_p":-1`),
		base(user, `"stop_sequences":[""]`), base(user, `"metadata":{"user":"u"}`),
		base(`{"role":"assistant","content":"hi"}`), base(user + "," + user),
		base(user + `,{"role":"assistant","content":"hi"}`), base(`{"role":"system","content":"hi"},` + user),
		base(`{"role":"tool","content":"hi"}`),
		base(`{"role":"user"}`), base(`{"role":"user","content":""}`), base(`{"role":"user","content":[]}`),
		base(`{"role":"user","content":" "}`), base(`{"role":"user","content":"a","name":"b"}`),
		content(`{"type":"text"}`), content(`{"type":"text","text":"a","title":"b"}`), content(`{"type":"novelty"}`),
		content(`{"type":"tool_use","id":"c1","name":"f","input":{}}`), content(`{"type":"input_text","text":"a"}`),
		content(`{"type":"image","source":{"type":"base64","media_type":"image/tiff","data":"aGk="}}`),
		content(`{"type":"image","source":{"type":"base64","media_type":"image/png","data":"%"}}`),
		content(`{"type":"image","source":{"type":"url","url":"http://x/"}}`), content(`{"type":"image"}`),
		content(`{"type":"document","source":{"type":"base64","media_type":"text/plain","data":"aGk="}}`),
		base(user, `"system":[{"type":"text","text":""}]`), base(user, `"system":[{"type":"image"}]`),
		base(user, `"system":[{"type":"text","text":"a","cache_control":{"type":"for ever"}}]`),
		content(strings.TrimSuffix(strings.Repeat(`{"type":"text","text":"a","cache_control":{"type":"ephemeral"}},`,
			5), ",")),
		base(user, tool, `"tool_choice":"auto"`), base(user, `"tool_choice":{"type":"auto"}`),
		base(user, tool, `"tool_choice":{"type":"tool","name":"g"}`), base(user, tool, `"tool_choice":{"type":"tool"}`),
		base(user, tool, `"tool_choice":{"type":"none","disable_parallel_tool_use":true}`),
		base(user, strings.Replace(tool, `"f"`, `"a b"`, 1)), base(user, strings.Replace(tool, `"object"`, `"string"`,
			1)), base(user, `"tools":[{"name":"f"}]`),
		base(user, `"tools":[{"name":"f","input_schema":{"type":"object","anyOf":[]}}]`),
		base(user, strings.Replace(tool, `"name":"f"`, `"name":"f","strict":true`, 1)),
		base(user, strings.Replace(tool, `"name":"f"`, `"name":"f","parameters":{}`, 1)),
		base(user + "," + answer), base(user + "," + caller), base(user + "," + caller + "," + user),
		base(user + "," + caller +
			`,{"role":"user","content":[{"type":"text","text":"a"},{"type":"tool_result","tool_use_id":"c1"}]}`),
		base(user + "," + caller + "," + answer + "," + caller + "," + answer),
		base(user + "," + caller + strings.Replace(","+answer, "c1", "c2", 1)),
		model(`{"type":"tool_use","id":"c.1","name":"f","input":{}}`),
		model(`{"type":"tool_use","id":"c1","name":"","input":{}}`),
		model(`{"type":"tool_use","id":"c1","name":"f","input":"{}"}`),
		model(`{"type":"tool_use","id":"c1","name":"f"}`),
		model(`{"type":"thinking","thinking":"a","signature":"b"},{"type":"tool_use","id":"c1","name":"f","input":{}}`),
		model(`{"type":"tool_use","id":"c1","name":"f","input":{}},{"type":"thinking","thinking":"a","signature":"b"}`),
		base(user, `"thinking":{"type":"much"}`), base(user, `"thinking":{"type":"enabled"}`),
		base(user, `"thinking":{"type":"enabled","budget_tokens":2000}`),
		base(user, `"thinking":{"type":"enabled","budget_tokens":1000}`),
		base(user, `"thinking":{"type":"enabled","budget_tokens":1024},"temperature":0.5`),
		base(user, tool, `"thinking":{"type":"enabled","budget_tokens":1024},"tool_choice":{"type":"any"}`),
		base(user+","+caller+","+answer, `"thinking":{"type":"enabled","budget_tokens":1024}`),
		of("claude-opus-4-7", user, `"thinking":{"type":"enabled","budget_tokens":1024}`), of("claude-sonnet-4-5", user,
			`"thinking":{"type":"adaptive"}`), of("claude-opus-4-8", user,
			`"thinking":{"type":"adaptive","block_binding":{"prefix_mismatch_behavior":"drop_block"}}`),
		// without the beta
		of("claude-opus-5-5", user,
			`"thinking":{"type":"adaptive","block_binding":{"prefix_mismatch_behavior":"drop_block"}}`),
		of("claude-opus-4-7", user, `"temperature":1`), of("claude-opus-4-1-20250805", user,
			`"temperature":1,"top_p":1`), of("claude-haiku-4-5", user, `"output_config":{"effort":"low"}`),
		of("claude-opus-4-6", user, `"output_config":{"effort":"xhigh"}`),
		of("claude-3-5-sonnet-20241022", user, `"output_config":{"format":{"type":"json_schema","schema":{}}}`),
		base(user, `"output_config":{"format":{"type":"json_schema","schema":{"type":"object"}}}`),
		base(user, `"output_config":{"format":{"type":"json_schema","schema":{"type":"object","additionalProperties":false,"properties":{"a":{"type":"string","minLength":1}}}}}`),
		base(user, `"output_format":{}`),
	} {
		if status, body := send(t, h.URL+"/v1/messages", bad, header); status != 400 {
			t.Errorf("%s: got %d %s, want 400", bad, status, body)
		}
	}
	if status, _ := send(t, h.URL+"/v1/messages", base(user), http.Header{}); status != 400 {
		t.Errorf("without a version: got %d", status)
	}
	if n := len(h.Requests()); n != len(goods) {
		t.Errorf("recorded %d requests, want the %d good ones", n, len(goods))
	}
}
