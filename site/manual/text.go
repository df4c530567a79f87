package manual

import (
	"encoding/json"
	"html"
	"html/template"
	"strings"
)

// oneOf returns the text of the possible values of a field.
func oneOf(values []any) string {
	var texts []string
	for _, v := range values {
		text, err := json.Marshal(v)
		if err == nil {
			texts = append(texts, string(text))
		}
	}
	return strings.Join(texts, " or ")
}

// Breakable returns the text of code as HTML that a line may break after marks such as / and =, and not inside a word.
func Breakable(text string) template.HTML {
	const marks = "/.=:,(|&?"
	var b strings.Builder
	after := false
	for _, r := range text {
		mark := strings.ContainsRune(marks, r)
		if after && !mark {
			b.WriteString("<wbr>")
		}
		b.WriteString(html.EscapeString(string(r)))
		after = mark
	}
	return template.HTML(b.String())
}
