package api_test

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api"
	"github.com/berth-run/berth/container/session"
	"github.com/berth-run/berth/store"
)

// mcpPost sends a message of the protocol with headers in pairs.
func (h *house) mcpPost(ctx context.Context, method, query, body string, headers ...string) *http.Response {
	h.t.Helper()
	req, err := http.NewRequestWithContext(ctx, method, h.url+"/mcp"+query, strings.NewReader(body))
	check(h.t, err)
	if method == "POST" {
		req.Header.Set("Content-Type", "application/json")
	}
	req.Header.Set("Accept", "application/json, text/event-stream")
	if h.token != "" {
		req.Header.Set("Authorization", "Bearer "+h.token)
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	check(h.t, err)
	h.t.Cleanup(func() { resp.Body.Close() })
	return resp
}

const mcpInitialize = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25",` +
	`"capabilities":{},"clientInfo":{"name":"raw","version":"1"}}}`

// mcpOpen opens a session without the SDK, and returns its headers.
func (h *house) mcpOpen(query string) []string {
	h.t.Helper()
	resp := h.mcpPost(h.t.Context(), "POST", query, mcpInitialize)
	raw, err := io.ReadAll(resp.Body)
	check(h.t, err)
	id := resp.Header.Get("Mcp-Session-Id")
	if resp.StatusCode != 200 || id == "" {
		h.t.Fatalf("initialize: %s %v %s", resp.Status, resp.Header, raw)
	}
	headers := []string{"Mcp-Session-Id", id, "Mcp-Protocol-Version", "2025-11-25"}
	resp = h.mcpPost(h.t.Context(), "POST", query, `{"jsonrpc":"2.0","method":"notifications/initialized"}`, headers...)
	if resp.StatusCode != http.StatusAccepted {
		h.t.Fatalf("initialized: %s", resp.Status)
	}
	return headers
}

// mcpFailure checks an answer that is an error in the protocol's form.
func (h *house) mcpFailure(resp *http.Response, status int) {
	h.t.Helper()
	raw, err := io.ReadAll(resp.Body)
	check(h.t, err)
	var f struct {
		Version string `json:"jsonrpc"`
		Error   struct {
			Code    int
			Message string
		}
	}
	if err := json.Unmarshal(raw, &f); err != nil || resp.StatusCode != status || f.Version != "2.0" ||
		f.Error.Code >= 0 || f.Error.Message == "" {
		h.t.Errorf("got %s %s, want an error of JSON-RPC with status %d", resp.Status, raw, status)
	}
}

// running returns the containers of a project that run.
func (h *house) running(p berth.ProjectID) []*berth.Container {
	h.t.Helper()
	all, _, err := h.opts.Containers.List(h.t.Context(), p, "", store.Page{Limit: 100})
	check(h.t, err)
	var running []*berth.Container
	for _, c := range all {
		if c.Status == berth.ContainerRunning {
			running = append(running, c)
		}
	}
	return running
}

func TestMCPSession(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	h.key("sk-a", "proj_a")
	mine := h.mcpOpen("")
	h.key("sk-b", "proj_b")
	const ping = `{"jsonrpc":"2.0","id":2,"method":"ping"}`
	for _, method := range []string{"POST", "GET", "DELETE"} {
		h.mcpFailure(h.mcpPost(t.Context(), method, "", ping, mine...), 404)
		h.mcpFailure(h.mcpPost(t.Context(), method, "", ping, "Mcp-Session-Id", "unknown"), 404)
		h.mcpFailure(h.mcpPost(t.Context(), method, "", mcpInitialize, "Origin", "https://evil.example"), 403)
		h.mcpFailure(h.mcpPost(t.Context(), method, "", mcpInitialize, "Authorization", "Bearer sk-no"), 401)
		h.mcpFailure(h.mcpPost(t.Context(), method, "?made_up=1", ping), 400)
	}
	h.mcpFailure(h.mcpPost(t.Context(), "GET", "", ""), 405)
	h.mcpFailure(h.mcpPost(t.Context(), "DELETE", "", ""), 405)
	h.mcpFailure(h.mcpPost(t.Context(), "POST", "", "{"), 400)
	h.mcpFailure(h.mcpPost(t.Context(), "POST", "", strings.Repeat("[", 100_000)), 400)
	h.mcpFailure(h.mcpPost(t.Context(), "POST", "", ping, "Content-Type", "text/plain"), 415)
	h.mcpFailure(h.mcpPost(t.Context(), "POST", "?container="+strings.Repeat("x", 300), mcpInitialize), 400)
	h.mcpFailure(h.mcpPost(t.Context(), "POST", "?memory_limit=1t", mcpInitialize), 400)
	giant := `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"write","arguments":{"content":"` +
		strings.Repeat("x", 17<<20) + `"}}}`
	h.mcpFailure(h.mcpPost(t.Context(), "POST", "", giant), 413)
	resp := h.mcpPost(t.Context(), "POST", "", mcpInitialize, "Origin", "http://"+strings.TrimPrefix(h.url, "http://"))
	if resp.StatusCode != 200 {
		t.Errorf("a page of the server itself: %s", resp.Status)
	}
}

// A container without a name ends with its session, and a named one stays for the next.
func TestMCPContainers(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	h.key("sk-a", "proj_a")
	first := h.mcpClient("", "2025-11-25", nil)
	if n := len(h.running("proj_a")); n != 0 {
		t.Fatalf("%d containers before the first call", n)
	}
	h.mcpCall(first, "run", map[string]any{"command": "echo 1 > kept"}, nil)
	h.mcpCall(first, "run", map[string]any{"command": "echo 2 > kept", "container": "box"}, nil)
	second := h.mcpClient("?container=box", "2025-11-25", nil)
	if got := h.mcpCall(second, "read", map[string]any{"path": "kept"}, nil); got != "2\n" {
		t.Errorf("the named container has %q", got)
	}
	third := h.mcpClient("?container=box", "2026-07-28", nil)
	if got := h.mcpCall(third, "read", map[string]any{"path": "kept"}, nil); got != "2\n" {
		t.Errorf("without a session, the named container has %q", got)
	}
	if n := len(h.running("proj_a")); n != 2 {
		t.Errorf("%d containers", n)
	}
	check(t, first.Close())
	check(t, second.Close())
	h.opts.MCP.Sessions.Close() // waits for the containers of ended sessions
	if left := h.running("proj_a"); len(left) != 1 || left[0].Name != "box" {
		t.Errorf("left are %+v", left)
	}
	if n := h.opts.MCP.Sessions.Len("proj_a"); n != 0 {
		t.Errorf("%d sessions are left", n)
	}
	other := h.mcpClient("", "2026-07-28", nil) // has the container of its key
	h.mcpCall(other, "write", map[string]any{"path": "a", "content": "shared"}, nil)
	again := h.mcpClient("", "2026-07-28", nil)
	if got := h.mcpCall(again, "read", map[string]any{"path": "a"}, nil); got != "shared" {
		t.Errorf("the container of the key has %q", got)
	}
}

// Sessions are bounded for each project.
func TestMCPTooManySessions(t *testing.T) {
	t.Parallel()
	h := newHouse(t, func(o *api.Options) {
		o.MCP.Sessions = session.New(session.Options{Containers: o.Containers, Log: o.Exchange.Log, PerProject: 20,
			Total: 30})
	})
	h.key("sk-a", "proj_a")
	var last []string
	for range 20 {
		last = h.mcpOpen("")
	}
	for range 2000 {
		resp := h.mcpPost(t.Context(), "POST", "", mcpInitialize)
		if resp.StatusCode != 429 {
			t.Fatalf("a session too many: %s", resp.Status)
		}
		resp.Body.Close()
	}
	h.key("sk-b", "proj_b")
	h.mcpOpen("") // another project has its own
	h.token = "sk-a"
	if resp := h.mcpPost(t.Context(), "DELETE", "", "", last...); resp.StatusCode != 204 {
		t.Errorf("end of a session: %s", resp.Status)
	}
	h.mcpFailure(h.mcpPost(t.Context(), "DELETE", "", "", last...), 404)
	h.mcpOpen("")
}

// A stream that breaks is resumed with the id of its last event, and the command continues.
func TestMCPResume(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	h.key("sk-a", "proj_a")
	headers := h.mcpOpen("?container=box")
	ctx, breakOff := context.WithCancel(t.Context())
	resp := h.mcpPost(ctx, "POST", "?container=box", `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"run",`+
		`"arguments":{"command":"echo early; until [ -e go ]; do sleep 0.01; done; echo late"},"_meta":{"progressToken":"p"}}}`,
		headers...)
	var last string
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() && !strings.Contains(lines.Text(), "early") {
		if id, ok := strings.CutPrefix(lines.Text(), "id: "); ok {
			last = id
		}
	}
	breakOff()
	if last == "" {
		t.Fatal("no event before the break")
	}
	other := h.mcpClient("?container=box", "2025-11-25", nil)
	h.mcpCall(other, "write", map[string]any{"path": "go", "content": ""}, nil)
	var rest strings.Builder
	for { // the server may not have seen the break yet
		resp = h.mcpPost(t.Context(), "GET", "?container=box", "", append([]string{"Last-Event-ID", last}, headers...)...)
		raw, err := io.ReadAll(resp.Body)
		check(t, err)
		if resp.StatusCode == http.StatusConflict {
			continue
		}
		rest.Write(raw)
		break
	}
	if resp.StatusCode != 200 || !strings.Contains(rest.String(), `"id":7`) || !strings.Contains(rest.String(), "late") {
		t.Errorf("resumed: %s %s", resp.Status, rest.String())
	}
}

// Output comes as progress while a command runs, and the end of the call ends the command.
func TestMCPProgress(t *testing.T) {
	t.Parallel()
	for _, version := range mcpVersions {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			h := newHouse(t, nil)
			h.key("sk-a", "proj_a")
			seen := make(chan string, 100)
			s := h.mcpClient("?container=box", version, &sdk.ClientOptions{ProgressNotificationHandler: func(_ context.Context,
				r *sdk.ProgressNotificationClientRequest) {
				seen <- r.Params.Message
			}})
			ctx, cancel := context.WithCancel(t.Context())
			params := &sdk.CallToolParams{Name: "run", Arguments: map[string]any{
				"command": "trap 'exit 1' TERM; touch alive; echo $$; sleep 1000; touch finished"}}
			params.SetProgressToken("p1")
			ended := make(chan error, 1)
			go func() {
				_, err := s.CallTool(ctx, params)
				ended <- err
			}()
			pid := strings.TrimSpace(<-seen)
			cancel()
			if err := <-ended; err == nil {
				t.Error("a cancelled call has a result")
			}
			other := h.mcpClient("?container=box", version, nil)
			text := h.mcpCall(other, "run", map[string]any{
				"command": "while kill -0 " + pid + " 2>/dev/null; do sleep 0.01; done; ls finished alive"}, nil)
			if !strings.Contains(text, "alive\n") || !strings.Contains(text, "exit code 2") {
				t.Errorf("after the cancellation: %q", text)
			}
		})
	}
}

