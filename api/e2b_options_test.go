package api_test

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/berth-run/berth/api"
)

// E2B's SDK itself starts the MCP gateway, as a command in the sandbox, so `mcp` needs nothing of the server.
func TestSandboxMCP(t *testing.T) {
	t.Parallel()
	var stop context.CancelFunc
	h := newHouse(t, withSandboxes(t, &stop))
	h.key("sk-mine", "proj_mine")
	h.newSandbox("sk-mine", `{"templateID":"base","mcp":{"duckduckgo":{},"github":{"token":"t"}}}`)
}

// A request that resumes a sandbox gives it the timeout with which it was created. A request without the sandbox's
// token is refused, and does not resume it.
func TestSandboxAutoResumeTimeout(t *testing.T) {
	t.Parallel()
	var stop context.CancelFunc
	now := time.Now().Truncate(time.Second)
	h := newHouse(t, func(o *api.Options) {
		withSandboxOptions(t, &stop, func(parts *sandboxParts) { parts.Now = func() time.Time { return now } })(o)
	})
	h.key("sk-mine", "proj_mine")
	key := map[string]string{"X-API-Key": "sk-mine"}
	s := h.newSandbox("sk-mine",
		`{"templateID":"base","timeout":420,"autoPause":true,"autoResume":{"enabled":true}}`)
	if status, text := h.sandboxCall("POST", "/sandboxes/"+s.ID+"/pause", "", key); status != http.StatusNoContent {
		t.Fatalf("pause: got %d %s", status, text)
	}
	at := map[string]string{"E2b-Sandbox-Id": s.ID, "E2b-Sandbox-Port": "49983", "Content-Type": "application/json"}
	state := func() (state, end string) {
		t.Helper()
		var got struct{ State, EndAt string }
		_, text := h.sandboxCall("GET", "/sandboxes/"+s.ID, "", key)
		check(t, json.Unmarshal([]byte(text), &got))
		return got.State, got.EndAt
	}
	status, text := h.sandboxCall("POST", "/process.Process/List", "{}", at)
	if got, _ := state(); status != http.StatusUnauthorized || got != "paused" {
		t.Errorf("without a token: got %d %s, and it is %s", status, text, got)
	}
	at["X-Access-Token"] = s.Token
	if status, text := h.sandboxCall("POST", "/process.Process/List", "{}", at); status != http.StatusOK {
		t.Fatalf("got %d %s", status, text)
	}
	want := now.Add(420 * time.Second).UTC().Format("2006-01-02T15:04:05")
	if got, end := state(); got != "running" || !strings.HasPrefix(end, want) {
		t.Errorf("it is %s until %s, want %s", got, end, want)
	}
}

// A pause without memory is recorded with the sandbox, and no request to a port resumes it.
func TestSandboxPausedFilesOnly(t *testing.T) {
	t.Parallel()
	var stop context.CancelFunc
	h := newHouse(t, withSandboxes(t, &stop))
	h.key("sk-mine", "proj_mine")
	key := map[string]string{"X-API-Key": "sk-mine"}
	s := h.newSandbox("sk-mine", `{"templateID":"base","autoPause":true,"autoResume":{"enabled":true}}`)
	if status, text := h.sandboxCall("POST", "/sandboxes/"+s.ID+"/pause", `{"memory":false}`, key); status != 204 {
		t.Fatalf("pause: got %d %s", status, text)
	}
	status, text := h.sandboxCall("POST", "/process.Process/List", "{}", map[string]string{"E2b-Sandbox-Id": s.ID,
		"E2b-Sandbox-Port": "49983", "X-Access-Token": s.Token, "Content-Type": "application/json"})
	if status != http.StatusBadGateway {
		t.Errorf("a request: got %d %s, want 502", status, text)
	}
	if _, text := h.sandboxCall("GET", "/sandboxes/"+s.ID, "", key); !strings.Contains(text, `"state":"paused"`) {
		t.Errorf("got %s, want it paused", text)
	}
}
