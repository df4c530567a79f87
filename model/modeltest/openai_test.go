package modeltest

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/berth-run/berth/api/contract"
	"github.com/berth-run/berth/internal/sse"
	"github.com/berth-run/berth/model"
)

// The double refuses requests that the vendor would refuse.
func TestOpenAIIsStrict(t *testing.T) {
	const (
		user   = `{"role":"user","content":"hi json"}`
		caller = `{"type":"function_call","call_id":"c1","name":"f","arguments":"{}"}`
		answer = `{"type":"function_call_output","call_id":"c1","output":"1"}`
		tool   = `"tools":[{"type":"function","name":"f","parameters":{"type":"object"},"strict":false}]`
	)
	thought, _ := json.Marshal(reasoningItem("Hm."))
	base := func(input string, more ...string) string {
		return "{" + strings.Join(append([]string{`"model":"m","stream":true,"store":false,"input":[` + input + `]`},
			more...), ",") + "}"
	}
	content := func(parts string) string { return base(`{"role":"user","content":[` + parts + `]}`) }
	h := NewOpenAIServer(t, Always(Reply(stop)))
	goods := []string{
		base(user), base(``), base(user + "," + caller + "," + answer), base(caller + "," + user + "," + answer),
		base(user + "," + string(thought) + "," + caller + "," + answer),
		base(user, tool, `"tool_choice":{"type":"function","name":"f"}`),
		base(user, `"max_output_tokens":16,"temperature":2,"include":["reasoning.encrypted_content"],"reasoning":{"effort":"low","summary":"auto"},"text":{"format":{"type":"json_object"},"verbosity":"low"}`),
		content(`{"type":"input_text","text":""},{"type":"input_image","image_url":"https://x/"},{"type":"input_file","filename":"a","file_data":"data:,"}`),
		base(`{"id":"msg_1","type":"message","role":"assistant","status":"completed","phase":"commentary","content":[{"type":"output_text","text":"a"},{"type":"refusal","refusal":"b"}]}`),
		base(`{"type":"compaction","encrypted_content":"x"}`),
	}
	for i, good := range goods {
		if status, body := send(t, h.URL+"/responses", good, http.Header{}); status != 200 {
			t.Errorf("good request %d: got %d %s", i, status, body)
		}
	}
	for _, bad := range []string{
		``, `[]`, base(user, `"unknown":1`), base(user, `"messages":[]`), strings.Replace(base(user), `"store":false,`,
			``, 1), strings.Replace(base(user), `"store":false`, `"store":true`, 1), strings.Replace(base(user),
			`"model":"m",`, ``, 1), `{"model":"m","stream":true,"store":false}`,
		base(user, `"max_output_tokens":15`), base(user, `"temperature":2.5`), base(user, `"include":["everything"]`),
		base(user, `"reasoning":{"effort":"much"}`), base(user, `"reasoning":{"budget":1}`),
		base(user, `"top_logprobs":21`), base(user, `"text":{"format":{"type":"xml"}}`),
		base(user, `"text":{"format":{"type":"json_schema","json_schema":{}}}`),
		base(`{"role":"user","content":"hi"}`, `"text":{"format":{"type":"json_object"}}`),
		base(user, `"tools":[{"type":"function","function":{"name":"f"}}]`),
		base(user, `"tools":[{"type":"function","name":"f"}]`), base(user, strings.Replace(tool, `"f"`, `"a b"`, 1)),
		base(user, strings.Replace(tool, `"strict":false`, `"strict":true`, 1)),
		base(user, strings.Replace(tool, `"object"`, `"string"`, 1)),
		base(user, tool, `"tool_choice":"any"`), base(user, tool, `"tool_choice":{"type":"function","name":"g"}`),
		base(user, `"tool_choice":"required"`),
		base(`{"role":"tool","content":"a"}`), base(`{"role":"user"}`), base(`{"role":"user","content":null}`),
		base(`{"role":"user","content":"a","name":"b"}`), base(`{"id":"m1","role":"user","content":"a"}`),
		base(`{"role":"user","content":"a","status":"done"}`), base(`{"type":"novelty"}`),
		content(`{"type":"text","text":"a"}`), content(`{"type":"output_text","text":"a"}`),
		content(`{"type":"input_text"}`), content(`{"type":"input_image"}`),
		content(`{"type":"input_image","image_url":{"url":"https://x/"}}`),
		content(`{"type":"input_file","file_data":"data:,"}`),
		base(`{"role":"assistant","content":[{"type":"input_text","text":"a"}]}`),
		base(user + "," + answer), base(user + "," + caller), base(user + "," + caller + "," + answer + "," + answer),
		base(user + "," + caller + "," + caller + "," + answer),
		base(strings.Replace(caller, `"c1"`, `""`, 1) + "," + answer),
		base(strings.Replace(caller, `"c1"`, `"`+strings.Repeat("c", 65)+`"`, 1)),
		base(strings.Replace(caller, `"f"`, `"a.b"`, 1) + "," + answer),
		base(strings.Replace(caller, `,"arguments":"{}"`, ``, 1) + "," + answer),
		base(strings.Replace(caller, `"{}"`, `{}`, 1) + "," + answer),
		base(strings.Replace(caller, `"call_id"`, `"id":"sh_1","call_id"`, 1) + "," + answer),
		base(user + "," + string(thought)), base(string(thought) + "," + user),
		base(strings.Replace(string(thought), "Hm.", "So.", 1) + "," + caller + "," + answer),
		base(`{"type":"reasoning","id":"rs_1","summary":[]},` + caller + "," + answer),
		base(`{"type":"reasoning","id":"rs_1"},` + caller + "," + answer),
	} {
		if status, body := send(t, h.URL+"/responses", bad, http.Header{}); status != 400 {
			t.Errorf("%s: got %d %s, want 400", bad, status, body)
		}
	}
	if n := len(h.Requests()); n != len(goods) {
		t.Errorf("recorded %d requests, want the %d good ones", n, len(goods))
	}
}

