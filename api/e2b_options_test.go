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
	if got, _ := state(); status != http.StatusForbidden || got != "paused" || !strings.Contains(text, `"sandboxId"`) {
		t.Errorf("without a token: got %d %s, and it is %s", status, text, got)
	}
	for token, want := range map[string]int{"": http.StatusForbidden, "wrong": http.StatusForbidden} {
		at["X-Access-Token"] = token
		if status, text := h.sandboxCall("GET", "/health", "", at); status != want {
			t.Errorf("health with the token %q: got %d %s, want %d", token, status, text, want)
		}
		if got, _ := state(); got != "paused" {
			t.Errorf("a check of its health with the token %q has resumed it", token)
		}
	}
	at["X-Access-Token"] = s.Token
	if status, text := h.sandboxCall("POST", "/process.Process/List", "{}", at); status != http.StatusOK {
		t.Fatalf("got %d %s", status, text)
	}
	want := now.Add(420 * time.Second).UTC().Format("2006-01-02T15:04:05")
	if got, end := state(); got != "running" || !strings.HasPrefix(end, want) {
		t.Errorf("it is %s until %s, want %s", got, end, want)
	}
	// As with E2B, a check of its health with the token resumes it, too; without one it needs none while it runs.
	if status, text := h.sandboxCall("POST", "/sandboxes/"+s.ID+"/pause", "", key); status != http.StatusNoContent {
		t.Fatalf("pause: got %d %s", status, text)
	}
	if status, text := h.sandboxCall("GET", "/health", "", at); status != http.StatusNoContent {
		t.Errorf("health with the token: got %d %s", status, text)
	}
	delete(at, "X-Access-Token")
	if status, text := h.sandboxCall("GET", "/health", "", at); status != http.StatusNoContent {
		t.Errorf("health of a running one: got %d %s", status, text)
	}
}

// A private port of a sandbox without a token would be open to everybody, as E2B says.
func TestSandboxPrivateInsecure(t *testing.T) {
	t.Parallel()
	var stop context.CancelFunc
	h := newHouse(t, withSandboxes(t, &stop))
	h.key("sk-mine", "proj_mine")
	status, text := h.sandboxCall("POST", "/sandboxes",
		`{"templateID":"base","secure":false,"network":{"allowPublicTraffic":false}}`,
		map[string]string{"X-API-Key": "sk-mine"})
	if status != http.StatusBadRequest || !strings.Contains(text, "without public access unless you enable secure envd access via 'secure' flag") {
		t.Errorf("got %d %s", status, text)
	}
	h.newSandbox("sk-mine", `{"templateID":"base","secure":false}`)
}

// A template of the server has one tag. Another one is not silently dropped.
func TestSandboxUnknownTag(t *testing.T) {
	t.Parallel()
	var stop context.CancelFunc
	h := newHouse(t, withSandboxes(t, &stop))
	h.key("sk-mine", "proj_mine")
	h.newSandbox("sk-mine", `{"templateID":"base:default"}`)
	status, text := h.sandboxCall("POST", "/sandboxes", `{"templateID":"base:none"}`,
		map[string]string{"X-API-Key": "sk-mine"})
	if status != http.StatusNotFound || !strings.Contains(text, "'none'") {
		t.Errorf("got %d %s", status, text)
	}
}

// The id of a named snapshot has its name, and a list selects by name, by name and tag, and by id.
func TestSandboxSnapshotNames(t *testing.T) {
	t.Parallel()
	var stop context.CancelFunc
	h := newHouse(t, withSandboxes(t, &stop))
	h.key("sk-mine", "proj_mine")
	key := map[string]string{"X-API-Key": "sk-mine"}
	s, other := h.newSandbox("sk-mine", `{"templateID":"base"}`), h.newSandbox("sk-mine", `{"templateID":"base"}`)
	take := func(id, body, want string) string {
		t.Helper()
		var got struct{ SnapshotID string }
		status, text := h.sandboxCall("POST", "/sandboxes/"+id+"/snapshots", body, key)
		check(t, json.Unmarshal([]byte(text), &got))
		if status != http.StatusCreated || !strings.HasSuffix(got.SnapshotID, want) {
			t.Fatalf("%s: got %d %s, want %s", body, status, text, want)
		}
		return got.SnapshotID
	}
	take(s.ID, `{"name":"mine"}`, "mine:default")
	take(s.ID, `{"name":"mine:v2"}`, "mine:v2")
	unnamed := take(other.ID, `{}`, ":default")
	id, _, _ := strings.Cut(unnamed, ":")
	for query, want := range map[string][]string{
		"name=mine": {"mine:v2"}, "name=mine:default": {"mine:default"}, "name=mine:v2": {"mine:v2"}, "name=mine:v3": {},
		"name=none": {}, "name=" + id: {unnamed}, "": {unnamed, "mine:v2"}, "limit=1": {unnamed},
		"limit=1&nextToken=" + id: {"mine:v2"},
	} {
		var list []struct{ SnapshotID string }
		status, text := h.sandboxCall("GET", "/snapshots?"+query, "", key)
		if err := json.Unmarshal([]byte(text), &list); err != nil || status != http.StatusOK || len(list) != len(want) {
			t.Errorf("%s: got %d %s, want %v", query, status, text, want)
			continue
		}
		for i := range list {
			if list[i].SnapshotID != want[i] {
				t.Errorf("%s: got %s, want %v", query, text, want)
			}
		}
	}
	h.newSandbox("sk-mine", `{"templateID":"mine:v2"}`)
	if status, text := h.sandboxCall("DELETE", "/templates/mine:v2", "", key); status >= 300 {
		t.Errorf("delete: got %d %s", status, text)
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

// A paused sandbox has no copies: E2B refuses them with the status of a conflict. It can be copied after it is resumed.
func TestSandboxForkPaused(t *testing.T) {
	t.Parallel()
	var stop context.CancelFunc
	h := newHouse(t, withSandboxes(t, &stop))
	h.key("sk-mine", "proj_mine")
	key := map[string]string{"X-API-Key": "sk-mine"}
	s := h.newSandbox("sk-mine", `{"templateID":"base"}`)
	if status, text := h.sandboxCall("POST", "/sandboxes/"+s.ID+"/pause", "", key); status != http.StatusNoContent {
		t.Fatalf("pause: got %d %s", status, text)
	}
	for _, body := range []string{"", "{}", `{"count":3,"timeout":60}`} {
		status, text := h.sandboxCall("POST", "/sandboxes/"+s.ID+"/fork", body, key)
		if status != http.StatusConflict || !strings.Contains(text, "is paused") {
			t.Errorf("fork of a paused one with %q: got %d %s", body, status, text)
		}
	}
	if status, text := h.sandboxCall("POST", "/sandboxes/"+s.ID+"/connect", `{"timeout":60}`, key); status/100 != 2 {
		t.Fatalf("connect: got %d %s", status, text)
	}
	if status, text := h.sandboxCall("POST", "/sandboxes/"+s.ID+"/fork", "{}", key); status != http.StatusCreated ||
		!strings.Contains(text, `"sandboxID"`) {
		t.Errorf("fork of a running one: got %d %s", status, text)
	}
}
