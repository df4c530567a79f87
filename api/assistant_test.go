package api_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-run/berth"
)

func TestAssistants(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	a := h.call(200, "POST", "/v1/assistants",
		`{"model":"scripted","name":"Pilot","metadata":{"ship":"Vasa","port":"Kiel"},"temperature":0.5,`+forecast+`}`)
	want := object{"id": a.id(), "object": "assistant", "created_at": a["created_at"], "name": "Pilot",
		"description": nil, "model": "scripted",
		"instructions": nil,
		"tools": []any{map[string]any{"type": "function", "function": map[string]any{"name": "weather",
			"parameters": map[string]any{"type": "object"}}}},
		"tool_resources": map[string]any{}, "metadata": map[string]any{"ship": "Vasa", "port": "Kiel"},
		"temperature": 0.5, "top_p": nil,
		"response_format": "auto", "reasoning_effort": nil}
	if diff := cmp.Diff(want, a); diff != "" || !strings.HasPrefix(a.id(), "asst_") {
		t.Errorf("created (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(a, h.call(200, "GET", "/v1/assistants/"+a.id(), nil)); diff != "" {
		t.Errorf("GET (-POST +GET):\n%s", diff)
	}
	changed := h.call(200, "POST", "/v1/assistants/"+a.id(),
		`{"name":null,"instructions":"Steer.","metadata":{"ship":"Wasa"},"model":null,"tools":[]}`)
	want["name"], want["instructions"], want["metadata"], want["tools"] = nil, "Steer.", map[string]any{"ship": "Wasa"},
		[]any{}
	if diff := cmp.Diff(want, changed); diff != "" {
		t.Errorf("changed (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(changed, h.call(200, "POST", "/v1/assistants/"+a.id(), `{}`)); diff != "" {
		t.Errorf("an empty change (-before +after):\n%s", diff)
	}
	if got := h.call(200, "DELETE", "/v1/assistants/"+a.id(), nil); !cmp.Equal(got,
		object{"id": a.id(), "object": "assistant.deleted", "deleted": true}) {
		t.Errorf("DELETE: got %v", got)
	}
	h.refused(404, "GET", "/v1/assistants/"+a.id(), nil, "No assistant found with id '"+a.id()+"'.")
	h.call(404, "DELETE", "/v1/assistants/"+a.id(), nil)
}

func TestAssistantPages(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	h.call(200, "GET", "/v1/assistants", nil)
	var ids []string
	for range 4 {
		ids = append(ids, h.assistant())
	}
	for query, want := range map[string][]int{
		"":                                    {3, 2, 1, 0},
		"?order=asc":                          {0, 1, 2, 3},
		"?limit=2":                            {3, 2},
		"?limit=2&after=" + ids[2]:            {1, 0},
		"?limit=1&before=" + ids[1]:           {2},
		"?before=" + ids[1]:                   {3, 2},
		"?order=asc&limit=1&before=" + ids[3]: {2},
		"?order=asc&after=" + ids[0] + "&before=" + ids[3]: {1, 2},
	} {
		list := h.call(200, "GET", "/v1/assistants"+query, nil)
		var got []int
		for i := range list["data"].([]any) {
			for n, id := range ids {
				if list.at("data", i, "id") == id {
					got = append(got, n)
				}
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%q (-want +got):\n%s", query, diff)
		}
	}
	h.refused(400, "GET", "/v1/assistants?after=asst_x", nil,
		"Invalid 'after': no object with id 'asst_x' in this list.")
	h.refused(400, "GET", "/v1/assistants?before=asst_x", nil,
		"Invalid 'before': no object with id 'asst_x' in this list.")
}

func TestThreads(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	req, err := http.NewRequestWithContext(t.Context(), "POST", h.url+"/v1/threads", http.NoBody)
	check(t, err)
	req.Header.Set("OpenAI-Beta", "foo=bar, assistants=v2")
	resp, err := http.DefaultClient.Do(req)
	check(t, err)
	defer resp.Body.Close()
	if raw, _ := io.ReadAll(resp.Body); resp.StatusCode != 200 || !strings.Contains(string(raw),
		`"metadata":{},"tool_resources":{}`) {
		t.Errorf("without a body: got %d %s", resp.StatusCode, raw)
	}

	th := h.call(200, "POST", "/v1/threads",
		`{"metadata":{"a":"b"},"messages":[{"role":"user","content":"one"},{"role":"assistant","content":[{"type":"text","text":"two"}],"metadata":{"n":"2"}}]}`)
	path := "/v1/threads/" + th.id()
	if list := h.call(200, "GET", "/v1/threads?limit=1", nil); list.at("data", 0, "id") != th.id() ||
		list["has_more"] != true {
		t.Errorf("threads: got %v, want %s as the newest of two", list, th.id())
	}
	if got := h.call(200, "POST", path, `{"metadata":{"c":"d"}}`); got.at("metadata", "c") != "d" ||
		got.at("metadata", "a") != nil {
		t.Errorf("metadata: got %v, want only c", got["metadata"])
	}
	messages := h.call(200, "GET", path+"/messages?order=asc", nil)
	if diff := cmp.Diff([]string{"user: one", "assistant: two"}, texts(messages)); diff != "" {
		t.Errorf("messages (-want +got):\n%s", diff)
	}
	second := object(messages.at("data", 1).(map[string]any))
	if second.at("metadata", "n") != "2" || second["run_id"] != nil || second["assistant_id"] != nil ||
		second["status"] != "completed" {
		t.Errorf("got %v", second)
	}
	if got := h.call(200, "POST", path+"/messages/"+second.id(), `{"metadata":{"n":"3"}}`); got.at("metadata",
		"n") != "3" || got.at("content", 0, "text", "value") != "two" {
		t.Errorf("changed: got %v", got)
	}
	if got := h.call(200, "DELETE", path+"/messages/"+second.id(), nil); got["object"] != "thread.message.deleted" {
		t.Errorf("DELETE: got %v", got)
	}
	h.refused(404, "GET", path+"/messages/"+second.id(), nil, "No message found with id '"+second.id()+"'.")
	if got := h.call(200, "DELETE", path, nil); got["object"] != "thread.deleted" {
		t.Errorf("DELETE: got %v", got)
	}
	for _, below := range []string{"", "/messages", "/runs", "/messages/" + messages.at("data", 0, "id").(string)} {
		h.refused(404, "GET", path+below, nil, "No thread found with id '"+th.id()+"'.")
	}
}

func TestAssistantErrors(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	thread := h.thread("hi")
	a := `"assistant_id":"` + h.assistant() + `"`
	for _, tt := range []struct{ path, body, param, code string }{
		{"/v1/assistants", `{}`, "model", "missing_required_parameter"},
		{"/v1/assistants", `{"model":"m","id":"asst_mine"}`, "id", "unknown_parameter"},
		{"/v1/assistants", `{"model":"m","name":"` + strings.Repeat("x", 257) + `"}`, "name",
			"string_above_max_length"},
		{"/v1/assistants", `{"model":"m","tools":[{"type":"code_interpreter","container":"auto"}]}`,
			"tools[0].container", "unknown_parameter"},
		{"/v1/assistants", `{"model":"m","tools":[{"type":"file_search","file_search":{"max_num_results":51}}]}`,
			"tools[0].file_search.max_num_results", "integer_above_max_value"},
		{"/v1/assistants", `{"model":"m","tools":[{"type":"sail"}]}`, "tools[0].type", "invalid_value"},
		{"/v1/assistants", `{"model":"m","tools":[{"type":"function","function":{}}]}`, "tools[0].function.name",
			"missing_required_parameter"},
		{"/v1/assistants", `{"model":"m","tool_resources":{"code_interpreter":{"file_ids":["file-1"]}}}`,
			"tool_resources.code_interpreter.file_ids[0]", ""},
		{"/v1/assistants", `{"model":"m","tool_resources":{"file_search":{"vector_store_ids":["vs_1"]}}}`,
			"tool_resources.file_search.vector_store_ids", ""},
		{"/v1/assistants",
			`{"model":"m","tool_resources":{"file_search":{"vector_store_ids":["vs_1"],"vector_stores":[{}]}}}`,
			"tool_resources.file_search", ""},
		{"/v1/assistants", `{"model":"m","tool_resources":{"file_search":{"vector_stores":[{"file_ids":["file-1"]}]}}}`,
			"tool_resources.file_search.vector_stores[0].file_ids[0]", ""},
		{"/v1/assistants", `{"model":"m","response_format":"json"}`, "response_format", "invalid_value"},
		{"/v1/threads", `{"messages":[{"role":"system","content":"x"}]}`, "messages[0].role", "invalid_value"},
		{"/v1/threads", `{"messages":[{"role":"user","content":""}]}`, "messages[0].content", "empty_string"},
		{"/v1/threads", `{"messages":[{"role":"user","content":[]}]}`, "messages[0].content", "empty_array"},
		{"/v1/threads",
			`{"messages":[{"role":"user","content":[{"type":"image_file","image_file":{"file_id":"file-none"}}]}]}`,
			"messages[0].content[0].image_file.file_id", ""},
		{"/v1/threads",
			`{"messages":[{"role":"assistant","content":[{"type":"image_url","image_url":{"url":"http://x"}}]}]}`,
			"messages[0].content[0].type", "invalid_value"},
		{thread + "/messages", `{"role":"user","content":"x","attachments":[{"file_id":"file-none","tools":[]}]}`,
			"attachments[0].file_id", ""},
		{thread + "/messages",
			`{"role":"user","content":"x","attachments":[{"file_id":"file-1","tools":[{"type":"shell"}]}]}`,
			"attachments[0].tools[0].type", "invalid_value"},
		{thread + "/messages",
			`{"role":"user","content":"x","attachments":[{"file_id":"file-1","tools":[{"type":"file_search"}]}]}`,
			"attachments[0].file_id", ""},
		{thread + "/messages", `{"role":"user","content":[{"type":"text","text":"` + strings.Repeat("x", 200_000) +
			`"},{"type":"text","text":"` + strings.Repeat("x", 56_001) + `"}]}`, "content", "string_above_max_length"},
		{thread + "/messages",
			`{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,AA"}}]}`,
			"content[0].image_url.url", "invalid_value"},
		{thread + "/runs", `{}`, "assistant_id", "missing_required_parameter"},
		{thread + "/runs", `{` + a + `,"max_prompt_tokens":255}`, "max_prompt_tokens", "integer_below_min_value"},
		{thread + "/runs", `{` + a + `,"truncation_strategy":{"type":"last_messages"}}`,
			"truncation_strategy.last_messages", "missing_required_parameter"},
		{thread + "/runs", `{` + a + `,"tool_choice":{"type":"shell"}}`, "tool_choice.type", "invalid_value"},
		{thread + "/runs", `{` + a + `,"tool_choice":{"type":"function","function":{"name":"sail"}}}`, "tool_choice",
			""},
		{thread + "/runs",
			`{` + a + `,"additional_messages":[{"role":"user","content":[{"type":"image_file","image_file":{"file_id":"file-none"}}]}]}`,
			"additional_messages[0].content[0].image_file.file_id", ""},
		{thread + "/runs?include[]=all", `{` + a + `}`, "include", "invalid_value"},
	} {
		e := h.call(400, "POST", tt.path, tt.body)
		if e.at("error", "param") != tt.param || fmt.Sprint(orEmpty(e.at("error", "code"))) != tt.code {
			t.Errorf("%s %s: got %v, want %s about %s", tt.path, tt.body, e, tt.code, tt.param)
		}
	}
	h.refused(404, "POST", thread+"/runs", `{"assistant_id":"asst_none"}`, "No assistant found with id 'asst_none'.")
	h.refused(404, "POST", "/v1/threads/thread_none/runs", `{`+a+`}`, "No thread found with id 'thread_none'.")
	h.refused(404, "GET", thread+"/runs/run_none", nil, "No run found with id 'run_none'.")
	h.refused(404, "GET", thread+"/runs/run_none/steps", nil, "No run found with id 'run_none'.")

	// Refused requests leave no objects.
	h.call(404, "POST", thread+"/runs",
		`{`+a+`,"model":"missing","additional_messages":[{"role":"user","content":"x"}]}`)
	if runs := h.call(200, "GET", thread+"/runs", nil); len(runs["data"].([]any)) != 0 {
		t.Errorf("refused runs are listed: %v", runs)
	}
	if got := texts(h.call(200, "GET", thread+"/messages", nil)); !cmp.Equal(got, []string{"user: hi"}) {
		t.Errorf("messages of refused runs are listed: %q", got)
	}
	run := h.call(200, "POST", thread+"/runs", `{`+a+`}`)
	if got := h.polled(thread + "/runs/" + run.id()); got["status"] != "completed" {
		t.Errorf("after refusals: got %v", got)
	}
}

func orEmpty(v any) any {
	if v == nil {
		return ""
	}
	return v
}

func TestAssistantsNeedTheirHeader(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	for _, value := range []string{"", "assistants=v1", "assistants=v22"} {
		req, err := http.NewRequestWithContext(t.Context(), "GET", h.url+"/v1/assistants", nil)
		check(t, err)
		req.Header.Set("OpenAI-Beta", value)
		resp, err := http.DefaultClient.Do(req)
		check(t, err)
		raw, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != 400 || !strings.Contains(string(raw), `"invalid_beta"`) {
			t.Errorf("%q: got %d %s, want invalid_beta", value, resp.StatusCode, raw)
		}
	}
}

// Another project's ids are answered like unknown ids, in every path and body.
func TestAssistantsOfProjectsAreApart(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	h.key("sk-theirs", "proj_theirs")
	theirs := h.thread(asks)
	a := h.assistant(forecast)
	run := h.call(200, "POST", theirs+"/runs", `{"assistant_id":"`+a+`"}`)
	path := theirs + "/runs/" + run.id()
	h.polled(path)
	message := theirs + "/messages/" + h.call(200, "GET", theirs+"/messages", nil).at("data", 0, "id").(string)
	step := path + "/steps/" + h.call(200, "GET", path+"/steps", nil).at("data", 0, "id").(string)

	h.key("sk-mine", berth.ProjectID("proj_mine"))
	mine, myOwn := h.thread("hi"), h.assistant()
	for _, req := range [][3]string{
		{"GET", "/v1/assistants/" + a}, {"POST", "/v1/assistants/" + a, `{"name":"x"}`},
		{"DELETE", "/v1/assistants/" + a},
		{"GET", theirs}, {"POST", theirs, `{"metadata":{}}`}, {"DELETE", theirs},
		{"GET", theirs + "/messages"}, {"POST", theirs + "/messages", `{"role":"user","content":"x"}`},
		{"GET", message}, {"POST", message, `{"metadata":{}}`}, {"DELETE", message},
		{"GET", theirs + "/runs"}, {"POST", theirs + "/runs", `{"assistant_id":"` + myOwn + `"}`},
		{"POST", mine + "/runs", `{"assistant_id":"` + a + `"}`},
		{"POST", "/v1/threads/runs", `{"assistant_id":"` + a + `"}`},
		{"GET", path}, {"POST", path, `{"metadata":{}}`}, {"POST", path + "/cancel"},
		{"POST", path + "/submit_tool_outputs", `{"tool_outputs":[]}`},
		{"GET", path + "/steps"}, {"GET", step},
		{"GET", mine + strings.TrimPrefix(path, theirs)}, {"GET", mine + strings.TrimPrefix(message, theirs)},
	} {
		var body any
		if req[2] != "" {
			body = req[2]
		}
		known := h.call(404, req[0], req[1], body).at("error", "message").(string)
		if !strings.HasPrefix(known, "No ") || !strings.Contains(known, " found with id '") {
			t.Errorf("%s %s: got %q, want the words for an unknown id", req[0], req[1], known)
		}
	}
	if got := h.call(200, "GET", "/v1/assistants", nil); len(got["data"].([]any)) != 1 {
		t.Errorf("the list shows another project's: %v", got)
	}
	h.token = "sk-theirs"
	if got := h.call(200, "GET", path, nil); got["status"] != "requires_action" {
		t.Errorf("their run: got %v, want it as it was", got)
	}
}
