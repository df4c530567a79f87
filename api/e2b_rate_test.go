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
	"github.com/berth-run/berth/store"
)

// What a client changes with a token counts towards the rate of its project; input and reads do not.
func TestSandboxRate(t *testing.T) {
	var stop context.CancelFunc
	const rate = 3 // for the sandbox, the template and one more
	h := newHouse(t, func(o *api.Options) {
		st := o.Store.Objects.(store.Store)
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
		{"GET", write, at("49983"), false},
		{"POST", "/process.Process/List", at("49983"), false},
		{"POST", "/process.Process/SendInput", at("49983"), false},
		{"GET", "/contexts", at("49999"), false},
	} {
		if status, text := h.sandboxCall(tt.method, tt.path, "{}",
			tt.header); (status == http.StatusTooManyRequests) != tt.limited {
			t.Errorf("%s %.40s: got %d %s", tt.method, tt.path, status, text)
		}
	}
}
