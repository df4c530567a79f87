package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// TestClientsContinue has Continue's command line work in a folder.
func TestClientsContinue(t *testing.T) {
	skipClient(t)
	const program = "continue/node_modules/.bin/cn"
	skipWithout(t, program)
	_, env := newUpstream(t)
	s := newServer(t, env...)
	t.Run("two commands over Chat Completions", func(t *testing.T) {
		dir := t.TempDir()
		config := fmt.Sprintf(
			"name: berth\nversion: 1.0.0\nschema: v1\nmodels:\n  - {name: reciter, provider: openai, model: reciter, apiBase: %q, apiKey: none, capabilities: [tool_use]}\n",
			s.url+"/v1")
		if err := os.WriteFile(filepath.Join(dir, "config.yaml"), []byte(config), 0o600); err != nil {
			t.Fatal(err)
		}
		runCLI(t, dir, "", program, "-p", "--auto", "--config", "config.yaml", sum("Bash"))
	})
}
