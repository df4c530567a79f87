package api_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/berth-run/berth/api"
)

// newTemplate announces a build.
func (h *house) newTemplate(key, body string) (template, build string) {
	h.t.Helper()
	status, text := h.sandboxCall("POST", "/v3/templates", body, map[string]string{"X-API-Key": key})
	var made struct {
		Template string `json:"templateID"`
		Build    string `json:"buildID"`
	}
	if err := json.Unmarshal([]byte(text), &made); err != nil || status != http.StatusAccepted {
		h.t.Fatalf("got %d %s", status, text)
	}
	return made.Template, made.Build
}

// E2B's OpenAPI document says that ids of builds are UUIDs, and clients generated from it decode nothing else. They are in
// each answer that names a build, also of a snapshot and of the default template.
func TestE2BBuildIDs(t *testing.T) {
	t.Parallel()
	var stop context.CancelFunc
	h := newHouse(t, withSandboxes(t, &stop))
	h.key("sk-mine", "proj_mine")
	key := map[string]string{"X-API-Key": "sk-mine"}
	template, build := h.newTemplate("sk-mine", `{"name":"app:v1"}`)
	s := h.newSandbox("sk-mine", `{"templateID":"base"}`)
	if status, text := h.sandboxCall("POST", "/sandboxes/"+s.ID+"/snapshots", `{"name":"kept"}`, key); status != 201 {
		t.Fatalf("snapshot: got %d %s", status, text)
	}
	if uuid.Validate(build) != nil {
		t.Errorf("the build is %q", build)
	}
	id := regexp.MustCompile(`"build_?I[Dd]":"([^"]*)"`)
	for path, most := range map[string]int{"/templates/" + template: 0, "/templates/" + template + "/tags": 0,
		"/templates": 1, "/templates/" + template + "/builds/" + build + "/status": 1, "/templates/kept": 1} {
		status, text := h.sandboxCall("GET", path, "", key)
		found := id.FindAllStringSubmatch(text, -1)
		if status != http.StatusOK || len(found) < most {
			t.Errorf("%s: got %d %s, want ids of builds", path, status, text)
		}
		for _, m := range found {
			if uuid.Validate(m[1]) != nil {
				t.Errorf("%s: got the build %q", path, m[1])
			}
		}
	}
}

// Another project's template is answered as one that does not exist.
func TestE2BTemplateIsolation(t *testing.T) {
	t.Parallel()
	var stop context.CancelFunc
	h := newHouse(t, withSandboxes(t, &stop))
	h.key("sk-theirs", "proj_theirs")
	h.key("sk-mine", "proj_mine")
	theirs, build := h.newTemplate("sk-theirs", `{"name":"secret-app:v1"}`)
	none := strings.Repeat("0", len(theirs))
	for _, route := range []string{"GET /templates/ID", "DELETE /templates/ID", "GET /templates/ID/tags",
		`PATCH /v2/templates/ID {"public":false}`,
		"GET /templates/ID/files/" + strings.Repeat("a", 64), "GET /templates/ID/builds/BUILD/status",
		"GET /templates/ID/builds/BUILD/logs",
		`POST /v2/templates/ID/builds/BUILD {"fromTemplate":"base"}`, "GET /templates/aliases/ID",
		`POST /templates/tags {"target":"ID:v1","tags":["x"]}`, `DELETE /templates/tags {"name":"ID","tags":["v1"]}`} {
		method, rest, _ := strings.Cut(route, " ")
		path, body, _ := strings.Cut(rest, " ")
		answers := map[string]string{}
		for _, id := range []string{theirs, none} {
			fill := strings.NewReplacer("ID", id, "BUILD", build)
			status, text := h.sandboxCall(method, strings.Replace(fill.Replace(path), "template"+id, "templateID", 1),
				strings.Replace(fill.Replace(body), "template"+id, "templateID", 1),
				map[string]string{"X-API-Key": "sk-mine"})
			if status != http.StatusNotFound || !strings.HasPrefix(text, `{"code":404,`) {
				t.Errorf("%s with %s: got %d %s", route, id, status, text)
			}
			answers[strings.ReplaceAll(text, id, "ID")] = id
		}
		if len(answers) != 1 {
			t.Errorf("%s: the answers differ: %v", route, answers)
		}
	}
	for _, path := range []string{"/v2/templates", "/templates", "/snapshots"} {
		status, text := h.sandboxCall("GET", path, "", map[string]string{"X-API-Key": "sk-mine"})
		if names := regexp.MustCompile(`"names":\[[^]]*\]`).FindAllString(text, -1); status != 200 ||
			path == "/snapshots" && text != "[]" ||
			path != "/snapshots" && !slices.Equal(names, []string{`"names":["base"]`}) {
			t.Errorf("%s: got %d %s", path, status, text)
		}
	}
	if status, _ := h.sandboxCall("GET", "/templates/aliases/secret-app", "",
		map[string]string{"X-API-Key": "sk-mine"}); status != 404 {
		t.Errorf("its name: got %d", status)
	}
	if mine, _ := h.newTemplate("sk-mine", `{"name":"secret-app"}`); mine == theirs {
		t.Error("two projects share a template")
	}
}

