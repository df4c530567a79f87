package contract

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestFind(t *testing.T) {
	for path, want := range map[string]string{
		"/responses/resp_1":           "GET /responses/{response_id}",
		"/containers/c/files/f":       "GET /containers/{container_id}/files/{file_id}",
		"/chat/completions/x":         "GET /chat/completions/{completion_id}",
		"/responses/":                 "",
		"/containers/c/files/f/g/h/i": "",
	} {
		got := ""
		if op := Load().Find("GET", path); op != nil {
			got = op.String()
		}
		if got != want {
			t.Errorf("%s: got %q, want %q", path, got, want)
		}
	}
	if got := Load().Find("POST", "/responses/compact"); got == nil || got.Path != "/responses/compact" {
		t.Errorf("a path without parameters: got %v", got)
	}
}

// Every schema of an answer compiles.
func TestSchemas(t *testing.T) {
	d := Load()
	for _, op := range d.Operations {
		for status, kinds := range op.Answers {
			for kind := range kinds {
				if _, err := d.compile(op.pointer + "/answers/" + status + "/" + strings.ReplaceAll(kind, "/",
					"~1")); err != nil {
					t.Errorf("%s: %v", op, err)
				}
			}
		}
	}
}

func TestEvent(t *testing.T) {
	op := Load().Find("POST", "/responses")
	for data, want := range map[string]string{
		`{"type":"response.output_text.delta","sequence_number":1,"item_id":"msg_1","output_index":0,"content_index":0,"delta":"x","logprobs":[]}`:   "",
		`{"type":"response.output_text.delta","sequence_number":1,"item_id":"msg_1","output_index":"0","content_index":0,"delta":"x","logprobs":[]}`: "at /output_index: got string, want integer",
		`{"type":"response.output_text.delta","sequence_number":1,"output_index":0,"content_index":0,"delta":"x","logprobs":[]}`:                     "missing property 'item_id'",
		`{"type":"response.cancelled"}`: "",
		`{"type":"response.nonsense"}`:  "missing",
		`{`:                             "unexpected EOF",
	} {
		err := op.Event("", []byte(data))
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: got %v, want %q", data, err, want)
		}
	}
}

func TestEventOfAnAssistant(t *testing.T) {
	op := Load().Find("POST", "/threads/runs")
	thread := `{"id":"thread_1","object":"thread","created_at":1,"metadata":{},"tool_resources":{}}`
	for name, want := range map[string]string{"thread.created": "", "thread.run.created": "value must be",
		"thread.nonsense": "value must be"} {
		err := op.Event(name, []byte(thread))
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: got %v, want %q", name, err, want)
		}
	}
}

// recorder is a testing.TB that counts failures.
type recorder struct {
	testing.TB
	failures int
}

func (r *recorder) Errorf(string, ...any) { r.failures++ }
func (r *recorder) Failed() bool          { return r.failures > 0 }

func TestWatch(t *testing.T) {
	for answer, failures := range map[string]int{
		`{"id":"file-1","object":"file","deleted":true}`: 0,
		`{"id":"file-1","object":"file"}`:                1,
		`{"id":"file-1","object":"elif","deleted":true}`: 1,
	} {
		r := &recorder{TB: t}
		h := Watch(r, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.Write([]byte(answer))
		}), nil)
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("DELETE", "/v1/files/file-1", nil))
		if r.failures != failures {
			t.Errorf("%s: %d failures, want %d", answer, r.failures, failures)
		}
	}
}
