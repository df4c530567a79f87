package manual

import (
	"encoding/json"
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
