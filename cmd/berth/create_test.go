package main

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Flags of berth create become fields of the request. --secret allows its host and takes the value from the
// environment.
func TestCreateRequest(t *testing.T) {
	var got any
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost && r.URL.Path == "/v1/containers" {
			if err := json.NewDecoder(r.Body).Decode(&got); err != nil {
				t.Error(err)
			}
		}
		_, _ = io.WriteString(w, `{"id":"cntr_1"}`)
	}))
	defer srv.Close()
	t.Setenv("BERTH_URL", srv.URL)
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	t.Setenv("BERTH_API_KEY", "")
	t.Setenv("API_TOKEN", "the value")
	t.Setenv("STAGE", "test")
	args := []string{"create", "box", "--secret", "api.example.com=API_TOKEN", "--allow", "pypi.org", "-e", "STAGE",
		"-e", "EMPTY=", "--volume", "data:/srv:ro", "--memory", "4g", "--idle", "1d"}
	if code := Main(args); code != 0 {
		t.Fatalf("berth create exited with %d", code)
	}
	want := map[string]any{
		"name": "box", "memory_limit": "4g",
		"expires_after": map[string]any{"anchor": "last_active_at", "minutes": 1440.0},
		"network_policy": map[string]any{"type": "allowlist", "allowed_domains": []any{"pypi.org", "api.example.com"},
			"domain_secrets": []any{map[string]any{"domain": "api.example.com", "name": "API_TOKEN", "value": "the value"}}},
		"berth": map[string]any{"unique_name": true, "env": map[string]any{"STAGE": "test", "EMPTY": ""},
			"volumes": []any{map[string]any{"name": "data", "path": "/srv", "read_only": true}}},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("the request (-want +got):\n%s", d)
	}
	if err := os.Unsetenv("API_TOKEN"); err != nil {
		t.Fatal(err)
	}
	got = nil
	if code := Main(args); code != exitUsage || got != nil {
		t.Errorf("a secret without a value: exit code %d, request %v", code, got)
	}
}