// What a build cannot do is refused before it starts.
func TestE2BTemplateRequests(t *testing.T) {
	t.Parallel()
	var stop context.CancelFunc
	h := newHouse(t, withSandboxes(t, &stop))
	h.key("sk-mine", "proj_mine")
	key := map[string]string{"X-API-Key": "sk-mine"}
	for body, want := range map[string]string{
		`{}`: "'name'", `{"name":":v1"}`: "'name'", `{"name":"a b"}`: "not the name", `{"name":"a:b c"}`: "not a tag",
		`{"name":"../a"}`: "not the name",
		`{"name":"base"}`: "default template", `{"name":"a","tags":["x y"]}`: "not a tag",
		`{"name":"a","memoryMB":1000000}`: "'memoryMB'", `{"name":"a","surprise":1}`: "Unknown parameter",
	} {
		if status, text := h.sandboxCall("POST", "/v3/templates", body, key); status != 400 || !strings.Contains(text,
			want) {
			t.Errorf("%s: got %d %s, want %q", body, status, text, want)
		}
	}
	template, build := h.newTemplate("sk-mine", `{"name":"app"}`)
	hash := strings.Repeat("a", 64)
	for body, want := range map[string]string{
		`{}`: "'fromImage'", `{"fromImage":"a","fromTemplate":"b"}`: "'fromImage'",
		`{"fromImage":"a","fromImageRegistry":{"type":"aws","awsAccessKeyId":"x","awsSecretAccessKey":"y","awsRegion":"z"}}`: "type 'aws'",
		`{"fromTemplate":"base","steps":[{"type":"ADD","args":["a","b"]}]}`:                                                  "'ADD'",
		`{"fromTemplate":"base","steps":[{"type":"RUN","args":[]}]}`:                                                         "at least 1",
		`{"fromTemplate":"base","steps":[{"type":"RUN","args":["true","a; rm -rf /"]}]}`:                                     "name of a user",
		`{"fromTemplate":"base","steps":[{"type":"COPY","args":["a","b"]}]}`:                                                 "hexadecimal",
		`{"fromTemplate":"base","steps":[{"type":"COPY","args":["../../etc/passwd","b"],"filesHash":"` + hash +
			`"}]}`: "leaves the directory",
		`{"fromTemplate":"base","steps":[{"type":"COPY","args":["/etc/passwd","b"],"filesHash":"` + hash +
			`"}]}`: "leaves the directory",
		`{"fromTemplate":"base","steps":[{"type":"COPY","args":["a","b","root","u+s"],"filesHash":"` + hash +
			`"}]}`: "permissions",
		`{"fromTemplate":"base","steps":[{"type":"ENV","args":["A=B","c"]}]}`: "name of a variable",
	} {
		if status, text := h.sandboxCall("POST", "/v2/templates/"+template+"/builds/"+build, body,
			key); status != 400 || !strings.Contains(text, want) {
			t.Errorf("%s: got %d %s, want %q", body, status, text, want)
		}
	}
	if status, text := h.sandboxCall("POST", "/v2/sandboxes", `{"templateID":"app","allow_internet_access":false}`,
		key); status != 404 || !strings.Contains(text, "default") {
		t.Errorf("a sandbox of a template without a build: got %d %s", status, text)
	}
	if status, text := h.sandboxCall("GET", "/templates/"+template+"/builds/"+build+"/status", "",
		key); status != 200 || !strings.Contains(text, `"status":"waiting"`) {
		t.Errorf("status: got %d %s", status, text)
	}
	if status, text := h.sandboxCall("GET", "/templates/none/builds/no-uuid/status", "", key); status != 400 {
		t.Errorf("the status of an impossible build: got %d %s", status, text)
	}
	if status, _ := h.sandboxCall("DELETE", "/templates/app", "", key); status != 204 {
		t.Errorf("delete: got %d", status)
	}
	if status, _ := h.sandboxCall("DELETE", "/templates/app", "", key); status != 404 {
		t.Errorf("delete again: got %d", status)
	}
}

