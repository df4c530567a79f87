package api_test

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/coder/websocket"
	"github.com/openai/openai-go/v3"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api"
	"github.com/berth-run/berth/api/exchange"
)

// roleKey makes a key with a role and returns its secret.
func (h *house) roleKey(p berth.ProjectID, role berth.Role, scope berth.KeyScope) string {
	h.t.Helper()
	id := berth.NewID(berth.PrefixKey)
	check(h.t, h.store.CreateKey(h.t.Context(), &berth.Key{ID: berth.KeyID(id), Project: p, Role: role, Scope: scope,
		Hash: sha256.Sum256([]byte("sk-" + id)), CreatedAt: 1}))
	return "sk-" + id
}

// Each route has a permission, and each permission a route. Each role gets as far as its permissions say on each route,
// with the form of errors of the route's door.
func TestPermissions(t *testing.T) {
	var stop context.CancelFunc
	h := newHouse(t, func(o *api.Options) {
		withSandboxes(t, &stop)(o)
		withOpenTerminal(o)
		withShells(o)
		withSCIM(t)(o)
	})
	routes := map[string]bool{}
	for _, rt := range api.Table() {
		if routes[rt.Pattern()] = true; rt.Is(exchange.Keyless) {
			continue
		}
		if rt.Permission == 0 {
			t.Errorf("%s has no permission", rt.Pattern())
		}
	}
	for pattern := range api.Permissions() {
		if !routes[pattern] && !strings.HasSuffix(pattern, " /mcp") {
			t.Errorf("there is no route %s", pattern)
		}
	}
	h.key("sk-a", "proj_a")
	h.call(200, "POST", "/v1/vector_stores", `{"name":"x"}`) // the contract has no empty list of them
	for project, roles := range map[berth.ProjectID][]berth.Role{"proj_a": berth.ProjectRoles,
		berth.AdminProject: berth.OrganizationRoles} {
		for _, role := range roles {
			h.token = h.roleKey(project, role, berth.KeyScope{})
			for _, rt := range api.Table() {
				if rt.Is(exchange.Keyless) || rt.Host != nil || rt.Select != nil || rt.Identity != nil {
					continue
				}
				method := rt.Method
				if method == "" {
					method = "GET"
				}
				path := strings.NewReplacer("{port}", "80", "{", "", "}", "", "...", "").Replace(rt.Path)
				resp := h.send(t.Context(), method, path, `{"not":"read"}`)
				body, err := io.ReadAll(resp.Body)
				check(t, err)
				refused := resp.StatusCode == http.StatusForbidden && strings.Contains(string(body), "Missing permission")
				if want := role.Permissions(project)&rt.Permission == 0; refused != want ||
					refused && !strings.Contains(string(body), rt.Permission.String()) {
					t.Errorf("%s, %s: got %d %s", role, rt.Pattern(), resp.StatusCode, body)
				}
			}
		}
	}
}

// The tables of docs/sign-in.md are made from the table of permissions.
func TestPermissionsPage(t *testing.T) {
	const page, begin, end = "../docs/sign-in.md", "<!-- permissions: made by TestPermissionsPage -->\n",
		"<!-- end of permissions -->"
	text, err := os.ReadFile(page)
	check(t, err)
	before, rest, ok := strings.Cut(string(text), begin)
	_, after, found := strings.Cut(rest, end)
	if !ok || !found {
		t.Fatalf("%s has no place for the tables", page)
	}
	var b strings.Builder
	b.WriteString("\n| permission |")
	roles := slices.Concat(berth.ProjectRoles, berth.OrganizationRoles)
	for _, role := range roles {
		fmt.Fprintf(&b, " %s |", role)
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(roles)) + "\n")
	for _, p := range berth.Permissions() {
		fmt.Fprintf(&b, "| `%s` |", p)
		for _, role := range roles {
			mark := ""
			if (role.Permissions("proj_a")|role.Permissions(berth.AdminProject))&p != 0 {
				mark = "yes"
			}
			fmt.Fprintf(&b, " %s |", mark)
		}
		b.WriteString("\n")
	}
	b.WriteString("\n| permission | routes |\n|---|---|\n")
	for _, p := range berth.Permissions() {
		var of []string
		for pattern, needed := range api.Permissions() {
			if needed&p != 0 {
				of = append(of, "`"+pattern+"`")
			}
		}
		slices.Sort(of)
		fmt.Fprintf(&b, "| `%s` | %s |\n", p, strings.Join(of, ", "))
	}
	b.WriteString("\n")
	want := before + begin + b.String() + end + after
	if want == string(text) {
		return
	}
	if *update {
		check(t, os.WriteFile(page, []byte(want), 0o644))
		return
	}
	t.Errorf("%s is not what the table of permissions says; if that is intended, run this test with -update", page)
}

