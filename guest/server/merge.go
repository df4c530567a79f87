package server

import (
	"regexp"
	"strings"
)

var variable = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// A declaration is the output of a shell's export -p for one variable, with its newline.
type declaration struct{ name, text string }

// declarations splits the output of export -p. It reports false if the text is something
// else: the user owns the file and may have changed it.
func declarations(text string) ([]declaration, bool) {
	var all []declaration
	for text != "" {
		n := statement(text)
		if n < 0 {
			return nil, false
		}
		head, _, _ := strings.Cut(text[:n], "=")
		words := strings.Fields(head) // declare -x NAME, export NAME
		if len(words) < 2 || !variable.MatchString(words[len(words)-1]) {
			return nil, false
		}
		all = append(all, declaration{words[len(words)-1], text[:n]})
		text = text[n:]
	}
	return all, true
}

// statement returns the length of the text's first line, or -1 if it does not end. A
// newline in quotes does not end it.
func statement(text string) int {
	var quote byte // ', ", or $ for $'…'
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '\\' && quote != '\'':
			i++
		case quote == '$' && c == '\'', quote != 0 && quote == c && c != '$':
			quote = 0
		case quote != 0:
		case c == '$' && strings.HasPrefix(text[i+1:], "'"):
			quote = '$'
			i++
		case c == '\'' || c == '"':
			quote = c
		case c == '\n':
			return i + 1
		}
	}
	return -1
}

// merged returns the common state of shells that started in the same state and ran side by
// side. Each variable that one of them set, changed or unset gets that shell's value; if
// several did, the last one's. If a text is not the output of export -p, all texts are
// concatenated instead.
func merged(before string, left []string) string {
	was, ok := declarations(before)
	if len(left) == 1 || !ok || len(was) == 0 {
		return strings.Join(left, "")
	}
	began := textOf(was)
	now, order := textOf(was), was
	for _, text := range left {
		is, ok := declarations(text)
		if !ok {
			return strings.Join(left, "")
		}
		ended := textOf(is)
		for name := range began {
			if _, kept := ended[name]; !kept {
				delete(now, name)
			}
		}
		for _, d := range is {
			if began[d.name] != d.text {
				now[d.name] = d.text
				order = append(order, d)
			}
		}
	}
	var b strings.Builder
	for _, d := range order {
		b.WriteString(now[d.name])
		delete(now, d.name)
	}
	return b.String()
}

func textOf(all []declaration) map[string]string {
	m := make(map[string]string, len(all))
	for _, d := range all {
		m[d.name] = d.text
	}
	return m
}