// The URL of an upload is for its files and its project only, and for an hour.
func TestE2BUpload(t *testing.T) {
	t.Parallel()
	var stop context.CancelFunc
	var log logged
	h := newHouse(t, func(o *api.Options) {
		withSandboxes(t, &stop)(o)
		o.Exchange.Log = slog.New(slog.NewTextHandler(&log, nil))
	})
	h.key("sk-mine", "proj_mine")
	h.key("sk-theirs", "proj_theirs")
	key := map[string]string{"X-API-Key": "sk-mine"}
	template, _ := h.newTemplate("sk-mine", `{"name":"app"}`)
	hash := strings.Repeat("a", 64)
	link := func() (present bool, url string) {
		status, text := h.sandboxCall("GET", "/templates/"+template+"/files/"+hash, "", key)
		var got struct {
			Present bool   `json:"present"`
			URL     string `json:"url"`
		}
		if err := json.Unmarshal([]byte(text), &got); err != nil || status != http.StatusCreated {
			t.Fatalf("got %d %s", status, text)
		}
		return got.Present, got.URL
	}
	present, url := link()
	if present || !strings.HasPrefix(url, h.url+"/e2b/uploads/") {
		t.Fatalf("got %v %s", present, url)
	}
	put := func(url string) int {
		req, err := http.NewRequestWithContext(t.Context(), "PUT", url, bytes.NewReader([]byte("an archive")))
		check(t, err)
		resp, err := http.DefaultClient.Do(req)
		check(t, err)
		defer resp.Body.Close()
		_, err = io.Copy(io.Discard, resp.Body)
		check(t, err)
		return resp.StatusCode
	}
	for name, wrong := range map[string]string{
		"another project":   strings.Replace(url, "proj_mine", "proj_theirs", 1),
		"another hash":      strings.Replace(url, hash, strings.Repeat("b", 64), 1),
		"another signature": url[:len(url)-1] + "x",
		"no signature":      url[:strings.LastIndex(url, "/")],
		"another time":      strings.Replace(url, hash+"/", hash+"/9", 1),
		"nothing":           h.url + "/e2b/uploads/",
	} {
		if status := put(wrong); status != http.StatusUnauthorized {
			t.Errorf("%s: got %d", name, status)
		}
	}
	if present, _ := link(); present {
		t.Error("the files are there after refused uploads")
	}
	if status := put(url); status != http.StatusOK {
		t.Errorf("upload: got %d", status)
	}
	if present, _ := link(); !present {
		t.Error("the files are not there")
	}
	if status := put(url); status != http.StatusOK {
		t.Errorf("upload again: got %d", status)
	}
	if text := log.String(); strings.Contains(text, url[strings.LastIndex(url, "/"):]) || !strings.Contains(text,
		"path=/e2b/uploads/ ") {
		t.Errorf("the log is %s", text)
	}
}
