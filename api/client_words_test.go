package api_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api"
	"github.com/berth-run/berth/model"
	"github.com/berth-run/berth/model/scripted"
)

// LangGraph's agents send the function's name with its output, and clients that join a
// stream's chunks leave the index in a call. Both are accepted.
func TestToolMessageName(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	h.call(200, "POST", "/v1/chat/completions", `{"model":"scripted","messages":[{"role":"user","content":"weather?"},
		{"role":"assistant","content":null,"tool_calls":[{"index":0,"id":"c1","type":"function","function":{"name":"get_weather","arguments":"{}"}}]},
		{"role":"tool","tool_call_id":"c1","name":"get_weather","content":"sunny"}]}`)
}

// The query beta=true, which the SDKs' beta resources send, is accepted.
func TestBetaQuery(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	id := h.call(200, "POST", "/v1/responses?beta=true", `{"model":"scripted","input":"hi"}`).id()
	h.call(200, "GET", "/v1/responses/"+id+"?beta=true", nil)
	h.call(200, "GET", "/v1/responses/"+id+"/input_items?beta=true", nil)
	h.call(200, "DELETE", "/v1/responses/"+id+"?beta=true", nil)
	if e := h.call(400, "GET", "/v1/responses/"+id+"?gamma=true", nil); e.at("error", "param") != "gamma" {
		t.Errorf("another parameter: got %v", e)
	}
}

// Every route refuses an unknown query parameter, except those that forward the query into a
// container. codex sends its version with GET /v1/models.
func TestUnknownQuery(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	h.key("sk-admin", berth.AdminProject)
	h.key("sk-a", "proj_a")
	for _, pattern := range api.Routes() {
		method, path, ok := strings.Cut(pattern, " ")
		if !ok {
			continue // any method: forwarded
		}
		path = strings.NewReplacer("{port}", "80", "{", "", "}", "", "...", "").Replace(path)
		h.token = "sk-a"
		if api.ForAdmin(pattern) {
			h.token = "sk-admin"
		}
		if strings.Contains(path, "/organization/") && !api.ForAdmin(pattern) {
			path += "?start_time=1&foo=1"
		} else {
			path += "?foo=1"
		}
		resp := h.send(t.Context(), method, path, "{}")
		body, err := io.ReadAll(resp.Body)
		check(t, err)
		if resp.StatusCode != 400 || !bytes.Contains(body, []byte("Unknown parameter: 'foo'.")) {
			t.Errorf("%s: got %d %s", pattern, resp.StatusCode, body)
		}
	}
	h.token = "sk-a"
	h.call(200, "GET", "/v1/models?client_version=0.169.0", nil)
}

func TestDeleteModel(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	if e := h.call(403, "DELETE", "/v1/models/scripted", nil); e.at("error", "type") != "invalid_request_error" {
		t.Errorf("got %v", e)
	}
	if e := h.call(404, "DELETE", "/v1/models/unknown", nil); e.at("error", "code") != "model_not_found" {
		t.Errorf("got %v", e)
	}
}

// A model that a rule routes can be retrieved, although no provider lists it.
func TestGetRoutedModel(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil, model.Rule{Match: "any/*", Provider: scripted.Provider{}, Upstream: scripted.Name,
		Window: 4096})
	m := h.call(200, "GET", "/v1/models/any/model", nil)
	if m.at("id") != "any/model" || m.at("object") != "model" || m.at("owned_by") != "berth" ||
		m.at("berth", "context_window") != 4096.0 {
		t.Errorf("got %v", m)
	}
	h.call(404, "GET", "/v1/models/unknown", nil)
}

// A foreground response cannot be cancelled after its end. Cancelling an ended background
// response has no effect.
func TestCancelSynchronous(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	id := h.call(200, "POST", "/v1/responses", `{"model":"scripted","input":"hi"}`).id()
	if e := h.call(400, "POST", "/v1/responses/"+id+"/cancel", nil); e.at("error",
		"message") != "Cannot cancel a synchronous response." {
		t.Errorf("got %v", e)
	}
	stream := h.stream(t.Context(), "POST", "/v1/responses",
		`{"model":"scripted","input":"hi","background":true,"stream":true}`)
	id, _ = h.until(stream, "response.completed").at("response", "id").(string)
	if r := h.call(200, "POST", "/v1/responses/"+id+"/cancel", nil); r["status"] != "completed" {
		t.Errorf("got %v", r["status"])
	}
}

// Bodies are accepted in several encodings, and refused if the decoded body is too large.
func TestContentEncoding(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	gzipped := func(body string) []byte {
		var b bytes.Buffer
		w := gzip.NewWriter(&b)
		_, _ = io.WriteString(w, body)
		w.Close()
		return b.Bytes()
	}
	encoder, err := zstd.NewWriter(nil)
	check(t, err)
	const plain = `{"model":"scripted","input":"hi"}`
	bomb := `{"model":"scripted","input":"` + strings.Repeat("x", 65<<20) + `"}`
	for _, tt := range []struct {
		encoding string
		body     []byte
		status   int
	}{
		{"", []byte(plain), 200},
		{"identity", []byte(plain), 200},
		{"gzip", gzipped(plain), 200},
		{"zstd", encoder.EncodeAll([]byte(plain), nil), 200},
		{"gzip", []byte(plain), 400},
		{"gzip", gzipped(plain)[:20], 400},
		{"zstd", []byte(plain), 400},
		{"br", []byte(plain), 415},
		{"gzip, gzip", gzipped(plain), 415},
		{"gzip", gzipped(bomb), 413},
		{"zstd", encoder.EncodeAll([]byte(bomb), nil), 413},
	} {
		req, err := http.NewRequestWithContext(t.Context(), "POST", h.url+"/v1/responses", bytes.NewReader(tt.body))
		check(t, err)
		req.Header.Set("Content-Type", "application/json")
		if tt.encoding != "" {
			req.Header.Set("Content-Encoding", tt.encoding)
		}
		resp, err := http.DefaultClient.Do(req)
		check(t, err)
		answer, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != tt.status {
			t.Errorf("%q, %d bytes: got %d %.300s, want %d", tt.encoding, len(tt.body), resp.StatusCode, answer,
				tt.status)
		}
	}
}

