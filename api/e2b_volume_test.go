package api_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/berth-run/berth/api"
)

// A volume of E2B's API is one of Berth's: a sandbox mounts it, and no other project sees it.
func TestSandboxVolumes(t *testing.T) {
	t.Parallel()
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
	for _, path := range []string{"/etc", "/mnt/volumes/../../etc", "/mnt/volumes", "mnt/volumes/d", "/proc/1", ""} {
		call("sk-mine", 400, "POST", "/v2/sandboxes", at(path))
	}
	s := h.newSandbox("sk-mine", `{"templateID":"base","volumeMounts":[{"name":"data","path":"/mnt/volumes/d"}]}`)
	if text := call("sk-mine", 200, "GET", "/sandboxes/"+s.ID, ""); !strings.Contains(text,
		`"volumeMounts":[{"name":"data","path":"/mnt/volumes/d"}]`) {
		t.Errorf("the sandbox is %s", text)
	}
	elsewhere := h.newSandbox("sk-mine", `{"templateID":"base","volumeMounts":[{"name":"data","path":"/mnt/my-data"}]}`)
	if text := call("sk-mine", 200, "GET", "/sandboxes/"+elsewhere.ID, ""); !strings.Contains(text,
		`"path":"/mnt/my-data"`) {
		t.Errorf("the sandbox is %s", text)
	}
	call("sk-mine", 204, "DELETE", "/sandboxes/"+elsewhere.ID, "")
	call("sk-mine", 409, "DELETE", "/volumes/"+v.ID, "")
	call("sk-mine", 204, "DELETE", "/sandboxes/"+s.ID, "")
	call("sk-mine", 204, "DELETE", "/volumes/"+v.ID, "")
	call("sk-mine", 404, "GET", "/volumes/"+v.ID, "")
}

// The files of a volume are read and written with its token alone, whether or not a sandbox mounts it.
func TestVolumeContent(t *testing.T) {
	t.Parallel()
	var stop context.CancelFunc
	h := newHouse(t, withSandboxes(t, &stop))
	h.key("sk-mine", "proj_mine")
	h.key("sk-theirs", "proj_theirs")
	type made struct {
		ID    string `json:"volumeID"`
		Token string `json:"token"`
	}
	create := func(key string) (v made) {
		t.Helper()
		_, text := h.sandboxCall("POST", "/volumes", `{"name":"data"}`, map[string]string{"X-API-Key": key})
		check(t, json.Unmarshal([]byte(text), &v))
		return v
	}
	v, theirs := create("sk-mine"), create("sk-theirs")
	call := func(want int, method, rest, body string) string {
		t.Helper()
		status, text := h.sandboxCall(method, "/volumecontent/"+v.ID+"/"+rest, body,
			map[string]string{"Authorization": "Bearer " + v.Token})
		if status != want {
			t.Errorf("%s %s: got %d %s, want %d", method, rest, status, text, want)
		}
		return text
	}
	owner := fmt.Sprintf(`"uid":%d,"gid":%d`, os.Getuid(), os.Getgid())
	if os.Getuid() == 0 {
		owner = `"uid":1000,"gid":1000`
	}
	if text := call(201, "PUT", "file?path=a.txt", "hello"); !strings.HasPrefix(text,
		`{"name":"a.txt","type":"file","path":"/a.txt","size":5,"mode":420,`+owner+`,"atime":"20`) {
		t.Errorf("a written file is %s", text)
	}
	if text := call(200, "GET", "file?path=/a.txt", ""); text != "hello" {
		t.Errorf("read %q", text)
	}
	if text := call(409, "PUT", "file?path=a.txt", "x"); !strings.HasPrefix(text,
		`{"code":"conflict","message":"Path \"/a.txt\" exists already.`) {
		t.Errorf("a second write: got %s", text)
	}
	call(201, "PUT", "file?path=a.txt&force=true", "")
	if text := call(200, "GET", "file?path=a.txt", ""); text != "" {
		t.Errorf("an empty file: got %q", text)
	}
	call(201, "POST", "dir?path=/d&mode=448", "")
	call(201, "PUT", "file?path=d/e/b%0Ac&force=true&mode=384", "b")
	if text := call(200, "GET", "dir?path=/&depth=3", ""); strings.Count(text, `"name":`) != 4 ||
		!strings.Contains(text, `"path":"/d/e/b\nc","size":1,"mode":384`) || !strings.Contains(text,
		`"path":"/d","size":`) {
		t.Errorf("the list is %s", text)
	}
	if text := call(200, "PATCH", "path?path=d", `{"mode":493}`); !strings.Contains(text, `"type":"directory"`) ||
		!strings.Contains(text, `"mode":493`) {
		t.Errorf("a changed directory is %s", text)
	}
	call(204, "DELETE", "path?path=d", "")
	if text := call(404, "GET", "path?path=d", ""); text != `{"code":"not_found","message":"Path \"/d\" not found."}` {
		t.Errorf("a removed directory: got %s", text)
	}
	if text := call(200, "GET", "path?path=/", ""); !strings.HasPrefix(text,
		`{"name":"/","type":"directory","path":"/"`) {
		t.Errorf("the root is %s", text)
	}
	for _, rest := range []string{"path", "path?path=a.txt&mode=1", "path?path=../../etc/passwd", "path?path=%00",
		"dir?path=/&depth=101", "dir?path=a.txt", "file?path=/"} {
		call(400, "GET", rest, "")
	}
	for _, rest := range []string{"file?path=b&mode=2048", "file?path=b&uid=-1", "file?path=b&uid=4294967295",
		"file?path=b&force=maybe", "file?path=../b&force=true"} {
		call(400, "PUT", rest, "x")
	}
	call(400, "PATCH", "path?path=a.txt", `{"mode":"0644"}`)
	call(400, "DELETE", "path?path=/", "")
	call(404, "GET", "stat?path=/", "")
	call(405, "DELETE", "file?path=a.txt", "")

	parts := strings.Split(v.Token, ".")
	for token, want := range map[string]int{"": 401, "none": 401, "sk-mine": 401, "sk-theirs": 401, ".": 401,
		v.Token + "0": 401, parts[0] + "." + theirs.ID + "." + parts[2]: 401,
		"proj_theirs." + v.ID + "." + parts[2]: 401, theirs.Token: 404} {
		for _, id := range []string{v.ID, "vol_none"} {
			if status, text := h.sandboxCall("GET", "/volumecontent/"+id+"/file?path=a.txt", "",
				map[string]string{"Authorization": "Bearer " + token, "X-API-Key": "sk-theirs"}); status != want {
				t.Errorf("%s with the token %q: got %d %s, want %d", id, token, status, text, want)
			}
		}
	}
	if status, _ := h.sandboxCall("DELETE", "/volumes/"+v.ID, "",
		map[string]string{"X-API-Key": "sk-mine"}); status != http.StatusNoContent {
		t.Errorf("deletion: got %d", status)
	}
	call(404, "GET", "file?path=a.txt", "")
}

// A server whose driver has no volumes says so.
func TestNoVolumeContent(t *testing.T) {
	t.Parallel()
	var stop context.CancelFunc
	h := newHouse(t, func(o *api.Options) {
		o.Volumes = nil
		withSandboxes(t, &stop)(o)
	})
	status, text := h.sandboxCall("GET", "/volumecontent/vol_a/file?path=a", "",
		map[string]string{"Authorization": "Bearer x"})
	if want := `{"code":"not_implemented","message":"This server cannot store volumes."}`; status != http.StatusNotImplemented ||
		text != want {
		t.Errorf("got %d %s", status, text)
	}
}
