package api_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-run/berth/model"
	"github.com/berth-run/berth/model/anthropic"
	"github.com/berth-run/berth/model/upstream"
	"github.com/berth-run/berth/store"
)

// nativeWhole is an answer with what only Anthropic's models send.
const nativeWhole = `{"id":"msg_01","type":"message","role":"assistant","model":"claude-x-1","content":[` +
	`{"type":"thinking","thinking":"Hm <b>.","signature":"EqQB+/sig=="},` +
	`{"type":"text","text":"See & tell.","citations":[{"type":"char_location","cited_text":"a","document_index":0,` +
	`"document_title":null,"start_char_index":0,"end_char_index":1,"file_id":null}]}],` +
	`"stop_reason":"stop_sequence","stop_sequence":"END","usage":{"input_tokens":5,"cache_creation_input_tokens":20,` +
	`"cache_read_input_tokens":100,"output_tokens":7,"service_tier":"standard"},"new_field":{"a": 1}}`

// nativeEvents are the data of a stream with such an answer.
var nativeEvents = []string{
	`{"type":"message_start","message":{"id":"msg_01","type":"message","role":"assistant","model":"claude-x-1","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":5,"cache_creation_input_tokens":20,"cache_read_input_tokens":100,"output_tokens":1}}}`,
	`{"type":"ping"}`,
	`{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":""}}`,
	`{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"Hm <b>."}}`,
	`{"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"EqQB+/sig=="}}`,
	`{"type":"content_block_stop","index":0}`,
	`{"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"output_tokens":7}}`,
	`{"type":"message_stop"}`,
}

// A nativeServer is an upstream that speaks Messages, with fixed answers.
type nativeServer struct {
	events  []string // of a stream
	refuses string   // the body of a refusal; "" for none
	failing int      // requests that are answered 529 first

	mu      sync.Mutex
	bodies  []string
	headers []http.Header
}

func (s *nativeServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bodies, s.headers = append(s.bodies, string(body)), append(s.headers, r.Header)
	switch {
	case s.failing > 0:
		s.failing--
		w.WriteHeader(529)
	case s.refuses != "":
		w.WriteHeader(http.StatusBadRequest)
		io.WriteString(w, s.refuses)
	case strings.Contains(string(body), `"stream":true`):
		w.Header().Set("Content-Type", "text/event-stream")
		for _, ev := range s.events {
			io.WriteString(w, "event: x\ndata: "+ev+"\n\n")
		}
	default:
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, nativeWhole)
	}
}

// native starts a server whose models claude-* are of an Anthropic upstream.
func native(t *testing.T, s *nativeServer) *house {
	t.Helper()
	if s.events == nil {
		s.events = nativeEvents
	}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	p, err := anthropic.New(anthropic.Options{Options: upstream.Options{BaseURL: server.URL, APIKey: "sk-up"}})
	check(t, err)
	return newHouse(t, nil, model.Rule{Match: "claude-x", Provider: p, Upstream: "claude-x-1"})
}

// nativeRequest has fields that no other model understands.
const nativeRequest = `{"model":"claude-x","max_tokens":99,"top_k":4,"cache_control":{"type":"ephemeral"},` +
	`"context_management":{"edits":[{"type":"clear_tool_uses_20250919"}]},` +
	`"tools":[{"type":"bash_20250124","name":"bash"},{"name":"f","input_schema":{"type":"object"},"cache_control":{"type":"ephemeral"}}],` +
	`"messages":[{"role":"user","content":[{"type":"document","source":{"type":"text","media_type":"text/plain","data":"a<b"},"citations":{"enabled":true},"cache_control":{"type":"ephemeral","ttl":"1h"}}]},` +
	`{"role":"assistant","content":[{"type":"thinking","thinking":"Hm.","signature":"EqQB+/sig=="},{"type":"text","text":"a"}]},` +
	`{"role":"user","content":"more"}]`

// A request for which the server does nothing passes to an Anthropic upstream and back unchanged, and is counted.
func TestMessagesPass(t *testing.T) {
	t.Parallel()
	up := &nativeServer{failing: 1}
	h := native(t, up)
	req, err := http.NewRequest("POST", h.url+"/v1/messages", strings.NewReader(nativeRequest+`,"thread":{"type":"create"}}`))
	check(t, err)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Anthropic-Beta", "interleaved-thinking-2025-05-14")
	res, err := http.DefaultClient.Do(req)
	check(t, err)
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	check(t, err)
	if string(answer) != nativeWhole || res.StatusCode != 200 || res.Header.Get("request-id") == "" {
		t.Errorf("the answer is %d %s", res.StatusCode, answer)
	}
	var sent, want map[string]json.RawMessage
	check(t, json.Unmarshal([]byte(up.bodies[1]), &sent))
	check(t, json.Unmarshal([]byte(nativeRequest+`}`), &want))
	want["model"] = json.RawMessage(`"claude-x-1"`)
	if diff := cmp.Diff(rawTexts(want), rawTexts(sent)); diff != "" {
		t.Errorf("the upstream's request (-want +got):\n%s", diff)
	}
	if beta := up.headers[1].Get("Anthropic-Beta"); beta != "interleaved-thinking-2025-05-14" ||
		up.headers[1].Get("X-Api-Key") != "sk-up" {
		t.Errorf("the upstream's header is %v", up.headers[1])
	}
	h.usedTokens("claude-x", 125, 7)
}

