package e2e

import (
	"testing"
)

// TestShellDefault lets the client run the commands of shells without an environment, by the server's configuration,
// and in one project in containers again.
func TestShellDefault(t *testing.T) {
	s := newServerWith(t, "shell: {default_environment: local}\n")
	items := func() (types []string) {
		var answer struct{ Output []struct{ Type string } }
		if got := s.e2bCall("POST", "/v1/responses", map[string]any{"model": "scripted", "input": fence("echo hi"),
			"tools": []any{map[string]any{"type": "shell"}}}, &answer); got != 200 {
			t.Fatalf("got %d", got)
		}
		for _, item := range answer.Output {
			types = append(types, item.Type)
		}
		return types
	}
	if got := items(); len(got) != 1 || got[0] != "shell_call" {
		t.Errorf("with the configuration: got %v", got)
	}
	if out, errs, err := s.berth("project", "limit", "proj_default", "--shell-environment", "container"); err != nil ||
		out != "shell-environment=container\n" {
		t.Fatalf("%v: %s%s", err, out, errs)
	}
	s.waitUntil("the project's setting holds", func() bool {
		got := items()
		return len(got) == 3 && got[1] == "shell_call_output"
	})
}
