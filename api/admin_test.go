package api_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api"
	"github.com/berth-run/berth/audit"
	"github.com/berth-run/berth/project"
)

// administered starts a server with an admin key, and limits that projects may have.
func administered(t *testing.T) *house {
	t.Helper()
	h := limited(t, nil)
	h.key("sk-admin", berth.AdminProject)
	return h
}

// An administrator creates a project with a limit and a key, uses the key, and ends both.
func TestAdministration(t *testing.T) {
	t.Parallel()
	h := administered(t)
	p := h.call(200, "POST", "/v1/organization/projects", `{"name":"research","limits":{"requests_per_minute":1}}`)
	path := "/v1/organization/projects/" + p.id()
	created := h.call(200, "POST", path+"/api_keys", `{"name":"laptop","expires_in_seconds":3600}`)
	secret, _ := created["value"].(string)
	if !strings.HasPrefix(secret, berth.KeyPrefix) ||
		created["expires_at"].(float64)-created["created_at"].(float64) != 3600 {
		t.Fatalf("got %v", created)
	}
	for _, read := range []object{h.call(200, "GET", path+"/api_keys/"+created.id(), nil),
		h.call(200, "GET", path+"/api_keys", nil)} {
		if text, _ := json.Marshal(read); strings.Contains(string(text), secret) || !strings.Contains(string(text),
			secret[len(secret)-4:]) {
			t.Errorf("the key is shown again, or not at all: %s", text)
		}
	}
	h.token = secret
	h.call(200, "POST", "/v1/responses", `{"model":"scripted","input":"x"}`)
	h.call(429, "POST", "/v1/responses", `{"model":"scripted","input":"x"}`)

	h.token = "sk-admin"
	if got := h.call(200, "POST", path, `{"name":"lab","limits":{}}`); got["name"] != "lab" ||
		len(got["limits"].(map[string]any)) != 0 {
		t.Errorf("got %v", got)
	}
	if got := h.call(200, "GET", path, nil); got["name"] != "lab" || got["status"] != "active" {
		t.Errorf("got %v", got)
	}
	usage := h.call(200, "GET", "/v1/organization/usage/completions?start_time=1&limit=1", nil)
	if usage["object"] != "page" {
		t.Errorf("got %v", usage)
	}
	h.call(200, "DELETE", path+"/api_keys/"+created.id(), nil)
	h.call(404, "GET", path+"/api_keys/"+created.id(), nil)
	h.token = secret
	h.call(401, "GET", "/v1/models", nil)

	h.token = "sk-admin"
	if got := h.call(200, "POST", path+"/archive", nil); got["status"] != "archived" {
		t.Errorf("got %v", got)
	}
	h.call(400, "POST", path+"/api_keys", `{"name":"late"}`)
	if got := h.call(200, "GET", "/v1/organization/projects", nil); strings.Contains(text(got), p.id()) {
		t.Errorf("an archived project is listed: %v", got)
	}
	if got := h.call(200, "GET", "/v1/organization/projects?include_archived=true&limit=1",
		nil); !strings.Contains(text(got), p.id()) || got["has_more"] != true {
		t.Errorf("got %v", got)
	}
	if got := h.call(200, "GET", "/v1/organization/projects?limit=100", nil); strings.Contains(text(got),
		`"organization"`) {
		t.Errorf("the admin keys' project is listed: %v", got)
	}
}

func text(v any) string {
	raw, _ := json.Marshal(v)
	return string(raw)
}

func TestAdminKeys(t *testing.T) {
	t.Parallel()
	h := administered(t)
	created := h.call(200, "POST", "/v1/organization/admin_api_keys", `{"name":"second"}`)
	path := "/v1/organization/admin_api_keys/"
	list := h.call(200, "GET", "/v1/organization/admin_api_keys", nil)
	if data := list["data"].([]any); len(data) != 2 || strings.Contains(text(list), created["value"].(string)) {
		t.Fatalf("got %v", list)
	}
	first := list.at("data", 0, "id").(string)
	h.token = created["value"].(string)
	h.call(200, "GET", path+first, nil)
	h.call(200, "DELETE", path+first, nil)
	h.call(404, "DELETE", path+first, nil)
	// The last key stays, and so does its own.
	if got := h.call(409, "DELETE", path+created.id(), nil); !strings.Contains(text(got), "last key") {
		t.Errorf("got %v", got)
	}
	h.call(200, "GET", path+created.id(), nil)
}