// A command continues in the background, and its result can be had again and again.
func TestMCPBackground(t *testing.T) {
	t.Parallel()
	for _, version := range mcpVersions {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			h := newHouse(t, nil)
			h.key("sk-a", "proj_a")
			s := h.mcpClient("?container=box", version, nil)
			var out struct {
				CommandID string `json:"command_id"`
				Status    string
				Stdout    string
				ExitCode  *int `json:"exit_code"`
			}
			h.mcpCall(s, "run", map[string]any{"background": true,
				"command": "echo started; until [ -e go ]; do sleep 0.01; done; echo done; exit 7"}, &out)
			if out.CommandID == "" || out.Status != "running" {
				t.Fatalf("in the background: %+v", out)
			}
			id := out.CommandID
			if got := h.mcpCall(s, "containers", map[string]any{"action": "list"}, nil); !strings.Contains(got, id) {
				t.Errorf("the list lacks the command: %q", got)
			}
			h.mcpCall(s, "write", map[string]any{"path": "go", "content": ""}, nil)
			for range 2 { // while the server knows the command, and then by the guest's record
				out.ExitCode = nil
				h.mcpCall(s, "wait", map[string]any{"command_id": id}, &out)
				if out.Status != "exited" || out.Stdout != "started\ndone\n" || out.ExitCode == nil || *out.ExitCode != 7 {
					t.Errorf("waited for %+v", out)
				}
			}
			h.mcpCall(s, "run", map[string]any{"background": true, "command": "sleep 1000"}, &out)
			h.mcpCall(s, "stop", map[string]any{"command_id": out.CommandID}, &out)
			if out.Status != "exited" || out.ExitCode == nil || *out.ExitCode < 128 {
				t.Errorf("stopped: %+v", out)
			}
			h.mcpCall(s, "run", map[string]any{"command": "sleep 1000", "timeout_seconds": 1}, &out)
			if out.Status != "timeout" {
				t.Errorf("at the timeout: %+v", out)
			}
			for _, bad := range []string{"cmd_unknown", "sh_1", "", "../x", strings.Repeat("x", 10_000)} {
				r, text := h.mcpTry(s, "wait", map[string]any{"command_id": bad})
				if !r.IsError || !strings.Contains(text, "not found") {
					t.Errorf("wait for %.20q: %q", bad, text)
				}
			}
		})
	}
}

