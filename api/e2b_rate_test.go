package api_test

import (
	"context"
	"encoding/json"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api"
	"github.com/berth-run/berth/project"
)

// What a client changes with a token counts towards the rate of its project; input and reads do not.
func TestSandboxRate(t *testing.T) {
	var stop context.CancelFunc
	const rate = 4 // for the sandbox, the template, the volume and one more
	h := newHouse(t, func(o *api.Options) {
		st := storeOf(o)
		o.Exchange.Quota = project.NewQuota(project.QuotaOptions{Objects: st, Usages: st,
			Limits: map[berth.ProjectID]berth.Limits{"proj_mine": {RequestsPerMinute: number(rate)}}})
		withSandboxes(t, &stop)(o)
	})
	h.key("sk-mine", "proj_mine")
	s := h.newSandbox("sk-mine", `{"templateID":"base"}`)
	template, _ := h.newTemplate("sk-mine", `{"name":"app"}`)
	var link struct{ URL string }
	_, text := h.sandboxCall("GET", "/templates/"+template+"/files/"+strings.Repeat("a", 64), "",
		map[string]string{"X-API-Key": "sk-mine"})
	check(t, json.Unmarshal([]byte(text), &link))
	var volume struct{ VolumeID, Token string }
	_, text = h.sandboxCall("POST", "/volumes", `{"name":"notes"}`, map[string]string{"X-API-Key": "sk-mine"})
	check(t, json.Unmarshal([]byte(text), &volume))
	content := "/volumecontent/" + volume.VolumeID
	holder := map[string]string{"Authorization": "Bearer " + volume.Token}
	at := func(port string) map[string]string {
		return map[string]string{"E2b-Sandbox-Id": s.ID, "E2b-Sandbox-Port": port, "X-Access-Token": s.Token}
	}
	write := "/files?path=" + filepath.Join(t.TempDir(), "a.txt")
	binary := at("49983")
	binary["Content-Type"] = "application/octet-stream"
	if status, text := h.sandboxCall("POST", write, "a", binary); status != http.StatusOK {
		t.Fatalf("within the rate: got %d %s", status, text)
	}
	for _, tt := range []struct {
		method, path string
		header       map[string]string
		limited      bool
	}{
		{"POST", write, binary, true},
		{"POST", "/process.Process/Start", at("49983"), true},
		{"POST", "/filesystem.Filesystem/MakeDir", at("49983"), true},
		{"POST", "/execute", at("49999"), true},
		{"POST", "/contexts", at("49999"), true},
		{"POST", "/contexts/a/restart", at("49999"), true},
		{"PUT", strings.TrimPrefix(link.URL, h.url), nil, true},
		{"PUT", content + "/file?path=/a", holder, true},
		{"POST", content + "/dir?path=/a", holder, true},
		{"GET", content + "/dir?path=/", holder, false},
		{"GET", write, at("49983"), false},
		{"POST", "/", at("8000"), false},
		{"POST", "/process.Process/List", at("49983"), false},
		{"POST", "/process.Process/SendInput", at("49983"), false},
		{"GET", "/contexts", at("49999"), false},
	} {
		status, text := h.sandboxCall(tt.method, tt.path, "{}", tt.header)
		if (status == http.StatusTooManyRequests) != tt.limited {
			t.Errorf("%s %.40s: got %d %s", tt.method, tt.path, status, text)
		}
		if code := `{"code":`; tt.limited && !strings.HasPrefix(text, code) {
			t.Errorf("%s %.40s: got %s, want an error in E2B's form", tt.method, tt.path, text)
		}
	}
	req, err := http.NewRequestWithContext(t.Context(), "POST", h.url+"/execute", strings.NewReader("{}"))
	check(t, err)
	for name, value := range at("49999") {
		req.Header.Set(name, value)
	}
	resp, err := http.DefaultClient.Do(req)
	check(t, err)
	check(t, resp.Body.Close())
	if resp.StatusCode != http.StatusTooManyRequests || resp.Header.Get("Retry-After") == "" {
		t.Errorf("got %d %v, want the time of a retry", resp.StatusCode, resp.Header)
	}
}