// The project of admin keys is none that clients can name.
func TestAdminProjectIsHidden(t *testing.T) {
	t.Parallel()
	h := administered(t)
	const path = "/v1/organization/projects/" + string(berth.AdminProject)
	h.call(404, "GET", path, nil)
	h.call(404, "GET", path+"/api_keys", nil)
	h.call(404, "POST", path+"/api_keys", `{"name":"x"}`)
	h.call(404, "POST", path+"/archive", nil)
}

// Every route but those of administration, and whoami, refuses admin keys, and those refuse all others,
// before the request is read.
func TestScopesOfKeys(t *testing.T) {
	t.Parallel()
	h := administered(t)
	h.key("sk-a", "proj_a")
	h.key("sk-default", berth.DefaultProject)
	refused := func(key, pattern string) {
		t.Helper()
		method, path, found := strings.Cut(pattern, " ")
		if !found {
			method, path = "GET", pattern
		}
		h.token = key
		resp := h.send(t.Context(), method, strings.NewReplacer("{", "", "}", "", "...", "").Replace(path),
			`{"not":"read"}`)
		body, err := io.ReadAll(resp.Body)
		check(t, err)
		if resp.StatusCode != http.StatusForbidden || !strings.Contains(string(body), "insufficient permissions") {
			t.Errorf("%s with %s: got %d %s, want 403", pattern, key, resp.StatusCode, body)
		}
	}
	for _, pattern := range api.Routes() {
		switch {
		case pattern == "GET /v1/whoami": // tells each caller who it is
		case api.ForAdmin(pattern):
			refused("sk-a", pattern)
			refused("sk-default", pattern)
		case !strings.Contains(pattern, "/v1/organization/"):
			refused("sk-admin", pattern)
		}
	}
}

// A server without keys has no administrator.
func TestNoAdminWithoutKeys(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	h.call(403, "POST", "/v1/organization/admin_api_keys", `{"name":"x"}`)
	h.call(403, "GET", "/v1/organization/projects", nil)
}

// A project sees its own usage; an administrator sees that of all projects.
func TestUsageOfAllProjects(t *testing.T) {
	t.Parallel()
	h := administered(t)
	for key, p := range map[string]berth.ProjectID{"sk-a": "proj_a", "sk-b": "proj_b"} {
		h.key(key, p)
		h.call(200, "POST", "/v1/responses", `{"model":"scripted","input":"x"}`)
	}
	path := fmt.Sprintf("/v1/organization/usage/completions?start_time=%d&group_by=project_id",
		time.Now().Add(-time.Hour).Unix())
	recent := func() string { return text(h.call(200, "GET", path, nil)) }
	h.token = "sk-a"
	if got := recent(); !strings.Contains(got, "proj_a") || strings.Contains(got, "proj_b") {
		t.Errorf("a project sees %s", got)
	}
	h.token = "sk-admin"
	if got := recent(); !strings.Contains(got, "proj_a") || !strings.Contains(got, "proj_b") {
		t.Errorf("the administrator sees %s", got)
	}
}

// memoryRecord is an audit record in memory.
type memoryRecord struct {
	mu      sync.Mutex
	entries []audit.Entry
}

func (r *memoryRecord) Commit(_ context.Context, entries ...audit.Entry) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.entries = append(r.entries, entries...)
	return nil
}

