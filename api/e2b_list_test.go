package api_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"
)

// A list selects by start, template and order, says how many sandboxes run, and refuses what it does not know.
func TestSandboxListFilters(t *testing.T) {
	t.Parallel()
	var stop context.CancelFunc
	h := newHouse(t, withSandboxes(t, &stop))
	h.key("sk-mine", "proj_mine")
	s := h.newSandbox("sk-mine", `{"templateID":"base"}`)
	key := map[string]string{"X-API-Key": "sk-mine"}
	hour := func(n time.Duration) string {
		return url.QueryEscape(time.Now().Add(n * time.Hour).UTC().Format(time.RFC3339))
	}
	for query, want := range map[string]int{
		"startedAfter=" + hour(-1): 1, "startedAfter=" + hour(1): 0, "template=base": 1, "template=other": 0,
		"order=asc": 1,
	} {
		status, text := h.sandboxCall("GET", "/v2/sandboxes?"+query, "", key)
		var list []struct {
			ID    string `json:"sandboxID"`
			Alias string `json:"alias"`
		}
		if err := json.Unmarshal([]byte(text), &list); err != nil || status != http.StatusOK || len(list) != want {
			t.Errorf("%s: got %d %s, want %d sandboxes", query, status, text, want)
		}
		if want == 1 && (list[0].ID != s.ID || list[0].Alias != "base") {
			t.Errorf("%s: got %+v", query, list[0])
		}
	}
	for _, query := range []string{"bogus=1", "order=sideways", "startedAfter=yesterday"} {
		name, _, _ := strings.Cut(query, "=")
		status, text := h.sandboxCall("GET", "/v2/sandboxes?"+query, "", key)
		if status != http.StatusBadRequest || !strings.Contains(text, "'"+name+"'") {
			t.Errorf("%s: got %d %s", query, status, text)
		}
	}
	req, err := http.NewRequestWithContext(t.Context(), "GET", h.url+"/v2/sandboxes", http.NoBody)
	check(t, err)
	req.Header.Set("X-API-Key", "sk-mine")
	resp, err := http.DefaultClient.Do(req)
	check(t, err)
	resp.Body.Close()
	if got := resp.Header.Get("X-Total-Running"); got != "1" {
		t.Errorf("X-Total-Running is %q, want 1", got)
	}
}

// Former clients name a sandbox with a second part that has no meaning.
func TestSandboxClientSuffix(t *testing.T) {
	t.Parallel()
	var stop context.CancelFunc
	h := newHouse(t, withSandboxes(t, &stop))
	h.key("sk-mine", "proj_mine")
	s := h.newSandbox("sk-mine", `{"templateID":"base"}`)
	status, text := h.sandboxCall("GET", "/sandboxes/"+s.ID+"-berth", "", map[string]string{"X-API-Key": "sk-mine"})
	if status != http.StatusOK || !strings.Contains(text, `"sandboxID":"`+s.ID+`"`) {
		t.Errorf("got %d %s", status, text)
	}
	suffixed := e2bSandbox{ID: s.ID + "-berth", Token: s.Token}
	if status, text := suffixed.file(h, "GET", "/files?path=/etc/hostname", ""); status != http.StatusOK {
		t.Errorf("a file: got %d %s", status, text)
	}
}

// Lines of a log are JSON objects, as E2B's command line reads them.
func TestSandboxLogLines(t *testing.T) {
	t.Parallel()
	var stop context.CancelFunc
	h := newHouse(t, withSandboxes(t, &stop))
	h.key("sk-mine", "proj_mine")
	s := h.newSandbox("sk-mine", `{"templateID":"base"}`)
	status, text := h.sandboxCall("POST", "/v1/containers/cntr_"+s.ID+"/exec", `{"command":["sh","-c","echo hello"]}`,
		map[string]string{"Authorization": "Bearer sk-mine"})
	if status != http.StatusOK {
		t.Fatalf("the command: got %d %s", status, text)
	}
	key := map[string]string{"X-API-Key": "sk-mine"}
	status, text = h.sandboxCall("GET", "/sandboxes/"+s.ID+"/logs?limit=10", "", key)
	var got struct {
		Logs []struct{ Timestamp, Line string } `json:"logs"`
	}
	if err := json.Unmarshal([]byte(text), &got); err != nil || status != http.StatusOK || len(got.Logs) == 0 {
		t.Fatalf("got %d %s", status, text)
	}
	var line struct{ Level, Logger, Message string }
	if err := json.Unmarshal([]byte(got.Logs[0].Line), &line); err != nil {
		t.Fatalf("the line %q is not JSON: %v", got.Logs[0].Line, err)
	}
	if line.Level != "info" || line.Logger == "" || !strings.Contains(line.Message, "echo hello") {
		t.Errorf("the line is %+v", line)
	}
	if status, text := h.sandboxCall("GET", "/sandboxes/"+s.ID+"/logs?bogus=1", "",
		key); status != http.StatusBadRequest {
		t.Errorf("an unknown parameter: got %d %s", status, text)
	}
}