func rawTexts(fields map[string]json.RawMessage) map[string]string {
	out := map[string]string{}
	for name, value := range fields {
		out[name] = string(value)
	}
	return out
}

// usedTokens checks the usage of a model.
func (h *house) usedTokens(name string, input, output int64) {
	h.t.Helper()
	all, err := h.store.Usage(h.t.Context(), store.UsageQuery{Kind: store.UsageResponse, To: time.Now().Add(time.Hour),
		Width: time.Minute})
	check(h.t, err)
	var in, out int64
	for _, u := range all {
		if u.Name == name {
			in, out = in+u.InputTokens, out+u.OutputTokens
		}
	}
	if in != input || out != output {
		h.t.Errorf("%s has used %d and %d tokens, want %d and %d", name, in, out, input, output)
	}
}

func TestMessagesPassStream(t *testing.T) {
	t.Parallel()
	h := native(t, &nativeServer{})
	var got []string
	for _, ev := range h.rest(h.stream(t.Context(), "POST", "/v1/messages", nativeRequest+`,"stream":true}`)) {
		if !strings.Contains(string(ev.Data), `"`+ev.Type+`"`) {
			t.Errorf("an event %s has the data %s", ev.Type, ev.Data)
		}
		got = append(got, string(ev.Data))
	}
	if diff := cmp.Diff(nativeEvents, got); diff != "" {
		t.Errorf("the events (-want +got):\n%s", diff)
	}
	h.usedTokens("claude-x", 125, 7)
}

// A stream that breaks off ends with an error, and what it used is counted.
func TestMessagesPassBroken(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		last, want string
	}{
		"cut":   {`{"type":"ping"}`, "ended its answer early"},
		"error": {`{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`, "failed (529)"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := native(t, &nativeServer{events: append(nativeEvents[:4:4], tc.last)})
			events := h.rest(h.stream(t.Context(), "POST", "/v1/messages", nativeRequest+`,"stream":true}`))
			end := events[len(events)-1]
			if end.Type != "error" || !strings.Contains(string(end.Data), tc.want) {
				t.Errorf("the last event is %s %s", end.Type, end.Data)
			}
			h.usedTokens("claude-x", 125, 1)
		})
	}
}

// The upstream's refusal has the client's places.
func TestMessagesPassRefused(t *testing.T) {
	t.Parallel()
	h := native(t, &nativeServer{refuses: `{"type":"error","error":{"type":"invalid_request_error","message":"messages.1.content.0: Invalid signature"}}`})
	o := h.call(400, "POST", "/v1/messages", nativeRequest+`}`)
	if got := o.at("error", "message"); got != "messages.1.content.0: Invalid signature" {
		t.Errorf("the message is %v", got)
	}
}

// What the server does itself, or what only it can read, does not pass.
func TestMessagesPassNot(t *testing.T) {
	t.Parallel()
	for name, fields := range map[string]string{
		"tool":      `"tools":[{"type":"code_execution_20250825","name":"code_execution"}],"messages":[{"role":"user","content":"hi"}]`,
		"signature": `"messages":[{"role":"user","content":"hi"},{"role":"assistant","content":[{"type":"thinking","thinking":"x","signature":"berth.thought.1.c.1.x"}]},{"role":"user","content":"hi"}]`,
		"history":   `"messages":[{"role":"user","content":"hi"},{"role":"assistant","content":[{"type":"server_tool_use","id":"srvtoolu_1","name":"bash_code_execution","input":{"command":"ls"}}]},{"role":"user","content":"hi"}]`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			up := &nativeServer{}
			h := native(t, up)
			o := h.call(200, "POST", "/v1/messages", `{"model":"claude-x","max_tokens":99,`+fields+`}`)
			if o["model"] != "claude-x" || strings.Contains(up.bodies[0], "berth.thought") ||
				strings.Contains(up.bodies[0], "20250825") {
				t.Errorf("the answer is %v, and the upstream got %s", o, up.bodies[0])
			}
		})
	}
}
