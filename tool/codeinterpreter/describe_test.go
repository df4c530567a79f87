package codeinterpreter

import (
	"strings"
	"testing"

	"github.com/berth-run/berth"
)

// The description names the kernels and packages of the container.
func TestDescribe(t *testing.T) {
	for _, tc := range []struct {
		name       string
		contents   *berth.TemplateContents
		has, lacks []string
	}{
		{"Python", &berth.TemplateContents{Programs: []string{"Python", "R"}, Python: []string{"pandas"},
			Kernels: []string{"ir", "python3"}},
			[]string{"Runs Python code", "The kernels of this container are ir, python3:",
				"what is installed: Python (with pandas), R.", "matplotlib"}, []string{"no Jupyter", "no Python"}},
		{"another kernel", &berth.TemplateContents{Programs: []string{"Node.js"}, Kernels: []string{"javascript"}},
			[]string{"Runs code",
				"no Python kernel. Write %%kernel NAME into the first line of each call; its kernels are javascript."},
			[]string{"matplotlib", "Runs Python"}},
		{"no kernel", &berth.TemplateContents{Programs: []string{"BusyBox"}},
			[]string{"Runs code", "has no Jupyter kernel"}, []string{"matplotlib", "%%kernel"}},
		{"unknown", nil, []string{"Runs Python code", "if the container has one, write %%kernel NAME",
			"what is installed."}, []string{"no Jupyter"}},
	} {
		got := describe(tc.contents)
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
		if strings.Contains(got, "{{") || strings.Contains(got, "\n\n\n") {
			t.Errorf("%s: the text is\n%s", tc.name, got)
		}
	}
}
