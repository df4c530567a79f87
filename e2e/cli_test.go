package e2e

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// sum has a coding agent run two commands, the second on the first's file.
func sum(tool string) string {
	first := map[string]string{"command": "echo 41 > n.txt", "description": "Write a number"}
	second := map[string]string{"command": "echo $(($(cat n.txt) + 1)) > m.txt; cat m.txt", "description": "Add one"}
	return block(tool, first) + block(tool, second)
}

// runCLI runs a coding agent in a folder of its own, where it must do the sum.
func runCLI(t *testing.T, dir, stdin, program string, args ...string) {
	t.Helper()
	out := execCLI(t, dir, stdin, program, args...)
	if got := read(t, filepath.Join(dir, "m.txt")); got != "42\n" || !strings.Contains(out, "It came to this: 42") {
		t.Errorf("the sum is %q; it printed:\n%s", got, out)
	}
}

// execCLI runs a coding agent in a folder of its own, and returns what it prints.
func execCLI(t *testing.T, dir, stdin, program string, args ...string) string {
	t.Helper()
	program, err := filepath.Abs(program)
	if err != nil {
		t.Fatal(err)
	}
	home := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir, cmd.Stdin = dir, strings.NewReader(stdin)
	cmd.Env = append(os.Environ(), "PWD="+dir, "HOME="+home, "XDG_DATA_HOME="+home, "XDG_CONFIG_HOME="+home,
		"XDG_CACHE_HOME="+home, "XDG_STATE_HOME="+home,
		// What these clients would fetch, or send to their makers.
		"OPENCODE_DISABLE_AUTOUPDATE=1", "OPENCODE_DISABLE_MODELS_FETCH=1", "OPENCODE_DISABLE_LSP_DOWNLOAD=1",
		"CONTINUE_CLI_ENABLE_TELEMETRY=0")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return string(out)
}
