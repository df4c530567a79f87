package e2e

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// mcpSession connects the official SDK's client to Berth's MCP server. query is that of the URL.
func mcpSession(t *testing.T, s *server, query, version string, opts *sdk.ClientOptions) *sdk.ClientSession {
	t.Helper()
	c, err := sdk.NewClient(&sdk.Implementation{Name: "e2e", Version: "1"}, opts).Connect(t.Context(),
		&sdk.StreamableClientTransport{Endpoint: s.url + "/mcp" + query, HTTPClient: &http.Client{}},
		&sdk.ClientSessionOptions{ProtocolVersion: version})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// mcpResult is what tests read of the output of a tool for commands.
type mcpResult struct {
	CommandID string `json:"command_id"`
	Container string
	Status    string
	Stdout    string
	ExitCode  *int `json:"exit_code"`

	images int
	text   string
}

// mcpTool calls a tool.
func mcpTool(t *testing.T, c *sdk.ClientSession, name string, arguments map[string]any) (out mcpResult) {
	t.Helper()
	r, err := c.CallTool(t.Context(), &sdk.CallToolParams{Name: name, Arguments: arguments})
	if err != nil {
		t.Fatalf("%s %v: %v", name, arguments, err)
	}
	for _, content := range r.Content {
		switch content := content.(type) {
		case *sdk.TextContent:
			out.text += content.Text
		case *sdk.ImageContent:
			out.images++
		}
	}
	if r.IsError {
		t.Fatalf("%s %v: %s", name, arguments, out.text)
	}
	raw, err := json.Marshal(r.StructuredContent)
	if err == nil {
		err = json.Unmarshal(raw, &out)
	}
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestMCPServer uses containers of the driver through MCP, and kills the server: no command is lost.
func TestMCPServer(t *testing.T) {
	s := newServer(t)
	for _, version := range []string{"2025-11-25", "2026-07-28"} {
		c := mcpSession(t, s, "?container=box", version, nil)
		if out := mcpTool(t, c, "run", map[string]any{"command": "id -un; pwd"}); !strings.HasSuffix(out.Stdout,
			"\n/mnt/data\n") {
			t.Errorf("run: %q", out.Stdout)
		}
		mcpTool(t, c, "write", map[string]any{"path": "a.py", "content": "print(1)\n"})
		mcpTool(t, c, "edit", map[string]any{"path": "a.py", "old_text": "1", "new_text": "6 * 7"})
		if out := mcpTool(t, c, "run", map[string]any{"command": "python3 a.py"}); out.Stdout != "42\n" {
			t.Errorf("run of the edited file: %q", out.text)
		}
		if out := mcpTool(t, c, "search", map[string]any{"pattern": `6 \* 7`}); !strings.Contains(out.text,
			"/mnt/data/a.py:1:print(6 * 7)") {
			t.Errorf("search: %q", out.text)
		}
		const plot = "import base64\nfrom IPython.display import Image, display\n" +
			"display(Image(base64.b64decode('iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==')))\n" +
			"6 * 7"
		out := mcpTool(t, c, "code", map[string]any{"code": plot})
		if !strings.Contains(out.text, "42") || out.images != 1 {
			t.Errorf("code: %q, %d images", out.text, out.images)
		}
	}
	c := mcpSession(t, s, "?container=box", "2025-11-25", nil)
	running := mcpTool(t, c, "run", map[string]any{"background": true,
		"command": "echo before; until [ -e /mnt/data/go ]; do sleep 0.1; done; echo after; exit 7"})
	cell := mcpTool(t, c, "code", map[string]any{"wait_seconds": 1,
		"code": "import os, time\nwhile not os.path.exists('/mnt/data/go'): time.sleep(.1)\n'after'"})
	s.kill()
	s.start()
	c = mcpSession(t, s, "?container=box", "2025-11-25", nil)
	if out := mcpTool(t, c, "wait", map[string]any{"command_id": running.CommandID, "wait_seconds": 1}); out.Status !=
		"running" || out.Stdout != "before\n" {
		t.Errorf("after the restart: %+v", out)
	}
	mcpTool(t, c, "write", map[string]any{"path": "go", "content": ""})
	if out := mcpTool(t, c, "wait", map[string]any{"command_id": running.CommandID}); out.ExitCode == nil ||
		*out.ExitCode != 7 || out.Stdout != "before\nafter\n" {
		t.Errorf("the command that ran when the server was killed: %+v", out)
	}
	if out := mcpTool(t, c, "wait", map[string]any{"command_id": cell.CommandID}); out.Status != "exited" ||
		!strings.Contains(out.Stdout, "after") {
		t.Errorf("the code that ran when the server was killed: %+v", out)
	}
	s.waitUntil("the log has the end of the command", func() bool {
		resp, err := http.Get(s.url + "/v1/containers/" + running.Container + "/logs")
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		var logs struct {
			Data []struct {
				Command string
				Outcome *struct {
					ExitCode *int `json:"exit_code"`
				}
			}
		}
		if json.NewDecoder(resp.Body).Decode(&logs) != nil {
			return false
		}
		for _, l := range logs.Data {
			if strings.Contains(l.Command, "echo before") {
				return l.Outcome != nil && l.Outcome.ExitCode != nil && *l.Outcome.ExitCode == 7
			}
		}
		return false
	})
}

// TestMCPStdio connects a client to "berth mcp", which passes its messages on to the server.
func TestMCPStdio(t *testing.T) {
	s := newServer(t)
	for _, version := range []string{"2025-11-25", "2026-07-28"} {
		seen := make(chan string, 100)
		cmd := exec.CommandContext(t.Context(), binary(t), "mcp", "--container", "box")
		cmd.Env = append(os.Environ(), "BERTH_URL="+s.url)
		cmd.Stderr = t.Output()
		c, err := sdk.NewClient(&sdk.Implementation{Name: "e2e", Version: "1"}, &sdk.ClientOptions{
			ProgressNotificationHandler: func(_ context.Context, r *sdk.ProgressNotificationClientRequest) {
				seen <- r.Params.Message
			},
			ResourceUpdatedHandler: func(_ context.Context, r *sdk.ResourceUpdatedNotificationRequest) {
				seen <- r.Params.URI
			}}).Connect(t.Context(), &sdk.CommandTransport{Command: cmd},
			&sdk.ClientSessionOptions{ProtocolVersion: version})
		if err != nil {
			t.Fatal(err)
		}
		params := &sdk.CallToolParams{Name: "run", Arguments: map[string]any{"command": "echo ahoy; touch a"}}
		params.SetProgressToken("p")
		r, err := c.CallTool(t.Context(), params)
		if err != nil || r.IsError {
			t.Fatalf("%s: %+v, %v", version, r, err)
		}
		if got := receive(t, seen, "progress arrives"); got != "ahoy\n" {
			t.Errorf("%s: progress %q", version, got)
		}
		uri := "berth://" + mcpTool(t, c, "run", map[string]any{"command": "true"}).Container + "/mnt/data/a"
		if err := c.Subscribe(t.Context(), &sdk.SubscribeParams{URI: uri}); err != nil {
			t.Errorf("%s: %v", version, err)
		}
		mcpTool(t, c, "write", map[string]any{"path": "a", "content": version})
		if got := receive(t, seen, "the change of a file arrives"); got != uri {
			t.Errorf("%s: %s has changed", version, got)
		}
		if err := c.Close(); err != nil {
			t.Errorf("%s: close: %v", version, err)
		}
	}
}
