package api_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
)

// The code interpreter of a sandbox answers its own requests only, and runs code only with the sandbox's token.
func TestSandboxInterpreter(t *testing.T) {
	var stop context.CancelFunc
	h := newHouse(t, withSandboxes(t, &stop))
	h.key("sk-mine", "proj_mine")
	s, other := h.newSandbox("sk-mine", `{"templateID":"base"}`), h.newSandbox("sk-mine", `{"templateID":"base"}`)
	send := func(id, token, method, path, body string) (int, string) {
		header := map[string]string{"E2b-Sandbox-Id": id, "E2b-Sandbox-Port": "49999"}
		if token != "" {
			header["X-Access-Token"] = token
		}
		return h.sandboxCall(method, path, body, header)
	}
	none := strings.Repeat("0", len(s.ID))
	for _, tc := range []struct {
		id, token, method, path, body string
		status                        int
		text                          string
	}{
		{s.ID, "", "GET", "/health", "", 200, "OK"},
		{s.ID, "", "GET", "/contexts", "", 200, "[]"},
		{s.ID, "", "POST", "/execute", `{"code":"1"}`, 401, "token"},
		{s.ID, other.Token, "POST", "/execute", `{"code":"1"}`, 401, "token"},
		{s.ID, "sk-mine", "POST", "/execute", `{"code":"1"}`, 401, "token"},
		{none, s.Token, "POST", "/execute", `{"code":"1"}`, 502, "not found"},
		{none, "", "GET", "/contexts", "", 502, "not found"},
		{s.ID, s.Token, "POST", "/execute", `{}`, 400, "code"},
		{s.ID, s.Token, "POST", "/execute", `{"code":`, 400, "not valid"},
		{s.ID, s.Token, "POST", "/execute", `{"code":"a\u0000b"}`, 400, "NUL"},
		{s.ID, s.Token, "POST", "/execute", `{"code":"` + strings.Repeat("a", 1<<20+1) + `"}`, 400, "bytes"},
		{s.ID, s.Token, "POST", "/execute", `{"code":"1","language":"python","context_id":"a"}`, 400, "Only one"},
		{s.ID, s.Token, "POST", "/execute", `{"code":"1","context_id":"` + none + `"}`, 404, "not found"},
		{s.ID, s.Token, "POST", "/execute", `{"code":"1","language":"../../etc"}`, 400, "language"},
		{s.ID, s.Token, "POST", "/execute", `{"code":"1","language":"python","env_vars":{"A=B":"c"}}`, 400, "environment variable"},
		{s.ID, "", "POST", "/contexts", `{"language":"a/b"}`, 400, "language"},
		{s.ID, "", "POST", "/contexts", `{"cwd":"tmp"}`, 400, "cwd"},
		{s.ID, "", "DELETE", "/contexts/" + none, "", 404, "not found"},
		{s.ID, "", "POST", "/contexts/" + none + "/restart", "", 404, "not found"},
		{s.ID, "", "DELETE", "/contexts/a/b", "", 404, "does not serve"},
		{s.ID, "", "GET", "/files", "", 404, "does not serve"},
		{s.ID, s.Token, "POST", "/process.Process/List", "{}", 404, "does not serve"},
		{s.ID, s.Token, "POST", "/execute", `{"code":"1","language":"no-such-kernel"}`, 200, `"name":"KernelError"`},
	} {
		status, text := send(tc.id, tc.token, tc.method, tc.path, tc.body)
		if status != tc.status || !strings.Contains(text, tc.text) {
			t.Errorf("%s %s %.60s: got %d %s, want %d %s", tc.method, tc.path, tc.body, status, text, tc.status, tc.text)
		}
		if tc.status == http.StatusOK && tc.path == "/execute" && !strings.HasSuffix(text, "{\"type\":\"end_of_execution\"}\n") {
			t.Errorf("%s ends with %s", tc.path, text)
		}
	}
}
