package kubernetes

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"

	"github.com/berth-run/berth/internal/kubetest"
)

// The document names the permissions with which the tests run.
func TestDocumentedRules(t *testing.T) {
	page, err := os.ReadFile("../../docs/kubernetes.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(page), "\nrules:\n")
	text, _, _ := strings.Cut(rest, "\n---")
	var got, want any
	if err := yaml.Unmarshal([]byte(text), &got); err != nil {
		t.Fatal(err)
	}
	raw, err := json.Marshal(kubetest.Rules)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(raw, &want); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("rules (-tests +docs):\n%s", diff)
	}
}
