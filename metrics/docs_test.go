package metrics

import (
	"encoding/json"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"go.yaml.in/yaml/v3"
)

// families returns the metric families that Berth exports, with their labels.
func families(t *testing.T) map[string]string {
	t.Helper()
	descs := make(chan *prometheus.Desc, 1000)
	newMetrics(nil).registry.Describe(descs)
	close(descs)
	found := map[string]string{}
	pattern := regexp.MustCompile(`fqName: "(berth_[a-z_]+)".*variableLabels: \{([a-z_,]*)\}`)
	for d := range descs {
		if m := pattern.FindStringSubmatch(d.String()); m != nil {
			found[m[1]] = m[2]
		}
	}
	if len(found) < 30 {
		t.Fatalf("got %d families: %v", len(found), found)
	}
	return found
}

// docs/observe.md lists every family with its labels, and no other.
func TestDocsListEveryFamily(t *testing.T) {
	text, err := os.ReadFile("../docs/observe.md")
	if err != nil {
		t.Fatal(err)
	}
	listed := map[string]string{}
	for _, m := range regexp.MustCompile("(?m)^\\| `(berth_[a-z_]+)` \\| [a-z]+ \\| ([^|]*) \\|").FindAllStringSubmatch(
		string(text), -1) {
		labels := strings.ReplaceAll(strings.TrimSpace(m[2]), ", ", ",")
		if labels == "–" {
			labels = ""
		}
		listed[m[1]] = labels
	}
	for name, labels := range families(t) {
		if got, ok := listed[name]; !ok || got != labels {
			t.Errorf("%s: docs/observe.md has the labels %q (listed: %v), want %q", name, got, ok, labels)
		}
		delete(listed, name)
	}
	if len(listed) > 0 {
		t.Errorf("docs/observe.md lists unknown families: %v", slices.Sorted(maps.Keys(listed)))
	}
}

// used returns the families that PromQL expressions query.
func used(expressions ...string) []string {
	var names []string
	for _, e := range expressions {
		for _, name := range regexp.MustCompile(`\bberth_[a-z_]+`).FindAllString(e, -1) {
			for _, suffix := range []string{"_bucket", "_count", "_sum"} {
				name = strings.TrimSuffix(name, suffix)
			}
			names = append(names, name)
		}
	}
	return names
}

// The dashboard and the rules query only existing families.
func TestDashboardAndRules(t *testing.T) {
	known := families(t)
	dashboard, err := os.ReadFile("../docs/observe/dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	var board struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(dashboard, &board); err != nil {
		t.Fatal(err)
	}
	queried := 0
	for _, p := range board.Panels {
		for _, target := range p.Targets {
			for _, name := range used(target.Expr) {
				queried++
				if _, ok := known[name]; !ok {
					t.Errorf("dashboard: %s queries unknown family %s", p.Title, name)
				}
			}
		}
	}
	rules, err := os.ReadFile("../docs/observe/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var groups struct {
		Groups []struct {
			Rules []struct{ Alert, Expr string }
		}
	}
	if err := yaml.Unmarshal(rules, &groups); err != nil {
		t.Fatal(err)
	}
	for _, g := range groups.Groups {
		for _, r := range g.Rules {
			names := used(r.Expr)
			queried += len(names)
			if r.Alert == "" || len(names) == 0 {
				t.Errorf("alerts: a rule %q queries nothing: %q", r.Alert, r.Expr)
			}
			for _, name := range names {
				if _, ok := known[name]; !ok {
					t.Errorf("alerts: %s queries unknown family %s", r.Alert, name)
				}
			}
		}
	}
	if queried < 20 {
		t.Errorf("got %d queries in both files, want at least 20", queried)
	}
}