// Fields that do not change answers are accepted, and shown where OpenAI's response has them.
func TestHints(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	r := h.call(200, "POST", "/v1/responses", `{"model":"scripted","input":"hi","prompt_cache_options":{"mode":"explicit"},"access_programs":{"cyber":"standard"},
		"moderation":{"model":"omni-moderation-latest","policy":{"input":{"mode":"score"}}},"image":{"context_compression":"auto"}}`)
	if r.at("prompt_cache_options", "mode") != "explicit" || r.at("prompt_cache_options", "ttl") != "30m" ||
		r.at("access_programs", "cyber") != "standard" {
		t.Errorf("got %v and %v", r["prompt_cache_options"], r["access_programs"])
	}
	h.call(200, "POST", "/v1/chat/completions",
		`{"model":"scripted","messages":[{"role":"user","content":"hi"}],"prompt_cache_options":{},"moderation":{"model":"m"}}`)
	if r := h.call(200, "POST", "/v1/responses", `{"model":"scripted","input":"hi"}`); r["access_programs"] != nil ||
		r["prompt_cache_options"] != nil {
		t.Errorf("a request without hints shows %v", r)
	}
}

// The service tier and the moderation are those that the upstream reports. Without a report,
// they are absent.
func TestReportedByUpstream(t *testing.T) {
	t.Parallel()
	const result = `{"type":"moderation_result","model":"omni","flagged":false,"categories":{},"category_scores":{},"category_applied_input_types":{}}`
	told := model.Finish{Reason: model.FinishStop, ServiceTier: "priority", Moderation: json.RawMessage(`{"input":` +
		result + `,"output":` + result + `}`)}
	aye := model.Text{Text: "Aye."}
	h, _ := playing(t, turn(aye, told), turn(aye, stopped), turn(aye, told), turn(aye, stopped), turn(aye, told))
	const asked = `"model":"played","service_tier":"flex","moderation":{"model":"omni"}`
	for _, want := range []string{"priority", "default"} {
		r := h.call(200, "POST", "/v1/responses", `{"input":"hi",`+asked+`}`)
		scores, _ := json.Marshal(r["moderation"])
		if r["service_tier"] != want || strings.Contains(string(scores), "moderation_result") != (want == "priority") {
			t.Errorf("got %v and %s, want %s", r["service_tier"], scores, want)
		}
	}
	for _, want := range []string{"priority", "default"} {
		r := h.call(200, "POST", "/v1/chat/completions", `{"messages":[{"role":"user","content":"hi"}],`+asked+`}`)
		scores, _ := json.Marshal(r["moderation"])
		if r["service_tier"] != want || strings.Contains(string(scores),
			`"type":"moderation_results"`) != (want == "priority") {
			t.Errorf("got %v and %s, want %s", r["service_tier"], scores, want)
		}
	}
	resp := h.send(t.Context(), "POST", "/v1/chat/completions",
		`{"stream":true,"stream_options":{"include_usage":true},"messages":[{"role":"user","content":"hi"}],`+asked+`}`)
	raw, err := io.ReadAll(resp.Body)
	check(t, err)
	if got := string(raw); !strings.Contains(got, `"service_tier":"priority","system_fingerprint"`) ||
		!strings.Contains(got,
			`"choices":[],"usage":null,"moderation":{"input":{"type":"moderation_results","model":"omni","results":[`) {
		t.Errorf("got %s", got)
	}
}

// A file at a URL is downloaded once, passed to the model as content, and stored in the
// item, in a response and in a conversation.
func TestFileURL(t *testing.T) {
	t.Parallel()
	h, m := playing(t, turn(model.Text{Text: "A letter."}, stopped), turn(model.Text{Text: "Still one."}, stopped))
	const part = `{"role":"user","content":[{"type":"input_file","file_url":"https://example.com/letter.txt"}]}`
	first := h.call(200, "POST", "/v1/responses", `{"model":"played","input":[`+part+`]}`).id()
	h.call(200, "POST", "/v1/responses", `{"model":"played","input":"And now?","previous_response_id":"`+first+`"}`)
	const data = "data:text/plain; charset=utf-8;base64,RGVhciBodHRwczovL2V4YW1wbGUuY29tL2xldHRlci50eHQ="
	for i, asked := range m.asked {
		if raw := string(asked.Items[0].Raw()); !strings.Contains(raw, data) || strings.Contains(raw, "file_url") {
			t.Errorf("turn %d was shown %s", i, raw)
		}
	}
	items := h.call(200, "GET", "/v1/responses/"+first+"/input_items", nil)
	if items.at("data", 0, "content", 0, "file_url") != "https://example.com/letter.txt" ||
		items.at("data", 0, "content", 0, "file_data") != data {
		t.Errorf("the input items are %v", items)
	}
	conversation := h.call(200, "POST", "/v1/conversations", `{"items":[`+part+`]}`).id()
	items = h.call(200, "GET", "/v1/conversations/"+conversation+"/items", nil)
	if items.at("data", 0, "content", 0, "file_data") != data {
		t.Errorf("the conversation's items are %v", items)
	}
}