// A key cannot exceed its role and its scope by another door or by what it creates.
func TestScopedKeyAttacks(t *testing.T) {
	h := newHouse(t, nil)
	h.key("sk-admin", berth.AdminProject)
	created := h.call(200, "POST", "/v1/organization/projects/proj_default/api_keys",
		`{"name":"x","note":"of the board","role":"viewer","scope":{"routes":["GET /v1/*"]}}`)
	viewer := created.at("value").(string)
	if created.at("note") != "of the board" || created.at("role") != "viewer" {
		t.Errorf("got %v", created)
	}
	auditor := h.call(200, "POST", "/v1/organization/admin_api_keys", `{"name":"x","role":"auditor"}`).at("value").(string)
	h.call(400, "POST", "/v1/organization/admin_api_keys", `{"name":"x","role":"maintainer"}`)
	h.call(400, "POST", "/v1/organization/admin_api_keys", `{"name":"x","scope":{"routes":["GET /v1/nothing"]}}`)
	h.call(400, "POST", "/v1/organization/admin_api_keys", `{"name":"x","owner":"nobody@example.com"}`)
	for _, secret := range []string{viewer, auditor} { // a broader key
		h.token = secret
		h.call(403, "POST", "/v1/organization/admin_api_keys", `{"name":"x"}`)
		h.call(403, "POST", "/v1/organization/projects/proj_default/api_keys", `{"name":"x"}`)
	}
	h.token = viewer
	h.call(200, "GET", "/v1/models", "")
	h.call(403, "POST", "/v1/responses", `{"model":"scripted","input":"x"}`)
	h.call(403, "POST", "/v1/messages", `{"model":"scripted","max_tokens":9,"messages":[{"role":"user","content":"x"}]}`)
	h.token = h.roleKey("proj_default", "", berth.KeyScope{Tools: []string{"web_search"},
		Routes: []string{"POST /v1/responses", "POST /v1/containers/*"}})
	h.call(200, "POST", "/v1/responses", `{"model":"scripted","input":"x"}`)
	h.call(403, "POST", "/v1/responses",
		`{"model":"scripted","input":"x","tools":[{"type":"shell","environment":{"type":"container_auto"}}]}`)
	h.call(403, "POST", "/v1/containers/cntr_x/exec", `{"command":["true"]}`)
	h.call(403, "POST", "/v1/chat/completions", `{"model":"scripted","messages":[{"role":"user","content":"x"}]}`)
	h.token = h.roleKey("proj_default", "no such role", berth.KeyScope{})
	h.call(403, "GET", "/v1/models", "")
	// A key whose owner has no access any more is refused.
	check(t, h.store.CreateKey(t.Context(), &berth.Key{ID: "key_lost", Project: "proj_default", Owner: "user_gone",
		Hash: sha256.Sum256([]byte("sk-lost")), CreatedAt: 1}))
	h.token = "sk-lost"
	if got := h.call(401, "GET", "/v1/models", ""); got.at("error", "code") != "invalid_api_key" {
		t.Errorf("got %v", got)
	}
}

// An approver answers what waits and no more; a runner cannot answer.
func TestApprover(t *testing.T) {
	h := newHouse(t, nil)
	h.key("sk-a", "proj_a")
	asked := h.call(200, "POST", "/v1/responses", "{\"model\":\"scripted\",\"input\":\"```sh\\ntrue\\n```\","+
		`"tools":[{"type":"shell","environment":{"type":"container_auto"}}],"berth":{"require_approval":"always"}}`)
	if got := itemTypesOf(asked); got != "mcp_approval_request" {
		t.Fatalf("got %s", got)
	}
	answer := `"previous_response_id":"` + asked.id() + `","input":[{"type":"mcp_approval_response","approval_request_id":"` +
		asked.at("output", 0, "id").(string) + `","approve":true}]`
	h.token = h.roleKey("proj_a", berth.RoleRunner, berth.KeyScope{})
	h.call(403, "POST", "/v1/responses", `{`+answer+`,"berth":{"inherit":true}}`)
	h.token = h.roleKey("proj_a", berth.RoleApprover, berth.KeyScope{})
	for _, more := range []string{`,"model":"scripted","berth":{"inherit":true}`, `,"model":"scripted"`,
		`,"berth":{"inherit":true,"require_approval":"never"}`, `,"instructions":"x","berth":{"inherit":true}`,
		`,"tools":[],"berth":{"inherit":true}`} {
		h.call(403, "POST", "/v1/responses", `{`+answer+more+`}`)
	}
	h.call(403, "POST", "/v1/responses", `{"previous_response_id":"`+asked.id()+`","input":"x","berth":{"inherit":true}}`)
	h.call(200, "POST", "/v1/responses", `{`+answer+`,"berth":{"inherit":true}}`)
}

