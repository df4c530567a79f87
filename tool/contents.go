package tool

import (
	"fmt"
	"slices"
	"strings"

	"github.com/berth-run/berth"
)

// unlisted are the programs that Installed leaves out, because other sentences of the
// descriptions depend on them.
var unlisted = []string{"bash", "sudo"}

// Installed returns what a model learns of the programs and Python packages of a container:
// "Python (with pandas), git, jq". It returns "" if they are not known.
func Installed(c *berth.TemplateContents) string {
	if c == nil {
		return ""
	}
	var list []string
	for _, p := range c.Programs {
		switch {
		case slices.Contains(unlisted, p):
			continue
		case p == "Python" && len(c.Python) > 0:
			p = fmt.Sprintf("Python (with %s)", strings.Join(c.Python, ", "))
		}
		list = append(list, p)
	}
	return strings.Join(list, ", ")
}

// HasProgram reports whether a container has a program, or may have it because its programs
// are not known.
func HasProgram(c *berth.TemplateContents, name string) bool {
	return c == nil || slices.Contains(c.Programs, name)
}
