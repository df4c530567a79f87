package shell

import (
	"strings"
	"testing"

	"github.com/berth-run/berth"
)

// The description names the container's programs.
func TestDescribe(t *testing.T) {
	full := &berth.TemplateContents{Programs: []string{"bash", "sudo", "Python", "git"},
		Python: []string{"pandas", "numpy"}}
	for _, tc := range []struct {
		name       string
		contents   *berth.TemplateContents
		has, lacks []string
	}{
		{"known", full,
			[]string{"its own bash", "sudo works", "what is installed: Python (with pandas, numpy), git. Look",
				"another program"}, []string{"bash, "}},
		{"BusyBox", &berth.TemplateContents{Programs: []string{"BusyBox"}},
			[]string{"shell (sh)", "what is installed: BusyBox. Look"}, []string{"bash", "sudo", "Python"}},
		{"empty", &berth.TemplateContents{}, []string{"what is installed. Look", "rely on a program"},
			[]string{"bash", "sudo"}},
		{"unknown", nil, []string{"its own bash", "sudo works", "what is installed. Look"}, []string{"pandas"}},
	} {
		got := describe(description, tc.contents, nil)
		for _, s := range tc.has {
			if !strings.Contains(got, s) {
				t.Errorf("%s: no %q in\n%s", tc.name, s, got)
			}
		}
		for _, s := range tc.lacks {
			if strings.Contains(got, s) {
				t.Errorf("%s: %q in\n%s", tc.name, s, got)
			}
		}
		if strings.Contains(got, "{{") || strings.Contains(got, "\n\n\n") || strings.Contains(got, "<no value>") {
			t.Errorf("%s: the text is\n%s", tc.name, got)
		}
	}
}