// The double's events conform to OpenAI's published contract.
func TestOpenAIStream(t *testing.T) {
	cut := stop
	cut.Reason = model.FinishLength
	h := NewOpenAIServer(t, Play(
		Reply(model.Thought{Text: "Hm."}, model.Text{Text: "a"},
			model.Text{Text: "b",
				Logprobs: []json.RawMessage{json.RawMessage(
					`{"token":"b","logprob":-1,"bytes":[98],"top_logprobs":[]}`)}},
			model.Call{ID: "c1", Name: "f"}, model.Call{Index: 1, ID: "c2", Name: "g", Arguments: "{}"},
			model.Call{Arguments: "{}"}, stop),
		Reply(Sealed{}, model.Refusal{Text: "No."}, cut),
		Reply(Fault{Code: "rate_limit_exceeded", Message: "Slow down."})))
	op := contract.Load().Find(http.MethodPost, "/responses")
	for turn, want := range []int{24, 11, 3} {
		status, body := send(t, h.URL+"/responses", `{"model":"m","stream":true,"store":false,"input":[]}`,
			http.Header{})
		n := 0
		for ev, err := range sse.NewReader(strings.NewReader(body), 0).Events() {
			n++
			var head struct {
				Type     string
				Sequence int `json:"sequence_number"`
			}
			if err == nil {
				err = json.Unmarshal(ev.Data, &head)
			}
			if err == nil {
				err = op.Event(ev.Type, ev.Data)
			}
			if err != nil || head.Type != ev.Type || head.Sequence != n-1 {
				t.Errorf("event %d: %v: %s", n, err, ev.Data)
			}
		}
		if status != 200 || n != want {
			t.Errorf("turn %d: got %d and %d events, want %d", turn, status, n, want)
		}
	}
}