// Files are resources, and a subscriber learns of changes.
func TestMCPResources(t *testing.T) {
	t.Parallel()
	for _, version := range mcpVersions {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			h := newHouse(t, nil)
			h.key("sk-a", "proj_a")
			changed := make(chan string, 100)
			s := h.mcpClient("?container=box", version, &sdk.ClientOptions{ResourceUpdatedHandler: func(_ context.Context,
				r *sdk.ResourceUpdatedNotificationRequest) {
				changed <- r.Params.URI
			}})
			none, err := s.ListResources(t.Context(), nil)
			if err != nil || len(none.Resources) != 0 {
				t.Fatalf("resources before the first call: %v, %v", none, err)
			}
			h.mcpCall(s, "write", map[string]any{"path": "a b/ü.txt", "content": "one"}, nil)
			h.mcpCall(s, "write", map[string]any{"path": "x.bin", "content": "AAEC", "encoding": "base64"}, nil)
			all, err := s.ListResources(t.Context(), nil)
			if err != nil || len(all.Resources) != 2 {
				t.Fatalf("resources: %v, %v", all, err)
			}
			byName := map[string]*sdk.Resource{}
			for _, r := range all.Resources {
				byName[r.Name] = r
			}
			text, err := s.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: byName["ü.txt"].URI})
			if err != nil || text.Contents[0].Text != "one" || !strings.HasPrefix(text.Contents[0].MIMEType, "text/plain") {
				t.Errorf("read %+v: %+v, %v", byName["ü.txt"], text, err)
			}
			blob, err := s.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: byName["x.bin"].URI})
			if err != nil || string(blob.Contents[0].Blob) != "\x00\x01\x02" {
				t.Errorf("read %+v: %+v, %v", byName["x.bin"], blob, err)
			}
			uri := byName["x.bin"].URI
			check(t, s.Subscribe(t.Context(), &sdk.SubscribeParams{URI: uri}))
			h.mcpCall(s, "write", map[string]any{"path": "x.bin", "content": "longer"}, nil)
			if got := <-changed; got != uri {
				t.Errorf("%s has changed", got)
			}
			check(t, s.Unsubscribe(t.Context(), &sdk.UnsubscribeParams{URI: uri}))
			for _, bad := range []string{"berth://cntr_unknown/mnt/data/a", "file:///etc/passwd", "berth:///x", uri + "?x=1",
				strings.Replace(uri, "x.bin", "missing", 1), "berth://" + strings.Repeat("x", 10_000)} {
				if _, err := s.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: bad}); err == nil ||
					!strings.Contains(strings.ToLower(err.Error()), "not found") {
					t.Errorf("read %.40s: %v", bad, err)
				}
			}
		})
	}
}

