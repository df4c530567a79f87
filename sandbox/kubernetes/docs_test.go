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

// The document and the Helm chart have the permissions with which the tests run.
func TestDocumentedRules(t *testing.T) {
	for _, file := range []string{"../../docs/kubernetes.md", chart + "/templates/rbac.yaml"} {
		checkRules(t, file)
	}
}

func checkRules(t *testing.T, file string) {
	page, err := os.ReadFile(file)
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
		t.Errorf("%s: rules (-tests +file):\n%s", file, diff)
	}
}
