package build

import (
	"regexp"
	"strings"
)

// reference matches what an ENV instruction of a Dockerfile replaces: \$ and other escaped characters, $NAME,
// ${NAME}, ${NAME:-OTHERWISE} and ${NAME:+INSTEAD}.
var reference = regexp.MustCompile(`\\.|\$([A-Za-z_][A-Za-z0-9_]*)|\$\{([A-Za-z_][A-Za-z0-9_]*)(?::([-+])([^{}]*))?\}`)

// expand replaces references to variables in a value, as an ENV instruction of a Dockerfile does. All other
// text is literal: no command is executed. value returns a variable.
func expand(text string, value func(name string) (string, error)) (string, error) {
	var out strings.Builder
	last := 0
	for _, at := range reference.FindAllStringSubmatchIndex(text, -1) {
		out.WriteString(text[last:at[0]])
		last = at[1]
		part := func(group int) string {
			if at[2*group] < 0 {
				return ""
			}
			return text[at[2*group]:at[2*group+1]]
		}
		if text[at[0]] == '\\' {
			if escaped := text[at[0]+1 : at[1]]; escaped == "$" {
				out.WriteString(escaped)
			} else {
				out.WriteString(text[at[0]:at[1]])
			}
			continue
		}
		v, err := value(part(1) + part(2))
		if err != nil {
			return "", err
		}
		switch part(3) {
		case "-":
			if v == "" {
				v = part(4)
			}
		case "+":
			if v != "" {
				v = part(4)
			}
		}
		out.WriteString(v)
	}
	out.WriteString(text[last:])
	return out.String(), nil
}