// What a hostile model may send.
func TestMCPHostile(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	h.key("sk-a", "proj_a")
	s := h.mcpClient("", "2025-11-25", nil)
	for _, c := range []struct {
		tool      string
		arguments map[string]any
	}{
		{"run", map[string]any{"command": ""}},
		{"run", map[string]any{"command": "echo \x00"}},
		{"run", map[string]any{"command": strings.Repeat("x", 2<<20)}},
		{"run", map[string]any{"command": []string{"ls"}}},
		{"run", map[string]any{"command": "ls", "made_up": true}},
		{"run", map[string]any{"command": "ls", "container": "cntr_unknown"}},
		{"run", map[string]any{"command": "ls", "container": strings.Repeat("x", 300)}},
		{"code", map[string]any{"code": "1", "kernel": "../../x"}},
		{"code", map[string]any{"code": strings.Repeat("x", 2<<20)}},
		{"read", map[string]any{"path": "missing"}},
		{"read", map[string]any{"path": "a\nb"}},
		{"read", map[string]any{"path": strings.Repeat("a/", 3000)}},
		{"read", map[string]any{"path": "/dev/zero"}},
		{"read", map[string]any{"path": "."}},
		{"write", map[string]any{"path": "/proc/1/mem", "content": "x"}},
		{"write", map[string]any{"path": "a", "content": "%%%", "encoding": "base64"}},
		{"write", map[string]any{"path": "a", "content": "x", "encoding": "utf-16"}},
		{"edit", map[string]any{"path": "missing", "old_text": "a", "new_text": "b"}},
		{"edit", map[string]any{"path": "a", "old_text": "", "new_text": "b"}},
		{"list", map[string]any{"path": "missing"}},
		{"search", map[string]any{"pattern": "("}},
		{"search", map[string]any{"pattern": ""}},
		{"search", map[string]any{"pattern": "a\nb"}},
		{"expose", map[string]any{"port": 0}},
		{"expose", map[string]any{"port": 80, "minutes": 1 << 40}},
		{"containers", map[string]any{"action": "destroy"}},
		{"containers", map[string]any{"action": "delete"}},
		{"containers", map[string]any{"action": "delete", "container": "unknown"}},
		{"containers", map[string]any{"action": "restore", "snapshot": "snap_unknown"}},
		{"containers", map[string]any{"action": "create", "template": strings.Repeat("x", 300)}},
		{"containers", map[string]any{"action": "create", "network": "allow,,,"}},
		{"containers", map[string]any{"action": "create", "memory_limit": "1t"}},
	} {
		r, err := s.CallTool(t.Context(), &sdk.CallToolParams{Name: c.tool, Arguments: c.arguments})
		if err != nil {
			t.Errorf("%s %.100v: %v", c.tool, c.arguments, err)
			continue
		}
		text := r.Content[0].(*sdk.TextContent).Text
		if !r.IsError || text == "" || len(text) > 2000 || strings.Contains(text, "server had an error") {
			t.Errorf("%s %.100v: %v %.300q", c.tool, c.arguments, r.IsError, text)
		}
	}
	if _, err := s.CallTool(t.Context(), &sdk.CallToolParams{Name: "made_up"}); err == nil {
		t.Error("an unknown tool was called")
	}
	var out struct {
		Stdout    string
		Truncated bool
	}
	text := h.mcpCall(s, "run", map[string]any{"command": "yes | head -c 50000000; echo end"}, &out)
	if !out.Truncated || len(out.Stdout) > 70<<10 || !strings.HasSuffix(out.Stdout, "end\n") || len(text) > 71<<10 {
		t.Errorf("a flood: %v, %d bytes", out.Truncated, len(out.Stdout))
	}
	h.mcpCall(s, "run", map[string]any{"command": "yes aaaaaaaaaaaaaaaaaaa | head -c 5000000 > big"}, nil)
	if text := h.mcpCall(s, "read", map[string]any{"path": "big"}, nil); len(text) > 257<<10 {
		t.Errorf("read returned %d bytes", len(text))
	}
	if text := h.mcpCall(s, "search", map[string]any{"pattern": "a", "max_matches": 1 << 40}, nil); len(text) > 100<<10 {
		t.Errorf("search returned %d bytes", len(text))
	}
	// paths are those of the container, which nothing leads out of
	h.mcpCall(s, "write", map[string]any{"path": "x/../y", "content": "y"}, nil)
	if text := h.mcpCall(s, "read", map[string]any{"path": "/mnt/data/./x/../y"}, nil); text != "y" {
		t.Errorf("read %q", text)
	}
}

