package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestClientsOpencode has opencode work in a folder.
func TestClientsOpencode(t *testing.T) {
	skipClient(t)
	const program = "opencode/node_modules/opencode-linux-x64/bin/opencode"
	skipWithout(t, program)
	_, env := newUpstream(t)
	s := newServer(t, env...)
	configured := func(t *testing.T, provider string) (dir string) {
		dir = t.TempDir()
		config, err := json.Marshal(map[string]any{
			"autoupdate": false, "share": "disabled", "small_model": "berth/reciter",
			"provider": map[string]any{"berth": map[string]any{"npm": provider,
				"options": map[string]any{"baseURL": s.url + "/v1", "apiKey": "none"},
				"models":  map[string]any{"reciter": map[string]any{"tool_call": true}}}},
			"mcp": map[string]any{"berth": map[string]any{"type": "remote", "url": s.url + "/mcp?container=opencode"}},
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "opencode.json"), config, 0o600); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	run := func(t *testing.T, provider string) {
		runCLI(t, configured(t, provider), sum("bash"), program, "run", "--model", "berth/reciter")
	}
	t.Run("two commands over Responses", func(t *testing.T) { run(t, "@ai-sdk/openai") })
	t.Run("two commands over Chat Completions", func(t *testing.T) { run(t, "@ai-sdk/openai-compatible") })
	t.Run("Berth's MCP server", func(t *testing.T) {
		out := execCLI(t, configured(t, "@ai-sdk/openai"), block("berth_run", map[string]string{"command": "echo $((6 * 7))"}),
			program, "run", "--model", "berth/reciter")
		if !strings.Contains(out, "42") {
			t.Errorf("it printed:\n%s", out)
		}
	})
}
