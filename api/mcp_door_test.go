package api_test

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// An mcpBearer sends a key with every request.
type mcpBearer struct{ key string }

func (b mcpBearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	if b.key != "" {
		r.Header.Set("Authorization", "Bearer "+b.key)
	}
	return http.DefaultTransport.RoundTrip(r)
}

// mcpClient connects a client of the official SDK. query is that of the URL; version is that of the protocol.
func (h *house) mcpClient(query, version string, opts *sdk.ClientOptions) *sdk.ClientSession {
	h.t.Helper()
	client := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, opts)
	s, err := client.Connect(h.t.Context(), &sdk.StreamableClientTransport{Endpoint: h.url + "/mcp" + query,
		HTTPClient: &http.Client{Transport: mcpBearer{h.token}}}, &sdk.ClientSessionOptions{ProtocolVersion: version})
	check(h.t, err)
	h.t.Cleanup(func() { s.Close() })
	return s
}

// mcpCall calls a tool, whose output it decodes into out. It returns the text for the model.
func (h *house) mcpCall(s *sdk.ClientSession, name string, arguments map[string]any, out any) string {
	h.t.Helper()
	r, text := h.mcpTry(s, name, arguments)
	if r.IsError {
		h.t.Fatalf("%s %v: %s", name, arguments, text)
	}
	if out != nil {
		raw, err := json.Marshal(r.StructuredContent)
		check(h.t, err)
		check(h.t, json.Unmarshal(raw, out))
	}
	return text
}

// mcpTry is mcpCall for a call that may fail.
func (h *house) mcpTry(s *sdk.ClientSession, name string, arguments map[string]any) (*sdk.CallToolResult, string) {
	h.t.Helper()
	r, err := s.CallTool(context.WithoutCancel(h.t.Context()), &sdk.CallToolParams{Name: name, Arguments: arguments})
	if err != nil {
		h.t.Fatalf("%s %v: %v", name, arguments, err)
	}
	var text strings.Builder
	for _, c := range r.Content {
		if c, ok := c.(*sdk.TextContent); ok {
			text.WriteString(c.Text)
		}
	}
	return r, text.String()
}

// mcpVersions are the protocol's newest version and the one before.
var mcpVersions = []string{"2026-07-28", "2025-11-25"}

func TestMCPTools(t *testing.T) {
	t.Parallel()
	for _, version := range mcpVersions {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			h := newHouse(t, nil)
			h.key("sk-mcp", "proj_a")
			s := h.mcpClient("", version, nil)
			if got := s.InitializeResult(); got == nil || got.ProtocolVersion != version || got.ServerInfo.Name != "berth" {
				t.Fatalf("initialized with %+v", got)
			}
			tools, err := s.ListTools(t.Context(), nil)
			check(t, err)
			for _, tool := range tools.Tools {
				if tool.Description == "" || tool.Annotations == nil || tool.OutputSchema == nil {
					t.Errorf("tool %s lacks a description, annotations or an output schema", tool.Name)
				}
			}
			var ran struct {
				CommandID string `json:"command_id"`
				Container string `json:"container"`
				Status    string `json:"status"`
				ExitCode  *int   `json:"exit_code"`
				Stdout    string `json:"stdout"`
				Stderr    string `json:"stderr"`
			}
			text := h.mcpCall(s, "run", map[string]any{"command": "echo out; echo err >&2; exit 3"}, &ran)
			if ran.Stdout != "out\n" || ran.Stderr != "err\n" || ran.ExitCode == nil || *ran.ExitCode != 3 ||
				ran.Status != "exited" || text != "out\nerr\n[exit code 3]" {
				t.Errorf("run: %+v, %q", ran, text)
			}
			h.mcpCall(s, "write", map[string]any{"path": "dir/a.sh", "content": "#!/bin/sh\necho one\necho two\n"}, nil)
			h.mcpCall(s, "run", map[string]any{"command": "chmod 755 dir/a.sh"}, nil)
			h.mcpCall(s, "edit", map[string]any{"path": "dir/a.sh", "old_text": "two", "new_text": "three"}, nil)
			if got := h.mcpCall(s, "run", map[string]any{"command": "./a.sh", "cwd": "dir"}, nil); got != "one\nthree\n" {
				t.Errorf("run of the edited script: %q", got)
			}
			if got := h.mcpCall(s, "read", map[string]any{"path": "dir/a.sh", "offset": 2, "limit": 1}, nil); got !=
				"echo one\n\n[The file continues. Read it with offset 3.]" {
				t.Errorf("read: %q", got)
			}
			if got := h.mcpCall(s, "list", map[string]any{"path": ".", "depth": 2}, nil); !strings.Contains(got,
				"dir/a.sh\n") {
				t.Errorf("list: %q", got)
			}
			if got := h.mcpCall(s, "search", map[string]any{"pattern": "thr+ee", "glob": "*.sh"}, nil); !strings.Contains(got,
				"dir/a.sh:3:echo three\n") {
				t.Errorf("search: %q", got)
			}
			var link struct{ URL string }
			h.mcpCall(s, "expose", map[string]any{"port": 8000}, &link)
			if !strings.HasPrefix(link.URL, h.url+"/preview/") {
				t.Errorf("expose: %+v", link)
			}
			if got := h.mcpCall(s, "containers", map[string]any{"action": "list"}, nil); !strings.Contains(got,
				ran.Container) {
				t.Errorf("containers: %q", got)
			}
		})
	}
}
