package api_test

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
)

// A volume of E2B's API is one of Berth's: a sandbox mounts it, and no other project sees it.
func TestSandboxVolumes(t *testing.T) {
	var stop context.CancelFunc
	h := newHouse(t, withSandboxes(t, &stop))
	h.key("sk-mine", "proj_mine")
	h.key("sk-theirs", "proj_theirs")
	call := func(key string, want int, method, path, body string) string {
		t.Helper()
		status, text := h.sandboxCall(method, path, body, map[string]string{"X-API-Key": key})
		if status != want {
			t.Errorf("%s %s %s: got %d %s, want %d", method, path, body, status, text, want)
		}
		return text
	}
	var v struct {
		ID    string `json:"volumeID"`
		Name  string `json:"name"`
		Token string `json:"token"`
	}
	check(t, json.Unmarshal([]byte(call("sk-mine", 201, "POST", "/volumes", `{"name":"data"}`)), &v))
	if v.Name != "data" || v.Token == "" {
		t.Errorf("created %+v", v)
	}
	call("sk-mine", 400, "POST", "/volumes", `{"name":"data"}`)
	call("sk-mine", 400, "POST", "/volumes", `{"name":"../data"}`)
	if text := call("sk-mine", 200, "GET", "/volumes", ""); text != `[{"volumeID":"`+v.ID+`","name":"data"}]` {
		t.Errorf("the list is %s", text)
	}
	if text := call("sk-theirs", 200, "GET", "/volumes", ""); text != `[]` {
		t.Errorf("another project's list is %s", text)
	}
	call("sk-theirs", 404, "GET", "/volumes/"+v.ID, "")
	call("sk-theirs", 404, "DELETE", "/volumes/"+v.ID, "")
	const create = `{"templateID":"base","allow_internet_access":false,"volumeMounts":[{"name":"data","path":"PATH"}]}`
	at := func(path string) string { return strings.Replace(create, "PATH", path, 1) }
	call("sk-theirs", 404, "POST", "/v2/sandboxes", at("/mnt/volumes/d"))
	for _, path := range []string{"/etc", "/mnt/volumes/../../etc", "/mnt/volumes", "mnt/volumes/d", ""} {
		call("sk-mine", 400, "POST", "/v2/sandboxes", at(path))
	}
	s := h.newSandbox("sk-mine", `{"templateID":"base","volumeMounts":[{"name":"data","path":"/mnt/volumes/d"}]}`)
	if text := call("sk-mine", 200, "GET", "/sandboxes/"+s.ID, ""); !strings.Contains(text, `"volumeMounts":[{"name":"data","path":"/mnt/volumes/d"}]`) {
		t.Errorf("the sandbox is %s", text)
	}
	call("sk-mine", 409, "DELETE", "/volumes/"+v.ID, "")
	for _, token := range []string{v.Token, "sk-mine", "forged"} { // no token reads a file of a volume
		status, text := h.sandboxCall("GET", "/volumecontent/"+v.ID+"/file?path=/a", "", map[string]string{"Authorization": "Bearer " + token})
		if status != http.StatusNotImplemented || !strings.HasPrefix(text, `{"code":"not_implemented","message":`) {
			t.Errorf("content with the token %s: got %d %s", token, status, text)
		}
	}
	call("sk-mine", 204, "DELETE", "/sandboxes/"+s.ID, "")
	call("sk-mine", 204, "DELETE", "/volumes/"+v.ID, "")
	call("sk-mine", 404, "GET", "/volumes/"+v.ID, "")
}
