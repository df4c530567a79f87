package console

import (
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
)

// TestFollow: a run that is followed beside the list keeps its links, and gets its container and its step.
func TestFollow(t *testing.T) {
	const response = `{"id":"resp_1","status":"completed","model":"m","output":[{"id":"sh_1","type":"shell_call","status":"completed","call_id":"c","action":{"commands":["make"]},"environment":{"type":"container_reference","container_id":"cntr_1"}}],"usage":{"total_tokens":1287}}`
	api := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer := `{"data":[]}`
		switch {
		case r.URL.Query().Get("stream") != "":
			answer = `data: {"type":"response.created","sequence_number":0,"response":{"id":"resp_1","status":"in_progress","output":[]}}` +
				"\n\n" + `data: {"type":"response.completed","sequence_number":1,"response":` + response + "}\n\n"
		case strings.HasSuffix(r.URL.Path, "/input_items"):
			answer = `{"data":[{"type":"message","role":"user","content":[{"type":"input_text","text":"# Build **it**"}]}]}`
		case r.URL.Path == "/v1/responses/resp_1":
			answer = response
		case strings.HasPrefix(r.URL.Path, "/v1/containers/"):
			w.WriteHeader(http.StatusNotFound)
			answer = `{"error":{"message":"It is gone."}}`
		}
		_, _ = io.WriteString(w, answer)
	})
	c := New(api, slog.New(slog.DiscardHandler))
	for list, want := range map[string]string{"": "", "?list=/console/responses%3Fstatus%3Dfailed": "/console/responses?status=failed",
		"?list=https://evil.example/": "/console/", "?list=javascript:alert(1)": "/console/"} {
		text := ask(c, "http://berth.test/console/responses/resp_1/events"+list, nil).Body.String()
		for _, part := range []string{`<h1 title="Build it">Build it</h1>`, `href="/console/containers/cntr_1"`, "1,287 tokens",
			`id="steps-last"`, `<span>make</span>`, "Copy as curl", "event: end"} {
			if !strings.Contains(text, part) {
				t.Errorf("%s: %q is missing in %s", list, part, text)
			}
		}
		if closes := strings.Contains(text, `href="`+want+`" aria-label="Close"`); closes != (want != "") {
			t.Errorf("%s: want a link that closes to %q: %s", list, want, text)
		}
		if back := strings.Contains(text, `name="back" value="runs"`); back != (want != "") {
			t.Errorf("%s: the form leads back to the list: %v", list, back)
		}
	}
}
