package api_test

import (
	"context"
	"maps"
	"net/http"
	"strings"
	"testing"
)

// The code interpreter of a sandbox answers its own requests only, and runs code only with the sandbox's token.
func TestSandboxInterpreter(t *testing.T) {
	t.Parallel()
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
		{s.ID, "", "POST", "/health", "", 401, "token"},
		{s.ID, s.Token, "GET", "/contexts", "", 200, "[]"},
		{s.ID, "", "POST", "/execute", `{"code":"1"}`, 401, "token"},
		{s.ID, other.Token, "POST", "/execute", `{"code":"1"}`, 401, "token"},
		{s.ID, "sk-mine", "POST", "/execute", `{"code":"1"}`, 401, "token"},
		{none, s.Token, "POST", "/execute", `{"code":"1"}`, 502, "not found"},
		{none, s.Token, "GET", "/contexts", "", 502, "not found"},
		{s.ID, s.Token, "POST", "/execute", `{}`, 400, "code"},
		{s.ID, s.Token, "POST", "/execute", `{"code":`, 400, "not valid"},
		{s.ID, s.Token, "POST", "/execute", `{"code":"a\u0000b"}`, 400, "NUL"},
		{s.ID, s.Token, "POST", "/execute", `{"code":"` + strings.Repeat("a", 1<<20+1) + `"}`, 400, "bytes"},
		{s.ID, s.Token, "POST", "/execute", `{"code":"1","language":"python","context_id":"a"}`, 400, "Only one"},
		{s.ID, s.Token, "POST", "/execute", `{"code":"1","context_id":"` + none + `"}`, 404, "not found"},
		{s.ID, s.Token, "POST", "/execute", `{"code":"1","language":"../../etc"}`, 400, "language"},
		{s.ID, s.Token, "POST", "/execute", `{"code":"1","language":"python","env_vars":{"A=B":"c"}}`, 400,
			"environment variable"},
		{s.ID, s.Token, "POST", "/contexts", `{"language":"a/b"}`, 400, "language"},
		{s.ID, s.Token, "POST", "/contexts", `{"cwd":"tmp"}`, 400, "cwd"},
		{s.ID, s.Token, "DELETE", "/contexts/" + none, "", 404, "not found"},
		{s.ID, s.Token, "POST", "/contexts/" + none + "/restart", "", 404, "not found"},
		{s.ID, s.Token, "DELETE", "/contexts/a/b", "", 404, "does not serve"},
		{s.ID, s.Token, "GET", "/files", "", 404, "does not serve"},
		{s.ID, s.Token, "POST", "/process.Process/List", "{}", 404, "does not serve"},
		{s.ID, s.Token, "POST", "/execute", `{"code":"1","language":"no-such-kernel"}`, 200, `"name":"KernelError"`},
	} {
		status, text := send(tc.id, tc.token, tc.method, tc.path, tc.body)
		if status != tc.status || !strings.Contains(text, tc.text) {
			t.Errorf("%s %s %.60s: got %d %s, want %d %s", tc.method, tc.path, tc.body, status, text, tc.status,
				tc.text)
		}
		if tc.status == http.StatusOK && tc.path == "/execute" && !strings.HasSuffix(text,
			"{\"type\":\"end_of_execution\"}\n") {
			t.Errorf("%s ends with %s", tc.path, text)
		}
	}
}

// Without a token of the sandbox, nobody lists, starts, restarts or ends the contexts of its code interpreter, or wakes
// it.
func TestSandboxContextsNeedToken(t *testing.T) {
	t.Parallel()
	var stop context.CancelFunc
	h := newHouse(t, withSandboxes(t, &stop))
	h.key("sk-mine", "proj_mine")
	s, other := h.newSandbox("sk-mine", `{"templateID":"base"}`), h.newSandbox("sk-mine", `{"templateID":"base"}`)
	key := map[string]string{"X-API-Key": "sk-mine"}
	send := func(route, body string, more map[string]string) (int, string) {
		header := map[string]string{"E2b-Sandbox-Id": s.ID, "E2b-Sandbox-Port": "49999"}
		maps.Copy(header, more)
		method, path, _ := strings.Cut(route, " ")
		return h.sandboxCall(method, path, body, header)
	}
	// What the SDKs send for contexts; the house has no kernels.
	traffic := map[string]string{"E2b-Traffic-Access-Token": s.Traffic}
	for route, want := range map[string]int{"GET /contexts": 200, "DELETE /contexts/a": 404,
		"POST /contexts/a/restart": 404, "POST /execute": 401} {
		if status, text := send(route, `{"code":"1"}`, traffic); status != want {
			t.Errorf("%s with the traffic token: got %d %s", route, status, text)
		}
	}
	if status, text := send("POST /contexts", `{"cwd":"tmp"}`, traffic); status != 400 || !strings.Contains(text,
		"cwd") {
		t.Errorf("POST /contexts with the traffic token: got %d %s", status, text)
	}
	refused := func(t *testing.T) {
		for name, more := range map[string]map[string]string{
			"nothing": {},
			"a web page": {"Origin": "http://evil.example", "Sec-Fetch-Site": "cross-site",
				"Content-Type": "text/plain"},
			"another traffic token":  {"E2b-Traffic-Access-Token": other.Traffic},
			"another access token":   {"X-Access-Token": other.Token},
			"an API key":             key,
			"tokens in wrong places": {"E2b-Traffic-Access-Token": s.Token, "X-Access-Token": s.Traffic},
		} {
			for _, route := range []string{"GET /contexts", "POST /contexts", "DELETE /contexts/a",
				"POST /contexts/a/restart", "GET /else"} {
				if status, text := send(route, "", more); status != 401 || !strings.Contains(text,
					"token of the sandbox") {
					t.Errorf("%s with %s: got %d %s", route, name, status, text)
				}
			}
		}
	}
	refused(t)
	if status, text := send("GET /health", "", nil); status != 200 {
		t.Errorf("health: got %d %s", status, text)
	}
	t.Run("paused", func(t *testing.T) {
		s = h.newSandbox("sk-mine", `{"templateID":"base","autoPause":true,"autoResume":{"enabled":true}}`)
		if status, text := h.sandboxCall("POST", "/sandboxes/"+s.ID+"/pause", "", key); status != 204 {
			t.Fatalf("pause: got %d %s", status, text)
		}
		refused(t)
		if _, text := h.sandboxCall("GET", "/sandboxes/"+s.ID, "", key); !strings.Contains(text, `"state":"paused"`) {
			t.Errorf("a request without a token has resumed it: %s", text)
		}
		if status, _ := send("GET /contexts", "",
			map[string]string{"E2b-Traffic-Access-Token": s.Traffic}); status != 200 {
			t.Errorf("the traffic token does not resume it: got %d", status)
		}
	})
}
