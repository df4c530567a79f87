package api_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
)

// e2bOperations are the requests of E2B's API by the call of the SDK that sends them. Those of
// E2B's own dashboard and operators are left out.
var e2bOperations = []struct{ call, request string }{
	{"Sandbox.create", "POST /v2/sandboxes"},
	{"Sandbox.create, before 2.46", "POST /sandboxes"},
	{"Sandbox.list", "GET /v2/sandboxes"},
	{"Sandbox.getInfo", "GET /sandboxes/{sandbox}"},
	{"Sandbox.kill", "DELETE /sandboxes/{sandbox}"},
	{"Sandbox.setTimeout", "POST /sandboxes/{sandbox}/timeout"},
	{"keep-alive of old SDKs", "POST /sandboxes/{sandbox}/refreshes"},
	{"Sandbox.connect", "POST /v2/sandboxes/{sandbox}/connect"},
	{"Sandbox.connect, before 2.46", "POST /sandboxes/{sandbox}/connect"},
	{"Sandbox.resume of old SDKs", "POST /sandboxes/{sandbox}/resume"},
	{"Sandbox.pause", "POST /sandboxes/{sandbox}/pause"},
	{"Sandbox.fork", "POST /sandboxes/{sandbox}/fork"},
	{"Sandbox.createSnapshot", "POST /sandboxes/{sandbox}/snapshots"},
	{"Sandbox.listSnapshots", "GET /snapshots"},
	{"Sandbox.deleteSnapshot", "DELETE /templates/{template}"},
	{"Sandbox.updateNetwork", "PUT /sandboxes/{sandbox}/network"},
	{"Sandbox.getMetrics", "GET /sandboxes/{sandbox}/metrics"},
	{"metrics of several", "GET /sandboxes/metrics"},
	{"logs", "GET /v2/sandboxes/{sandbox}/logs"},
	{"logs, before", "GET /sandboxes/{sandbox}/logs"},
	{"Template.build", "POST /v3/templates"},
	{"Template.build: copy", "GET /templates/{template}/files/" + strings.Repeat("0", 64)},
	{"Template.build: start", "POST /v2/templates/{template}/builds/{build}"},
	{"Template.getBuildStatus", "GET /templates/{template}/builds/{build}/status"},
	{"log of a build", "GET /templates/{template}/builds/{build}/logs"},
	{"Template.exists", "GET /templates/aliases/{alias}"},
	{"Template.assignTags", "POST /templates/tags"},
	{"Template.removeTags", "DELETE /templates/tags"},
	{"Template.getTags", "GET /templates/{template}/tags"},
	{"list of templates", "GET /v2/templates"},
	{"one template", "GET /templates/{template}"},
	{"visibility of a template", "PATCH /v2/templates/{template}"},
	{"Volume.create", "POST /volumes"},
	{"Volume.list", "GET /volumes"},
	{"Volume.getInfo", "GET /volumes/{volume}"},
	{"Volume.destroy", "DELETE /volumes/{volume}"},
	{"Volume.getInfo of a path, exists", "GET /volumecontent/{volume}/path"},
	{"Volume.updateMetadata", "PATCH /volumecontent/{volume}/path"},
	{"Volume.remove", "DELETE /volumecontent/{volume}/path"},
	{"Volume.list of a path", "GET /volumecontent/{volume}/dir"},
	{"Volume.makeDir", "POST /volumecontent/{volume}/dir"},
	{"Volume.readFile", "GET /volumecontent/{volume}/file"},
	{"Volume.writeFile", "PUT /volumecontent/{volume}/file"},
	{"events of all sandboxes", "GET /events/sandboxes"},
	{"events of a sandbox", "GET /events/sandboxes/{sandbox}"},
	{"register a webhook", "POST /events/webhooks"},
	{"list of webhooks", "GET /events/webhooks"},
	{"one webhook", "GET /events/webhooks/{webhook}"},
	{"change a webhook", "PATCH /events/webhooks/{webhook}"},
	{"delete a webhook", "DELETE /events/webhooks/{webhook}"},
	{"deliveries to a webhook", "GET /events/webhooks/{webhook}/deliveries"},
	{"Secret.create", "POST /secrets"},
	{"Secret.list", "GET /secrets"},
	{"Secret.getInfo, exists", "GET /secrets/{secret}"},
	{"Secret.update", "POST /secrets/{secret}"},
	{"Secret.destroy", "DELETE /secrets/{secret}"},
	{"health", "envd GET /health"},
	{"files.read, downloadUrl", "envd GET /files"},
	{"files.write, uploadUrl", "envd POST /files"},
	{"files.write of several parts", "envd POST /files/compose"},
	{"files.list", "envd POST /filesystem.Filesystem/ListDir"},
	{"files.getInfo, exists", "envd POST /filesystem.Filesystem/Stat"},
	{"files.makeDir", "envd POST /filesystem.Filesystem/MakeDir"},
	{"files.rename", "envd POST /filesystem.Filesystem/Move"},
	{"files.remove", "envd POST /filesystem.Filesystem/Remove"},
	{"files.watchDir", "envd POST /filesystem.Filesystem/WatchDir"},
	{"files.watch_dir of Python", "envd POST /filesystem.Filesystem/CreateWatcher"},
	{"commands.run, pty.create", "envd POST /process.Process/Start"},
	{"commands.connect", "envd POST /process.Process/Connect"},
	{"commands.list", "envd POST /process.Process/List"},
	{"commands.sendStdin, pty.sendInput", "envd POST /process.Process/SendInput"},
	{"commands.closeStdin", "envd POST /process.Process/CloseStdin"},
	{"commands.kill", "envd POST /process.Process/SendSignal"},
	{"pty.resize", "envd POST /process.Process/Update"},
	{"metrics of envd", "envd GET /metrics"},
	{"environment of envd", "envd GET /envs"},
	{"getHost", "any port"},
}