// The server's default template exists for clients that ask for it by name.
func TestBaseTemplateIsListed(t *testing.T) {
	t.Parallel()
	var stop context.CancelFunc
	h := newHouse(t, withSandboxes(t, &stop))
	h.key("sk-mine", "proj_mine")
	for path, want := range map[string]string{
		"/templates/aliases/base": `{"templateID":"base","public":true}`,
		"/templates/base":         `"names":["base"]`,
		"/v2/templates":           `"names":["base"]`,
	} {
		status, text := h.sandboxCall("GET", path, "", map[string]string{"X-API-Key": "sk-mine"})
		if status != http.StatusOK || !strings.Contains(text, want) {
			t.Errorf("%s: got %d %s", path, status, text)
		}
	}
}

// What would have no effect on the network or the pause of a sandbox is refused.
func TestSandboxWithoutEffect(t *testing.T) {
	t.Parallel()
	var stop context.CancelFunc
	h := newHouse(t, withSandboxes(t, &stop))
	h.key("sk-mine", "proj_mine")
	for body, want := range map[string]string{
		`{"templateID":"base","autoPauseMemory":false}`:                                                "'autoPauseMemory'",
		`{"templateID":"base","autoPause":true,"autoResume":{"enabled":true},"autoPauseMemory":false}`: "'autoPauseMemory'",
		`{"templateID":"base","network":{"allowOut":["example.com"]}}`:                                 "'network.allowOut[0]'",
		`{"templateID":"base","network":{"denyOut":["0.0.0.0/0","example.com"]}}`:                      "'network.denyOut[1]'",
		`{"templateID":"base","network":{"allowOut":["10.0.0.1","a.test"],"denyOut":["10.0.0.0/8"]}}`:  "'network.allowOut[1]'",
	} {
		status, text := h.sandboxCall("POST", "/v2/sandboxes", body, map[string]string{"X-API-Key": "sk-mine"})
		if status != http.StatusBadRequest || !strings.Contains(text, want) {
			t.Errorf("%s: got %d %s, want %s", body, status, text, want)
		}
	}
}

// The total of running sandboxes is of those that match the filters of the list, on all its pages. A list of paused ones
// has none.
func TestSandboxListTotal(t *testing.T) {
	t.Parallel()
	var stop context.CancelFunc
	h := newHouse(t, withSandboxes(t, &stop))
	h.key("sk-mine", "proj_mine")
	key := map[string]string{"X-API-Key": "sk-mine"}
	var ids []string
	for _, kind := range []string{"a", "a", "b", "a"} {
		s := h.newSandbox("sk-mine", `{"templateID":"base","metadata":{"kind":"`+kind+`"}}`)
		ids = append(ids, s.ID)
	}
	if status, text := h.sandboxCall("POST", "/sandboxes/"+ids[3]+"/pause", "", key); status != http.StatusNoContent {
		t.Fatalf("pause: got %d %s", status, text)
	}
	for query, want := range map[string]string{"": "3", "?limit=1": "3", "?metadata=kind%3Da": "2",
		"?metadata=kind%3Da&limit=1": "2", "?metadata=kind%3Db&state=running": "1", "?metadata=kind%3Dc": "0",
		"?template=base": "3", "?template=other": "0", "?startedAfter=2100-01-01T00:00:00Z": "0", "?state=paused": "",
		"?state=paused&metadata=kind%3Da": ""} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, h.url+"/v2/sandboxes"+query, nil)
		check(t, err)
		req.Header.Set("X-API-Key", "sk-mine")
		resp, err := http.DefaultClient.Do(req)
		check(t, err)
		resp.Body.Close()
		if got := resp.Header.Get("X-Total-Running"); resp.StatusCode != http.StatusOK || got != want {
			t.Errorf("%q: got %d, the total %q, want %q", query, resp.StatusCode, got, want)
		}
	}
}