// A WebSocket needs the permission and the scope of what its messages ask for, not those of its path alone.
func TestWebSocketPermissions(t *testing.T) {
	u := newTerminalHouse(t, nil)
	const project = "proj_sockets"
	u.key("sk-sockets", project)
	id := u.get("POST", "/api/terminals", "")["id"].(string)
	onlyReads := berth.KeyScope{Routes: []string{"GET /v1/*"}}
	for name, secret := range map[string]string{"viewer": u.roleKey(project, berth.RoleViewer, berth.KeyScope{}),
		"approver":    u.roleKey(project, berth.RoleApprover, berth.KeyScope{}),
		"narrow key":  u.roleKey(project, "", onlyReads),
		"key of tool": u.roleKey(project, "", berth.KeyScope{Tools: []string{"web_search"}})} {
		if code := closed(t, u.dialTerminal(id, secret)); code != 4001 {
			t.Errorf("a terminal for a %s: closed with %d", name, code)
		}
	}
	for name, secret := range map[string]string{"viewer": u.roleKey(project, berth.RoleViewer, berth.KeyScope{}),
		"narrow key": u.roleKey(project, "", onlyReads)} {
		u.token = secret
		l := u.connect()
		l.send(`{"type":"response.create","model":"scripted","input":"` + name + `"}`)
		l.wantError(403, "missing_scope", nil)
	}
	u.token = u.roleKey(project, berth.RoleRunner, berth.KeyScope{})
	u.connect().ask(`"input":"x"`)
	conn := u.dialTerminal(id, u.token)
	check(t, conn.Write(t.Context(), websocket.MessageBinary, []byte("echo open''ed\n")))
	readUntil(t, conn, "opened")
}

// What a key gets at one door is worth no more at another than the key.
func TestDerivedTokenAttacks(t *testing.T) {
	var stop context.CancelFunc
	h := newHouse(t, withSandboxes(t, &stop))
	h.key("sk-mine", "proj_mine")
	made := h.newSandbox("sk-mine", `{"templateID":"base"}`)
	status, text := h.sandboxCall("POST", "/volumes", `{"name":"notes"}`, map[string]string{"X-API-Key": "sk-mine"})
	var volume struct{ VolumeID, Token string }
	if check(t, json.Unmarshal([]byte(text), &volume)); status >= 300 {
		t.Fatalf("got %d %s", status, text)
	}
	notes := volume.VolumeID
	viewer := h.roleKey("proj_mine", berth.RoleViewer, berth.KeyScope{})
	var seen e2bSandbox
	for path, v := range map[string]any{"/sandboxes/" + made.ID: &seen, "/volumes/" + notes: &volume} {
		status, text := h.sandboxCall("GET", path, "", map[string]string{"X-API-Key": viewer})
		if check(t, json.Unmarshal([]byte(text), v)); status != 200 {
			t.Fatalf("%s: got %d %s", path, status, text)
		}
	}
	if seen.Token == "" || volume.Token == "" {
		t.Fatalf("a viewer got no tokens to try: %+v, %+v", seen, volume)
	}
	sandbox := map[string]string{"E2b-Sandbox-Id": made.ID, "E2b-Sandbox-Port": "49983", "X-Access-Token": seen.Token}
	for _, tt := range []struct {
		path, body string
		header     map[string]string
	}{{"/process.Process/List", "{}", sandbox}, {"/files?path=/etc/passwd", "", sandbox},
		{"/volumecontent/" + notes + "/dir?path=/", "", map[string]string{"Authorization": "Bearer " + volume.Token}}} {
		method := "POST"
		if tt.body == "" {
			method = "GET"
		}
		status, text := h.sandboxCall(method, tt.path, tt.body, tt.header)
		if status != 403 || !strings.Contains(text, "Missing permission: attach") {
			t.Errorf("%s: got %d %s", tt.path, status, text)
		}
	}

	// The lines of a batch need what its key may do.
	h.token = h.roleKey("proj_mine", "", berth.KeyScope{Routes: []string{"POST /v1/files", "POST /v1/batches", "GET *"}})
	b := h.runBatch(h.client(), openai.BatchNewParamsEndpointV1Responses,
		`{"custom_id":"a","method":"POST","url":"/v1/responses","body":{"model":"scripted","input":"x"}}`)
	if lines := h.batchLines(h.client(), b.ErrorFileID); lines["a"].at("response", "status_code") != 403.0 ||
		lines["a"].at("response", "body", "error", "code") != "missing_scope" {
		t.Errorf("got %v", lines)
	}
}
