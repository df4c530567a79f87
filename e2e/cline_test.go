package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestClientsCline has Cline's command line work in a folder.
func TestClientsCline(t *testing.T) {
	skipClient(t)
	const program = "coding/node_modules/.bin/cline"
	skipWithout(t, program)
	_, env := newUpstream(t)
	s := newServer(t, env...)
	data := t.TempDir() // with a directory of its own, Cline leaves no daemon
	execCLI(t, t.TempDir(), "", program, "auth", "openai", "--apikey", "none", "--modelid", "reciter",
		"--baseurl", s.url+"/v1", "--data-dir", data)
	t.Run("two commands over Chat Completions", func(t *testing.T) {
		run := func(command string) string { return block("run_commands", map[string][]string{"commands": {command}}) }
		dir := t.TempDir()
		out := execCLI(t, dir, "", program, "--data-dir", data, "--json",
			run("echo 41 > n.txt")+run("echo $(($(cat n.txt) + 1)) > m.txt; cat m.txt"))
		if got := read(t, filepath.Join(dir, "m.txt")); got != "42\n" || !strings.Contains(out, "It came to this: ") {
			t.Errorf("the sum is %q; it printed:\n%s", got, out)
		}
	})
	t.Run("Berth's MCP server", func(t *testing.T) {
		transport := map[string]string{"type": "streamableHttp", "url": s.url + "/mcp?container=cline"}
		servers, err := json.Marshal(map[string]any{"mcpServers": map[string]any{
			"berth": map[string]any{"transport": transport}}})
		if err != nil {
			t.Fatal(err)
		}
		settings := filepath.Join(data, "settings", "cline_mcp_settings.json")
		if err := os.MkdirAll(filepath.Dir(settings), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(settings, servers, 0o600); err != nil {
			t.Fatal(err)
		}
		out := execCLI(t, t.TempDir(), "", program, "--data-dir", data, "--json",
			block("berth__run", map[string]string{"command": "echo $((1001 * 123))"}))
		if !strings.Contains(out, "123123") {
			t.Errorf("it printed:\n%s", out)
		}
	})
}