// Another project's objects are as unknown as those that do not exist.
func TestMCPIsolation(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	h.key("sk-a", "proj_a")
	a := h.mcpClient("", "2025-11-25", nil)
	var out struct {
		Container string
		CommandID string `json:"command_id"`
		Snapshot  string
	}
	h.mcpCall(a, "run", map[string]any{"command": "echo secret > f; echo secret"}, &out)
	h.mcpCall(a, "containers", map[string]any{"action": "snapshot"}, &out)
	h.key("sk-b", "proj_b")
	for _, version := range mcpVersions {
		b := h.mcpClient("", version, nil)
		h.mcpCall(b, "run", map[string]any{"command": "true"}, nil)
		ids := map[string]string{"{container}": out.Container, "{command}": out.CommandID, "{snapshot}": out.Snapshot}
		unknown := map[string]string{"{container}": "cntr_0", "{command}": "cmd_0", "{snapshot}": "snap_0"}
		for _, c := range []struct {
			tool      string
			arguments map[string]any
		}{
			{"run", map[string]any{"command": "cat f", "container": "{container}"}},
			{"code", map[string]any{"code": "1", "container": "{container}"}},
			{"wait", map[string]any{"command_id": "{command}", "container": "{container}"}},
			{"wait", map[string]any{"command_id": "{command}"}},
			{"stop", map[string]any{"command_id": "{command}", "container": "{container}"}},
			{"stop", map[string]any{"command_id": "{command}"}},
			{"read", map[string]any{"path": "f", "container": "{container}"}},
			{"write", map[string]any{"path": "f", "content": "", "container": "{container}"}},
			{"edit", map[string]any{"path": "f", "old_text": "s", "new_text": "", "container": "{container}"}},
			{"list", map[string]any{"container": "{container}"}},
			{"search", map[string]any{"pattern": "s", "container": "{container}"}},
			{"expose", map[string]any{"port": 80, "container": "{container}"}},
			{"containers", map[string]any{"action": "snapshot", "container": "{container}"}},
			{"containers", map[string]any{"action": "fork", "container": "{container}"}},
			{"containers", map[string]any{"action": "delete", "container": "{container}"}},
			{"containers", map[string]any{"action": "restore", "snapshot": "{snapshot}"}},
		} {
			ask := func(ids map[string]string) string {
				arguments := map[string]any{}
				for name, value := range c.arguments {
					if id, ok := value.(string); ok && ids[id] != "" {
						value = ids[id]
					}
					arguments[name] = value
				}
				r, text := h.mcpTry(b, c.tool, arguments)
				if !r.IsError {
					t.Errorf("%s %v of another project: %q", c.tool, arguments, text)
				}
				for name, id := range ids {
					text = strings.ReplaceAll(text, id, name)
				}
				return text
			}
			if foreign, none := ask(ids), ask(unknown); foreign != none {
				t.Errorf("%s %v: %q of another project, %q of none", c.tool, c.arguments, foreign, none)
			}
		}
		for _, uri := range []string{"berth://" + out.Container + "/mnt/data/f", "berth://cntr_0/mnt/data/f"} {
			if _, err := b.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: uri}); err == nil {
				t.Errorf("read %s of another project", uri)
			}
			if version < "2026" && b.Subscribe(t.Context(), &sdk.SubscribeParams{URI: uri}) == nil {
				t.Errorf("subscribed to %s of another project", uri)
			}
		}
		if got := h.mcpCall(b, "containers", map[string]any{"action": "list"}, nil); strings.Contains(got, out.Container) {
			t.Errorf("the list has another project's container: %q", got)
		}
	}
	if got := h.mcpCall(a, "read", map[string]any{"path": "f"}, nil); got != "secret\n" {
		t.Errorf("the file is now %q", got)
	}
}