// Changes are in the audit record, with the key that made them.
func TestAdministrationIsRecorded(t *testing.T) {
	t.Parallel()
	var record memoryRecord
	h := newHouse(t, func(o *api.Options) {
		o.Projects = project.New(project.Options{Objects: storeOf(o), Keys: storeOf(o), Audit: &record})
	})
	h.key("sk-admin", berth.AdminProject)
	admin := h.call(200, "GET", "/v1/organization/admin_api_keys", nil).at("data", 0, "id").(string)
	p := h.call(200, "POST", "/v1/organization/projects", `{"name":"x"}`)
	path := "/v1/organization/projects/" + p.id()
	key := h.call(200, "POST", path+"/api_keys", `{"name":"k"}`)
	h.call(200, "POST", path, `{"limits":{"responses":2}}`)
	h.call(200, "POST", path+"/api_keys/"+key.id(), `{"limits":{"cost_per_month":2}}`)
	h.call(200, "DELETE", path+"/api_keys/"+key.id(), nil)
	h.call(200, "POST", path+"/archive", nil)
	var got []string
	for _, e := range record.entries {
		if string(e.Key) != admin {
			t.Errorf("%s has the key %q, want %q", e.Action, e.Key, admin)
		}
		got = append(got, string(e.Action))
	}
	if want := "project.created key.created project.updated key.updated key.revoked project.archived"; strings.Join(got,
		" ") != want {
		t.Errorf("got %v, want %s", got, want)
	}
}

// A key's role changes with the next request, and the record has the old and the new one.
func TestKeyRoleChange(t *testing.T) {
	t.Parallel()
	var record memoryRecord
	h := newHouse(t, func(o *api.Options) {
		o.Projects = project.New(project.Options{Objects: storeOf(o), Keys: storeOf(o), Audit: &record})
	})
	h.key("sk-admin", berth.AdminProject)
	path := "/v1/organization/projects/" + h.call(200, "POST", "/v1/organization/projects", `{"name":"x"}`).id() + "/api_keys"
	key := h.call(200, "POST", path, `{"name":"k","note":"n"}`)
	h.token = key.at("value").(string)
	h.call(200, "POST", "/v1/conversations", `{}`)
	h.call(403, "POST", path+"/"+key.id(), `{"role":"maintainer"}`)
	h.token = "sk-admin"
	changed := h.call(200, "POST", path+"/"+key.id(), `{"role":"viewer"}`)
	if changed.at("role") != "viewer" || changed.at("note") != "n" || changed.at("name") != "k" {
		t.Errorf("the changed key is %v", changed)
	}
	h.call(400, "POST", path+"/"+key.id(), `{"role":"admin"}`)
	h.call(400, "POST", path+"/"+key.id(), `{"scope":{"routes":["GET /v1/nothing"]}}`)
	h.call(404, "POST", path+"/key_none", `{"role":"viewer"}`)
	h.call(404, "POST", "/v1/organization/admin_api_keys/"+key.id(), `{"role":"auditor"}`)
	h.call(200, "POST", path+"/"+key.id(), `{"scope":{"routes":["GET *"]},"expires_in_seconds":60,"note":""}`)
	h.call(200, "POST", path+"/"+key.id(), `{}`)
	h.token = key.at("value").(string)
	h.call(403, "POST", "/v1/conversations", `{}`)
	h.token = "sk-admin"
	auditor := h.call(200, "POST", "/v1/organization/admin_api_keys", `{"name":"a"}`)
	h.call(200, "POST", "/v1/organization/admin_api_keys/"+auditor.id(), `{"role":"auditor"}`)
	h.token = auditor.at("value").(string)
	h.call(403, "POST", "/v1/organization/admin_api_keys/"+auditor.id(), `{"role":"admin"}`)
	var got []string
	for _, e := range record.entries {
		if e.Action == audit.KeyUpdated {
			got = append(got, e.Object+" "+e.Reason)
		}
	}
	want := key.id() + " role: none to viewer\n" + key.id() + " note, scope, expiry\n" + auditor.id() + " role: none to auditor"
	if strings.Join(got, "\n") != want {
		t.Errorf("the record has %q, want %q", got, want)
	}
}
