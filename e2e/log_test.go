package e2e

import (
	"strings"
	"testing"
)

// The log tells what the container saw of a secret, which is its placeholder.
func TestLogsHoldNoSecrets(t *testing.T) {
	s := newServer(t)
	const value = "sk-value-of-the-secret"
	var c struct{ ID string }
	err := s.client().Post(t.Context(), "containers", map[string]any{"name": "x",
		"network_policy": map[string]any{"type": "allowlist", "allowed_domains": []string{"api.example.com"},
			"domain_secrets": []any{map[string]any{"domain": "api.example.com", "name": "API_TOKEN",
				"value": value}}}}, &c)
	if err != nil {
		t.Fatal(err)
	}
	if out, errs, err := s.berth("exec", "-e", "OTHER="+value, c.ID, "--", "sh", "-c",
		"echo token $API_TOKEN"); err != nil || !strings.HasPrefix(out, "token ") || len(out) < 20 {
		t.Fatalf("got %q, %v: %s", out, err, errs)
	}
	logs, errs, err := s.berth("logs", "--json", c.ID)
	if err != nil || strings.Contains(logs, value) || !strings.Contains(logs, "echo token $API_TOKEN") ||
		!strings.Contains(logs, `"stdout":{"text":"token `) {
		t.Errorf("the log: %v: %s%s", err, logs, errs)
	}
	top, errs, err := s.berth("top", "--no-trunc")
	if err != nil || !strings.Contains(top, c.ID) {
		t.Errorf("top: %v: %s%s", err, top, errs)
	}
	t.Log(top)
}
