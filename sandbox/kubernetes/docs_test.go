package kubernetes

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"

	"github.com/berth-run/berth/internal/kubetest"
)

// The document and the Helm chart have the permissions with which the tests run, with agent-sandbox.
func TestDocumentedRules(t *testing.T) {
	for _, file := range []string{"../../docs/kubernetes.md", chart + "/templates/rbac.yaml"} {
		checkRules(t, file)
	}
}

// templateLine matches lines with an action of the chart.
var templateLine = regexp.MustCompile(`(?m)^\{\{.*\n`)

func checkRules(t *testing.T, file string) {
	page, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(page), "\nrules:\n")
	text, _, _ := strings.Cut(rest, "\n---")
	text = templateLine.ReplaceAllString(text, "")
	var got, want any
	if err := yaml.Unmarshal([]byte(text), &got); err != nil {
		t.Fatal(err)
	}
	raw, err := json.Marshal(slices.Concat(kubetest.Rules, kubetest.AgentRules))
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
