package e2e

import (
	"path/filepath"
	"strings"
	"testing"
)

// TestClientsQwen has Qwen Code work in a folder, by each of the protocols that it knows.
func TestClientsQwen(t *testing.T) {
	skipClient(t)
	const node, program = "anthropic/node_modules/.bin/node", "coding/node_modules/@qwen-code/qwen-code/cli-entry.js"
	skipWithout(t, node) // Qwen Code needs Node.js 22
	skipWithout(t, program)
	entry, err := filepath.Abs(program)
	if err != nil {
		t.Fatal(err)
	}
	_, env := newUpstream(t)
	s := newServer(t, env...)
	for _, name := range []string{"OPENAI", "ANTHROPIC"} {
		t.Setenv(name+"_API_KEY", "none")
		t.Setenv(name+"_MODEL", "reciter")
	}
	t.Setenv("OPENAI_BASE_URL", s.url+"/v1")
	t.Setenv("ANTHROPIC_BASE_URL", s.url)
	run := func(t *testing.T, protocol string) {
		dir := t.TempDir()
		out := execCLI(t, dir, "", node, entry, "--yolo", "--auth-type", protocol, sum("run_shell_command"))
		// Qwen Code sometimes has no output of a command that ends quickly, so the file counts.
		if got := read(t, filepath.Join(dir, "m.txt")); got != "42\n" || !strings.Contains(out, "Exit Code: 0") {
			t.Errorf("the sum is %q; it printed:\n%s", got, out)
		}
	}
	t.Run("two commands over Responses", func(t *testing.T) { run(t, "openai-responses") })
	t.Run("two commands over Chat Completions", func(t *testing.T) { run(t, "openai") })
	t.Run("two commands over Messages", func(t *testing.T) { run(t, "anthropic") })
}