// With approval=always, the client's user is asked before each change, and not before a read.
func TestMCPElicitation(t *testing.T) {
	t.Parallel()
	for _, version := range mcpVersions {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			h := newHouse(t, nil)
			h.key("sk-a", "proj_a")
			action, asked := "accept", make(chan string, 10)
			s := h.mcpClient("?container=box&approval=always", version, &sdk.ClientOptions{
				ElicitationHandler: func(_ context.Context, r *sdk.ElicitRequest) (*sdk.ElicitResult, error) {
					asked <- r.Params.Message
					return &sdk.ElicitResult{Action: action, Content: map[string]any{}}, nil
				}})
			h.mcpCall(s, "write", map[string]any{"path": "a", "content": "one"}, nil)
			if got := <-asked; !strings.Contains(got, "write") || !strings.Contains(got, `"one"`) {
				t.Errorf("asked %q", got)
			}
			action = "decline"
			if r, text := h.mcpTry(s, "write", map[string]any{"path": "a", "content": "two"}); !r.IsError ||
				!strings.Contains(text, "not approved") {
				t.Errorf("a declined call: %q", text)
			}
			<-asked
			if got := h.mcpCall(s, "read", map[string]any{"path": "a"}, nil); got != "one" || len(asked) != 0 {
				t.Errorf("read %q, asked %d times", got, len(asked))
			}
		})
	}
}
