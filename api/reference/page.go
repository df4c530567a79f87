package reference

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/internal/rule"
)

// Page returns the tables of the documentation, one for each section.
func Page(sections []Section) string {
	var out strings.Builder
	for _, section := range sections {
		fmt.Fprintf(&out, "\n## %s\n\n| route | |\n|---|---|\n", section.Name)
		for _, r := range section.Routes {
			summary := r.Summary
			if r.Page != "" {
				summary = fmt.Sprintf("[%s](%s)", r.Summary, r.Page)
			}
			if r.own() {
				summary += " †"
			}
			fmt.Fprintf(&out, "| `%s` | %s |\n", strings.TrimSuffix(r.Pattern, "{$}"), summary)
		}
	}
	return out.String()
}

// required returns the fields without which a rule refuses a body. It is an error if the rule
// does not know one of the fields.
func required(check rule.Rule, properties object) ([]string, error) {
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		if e, ok := check("", object{name: struct{}{}}).(*berth.Error); ok && e.Wire == "unknown_parameter" {
			return nil, fmt.Errorf("its type has the field %s, which its rule refuses", name)
		}
	}
	var names []string
	for probe := (object{}); ; {
		e, ok := check("", probe).(*berth.Error)
		if !ok || e.Wire != "missing_required_parameter" || probe[e.Param] != nil {
			slices.Sort(names)
			return names, nil
		}
		names, probe[e.Param] = append(names, e.Param), struct{}{}
	}
}