// TestE2BConformance compares the table in docs/e2b.md with what this server serves. With -update
// it writes the table. The behavior of each request is for the tests with E2B's clients.
func TestE2BConformance(t *testing.T) {
	t.Parallel()
	var stop context.CancelFunc
	h := newHouse(t, withSandboxes(t, &stop))
	h.key("sk-mine", "proj_mine")
	s := h.newSandbox("sk-mine", `{"templateID":"base"}`)
	var table strings.Builder
	table.WriteString("| call | request | served |\n|---|---|---|\n")
	for _, op := range e2bOperations {
		fmt.Fprintf(&table, "| %s | `%s` | %s |\n", op.call, op.request, map[bool]string{true: "yes",
			false: "no"}[h.servesE2B(s, op.request)])
	}
	const page, begin, end = "../docs/e2b.md", "<!-- conformance -->\n", "<!-- end -->"
	text, err := os.ReadFile(page)
	check(t, err)
	before, rest, ok := bytes.Cut(text, []byte(begin))
	old, after, ok2 := bytes.Cut(rest, []byte(end))
	if !ok || !ok2 {
		t.Fatalf("%s has no table between %q and %q", page, begin, end)
	}
	if string(old) == table.String() {
		return
	}
	if !*update {
		t.Fatalf("the table of %s is old; go test ./api -run TestE2BConformance -update writes it. Want:\n%s", page,
			&table)
	}
	check(t, os.WriteFile(page, []byte(string(before)+begin+table.String()+end+string(after)), 0o644))
}

// servesE2B reports whether a request reaches a handler: one for what does not exist is answered
// with the missing part, and not with that the server does not serve the request.
func (h *house) servesE2B(s e2bSandbox, request string) bool {
	if request == "any port" {
		port := echoServer(h.t)
		status, _ := h.sandboxCall("GET", "/", "", map[string]string{"E2b-Sandbox-Id": s.ID, "E2b-Sandbox-Port": port})
		return status == http.StatusOK
	}
	header := map[string]string{"X-API-Key": "sk-mine"}
	if rest, envd := strings.CutPrefix(request, "envd "); envd {
		request, header = rest, map[string]string{"E2b-Sandbox-Id": s.ID, "X-Access-Token": s.Token}
	}
	method, path, _ := strings.Cut(request, " ")
	none := strings.Repeat("0", 48)
	path = strings.NewReplacer("{sandbox}", none, "{template}", none, "{build}", none, "{alias}", "none", "{volume}",
		"none", "{secret}", "none", "{webhook}", none).Replace(path)
	status, text := h.sandboxCall(method, path, "{}", header)
	unknown := status == http.StatusNotFound && strings.Contains(text, "does not serve") ||
		status == http.StatusMethodNotAllowed || status == http.StatusNotImplemented
	return !unknown
}
