package compose

import (
	"fmt"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"
)

// reference matches $$, $NAME and ${NAME…}.
var reference = regexp.MustCompile(`\$(?:\$|[A-Za-z_][A-Za-z0-9_]*|\{[^{}]*\})`)

var braced = regexp.MustCompile(`^([A-Za-z_][A-Za-z0-9_]*)(?:(:?[-?+])(.*))?$`)

// substitute replaces the variables in all values of a document.
func substitute(n *yaml.Node, variable func(string) (string, bool)) error {
	if n.Kind == yaml.ScalarNode && strings.Contains(n.Value, "$") {
		var failed error
		n.Value = reference.ReplaceAllStringFunc(n.Value, func(found string) string {
			value, err := resolve(found, variable)
			if err != nil && failed == nil {
				failed = fmt.Errorf("line %d: %w", n.Line, err)
			}
			return value
		})
		return failed
	}
	for i, child := range n.Content {
		if n.Kind == yaml.MappingNode && i%2 == 0 {
			continue // a key
		}
		if err := substitute(child, variable); err != nil {
			return err
		}
	}
	return nil
}

// resolve returns the value of a reference.
func resolve(found string, variable func(string) (string, bool)) (string, error) {
	if found == "$$" {
		return "$", nil
	}
	m := braced.FindStringSubmatch(strings.TrimSuffix(strings.TrimPrefix(found[1:], "{"), "}"))
	if m == nil {
		return "", fmt.Errorf("%s is not a variable", found)
	}
	value, set := variable(m[1])
	given := set && (value != "" || !strings.HasPrefix(m[2], ":"))
	switch strings.TrimPrefix(m[2], ":") {
	case "-":
		if !given {
			return m[3], nil
		}
	case "+":
		if given {
			return m[3], nil
		}
		return "", nil
	case "?":
		if !given {
			return "", fmt.Errorf("the variable %s is not set: %s", m[1], m[3])
		}
	case "":
		if !set {
			return "", fmt.Errorf("the variable %s is not set", m[1])
		}
	}
	return value, nil
}
