package jsonscan

import (
	"bytes"
	"encoding/json"
)

// Bounds of what Indent adds to a text.
const (
	indentGrowth    = 4
	indentAllowance = 4 << 10 // bytes
)

// Indent returns a text with a line for each value, indented by two spaces a level. Deep
// nesting makes n bytes n² ones: a text that would become several times as long stays as it
// is, and so does one that is not JSON.
func Indent(text []byte) []byte {
	if indented(text) > indentGrowth*len(text)+indentAllowance {
		return text
	}
	var b bytes.Buffer
	if json.Indent(&b, text, "", "  ") != nil {
		return text
	}
	return b.Bytes()
}

// indented returns about how long a text is with indents; never less.
func indented(text []byte) int {
	size, depth := len(text), 0
	for i := 0; i < len(text); {
		switch text[i] {
		case '"':
			i = String(text, i)
			continue
		case '[', '{':
			depth++
			size += 1 + 2*depth
		case ']', '}':
			depth = max(0, depth-1)
			size += 1 + 2*depth
		case ',':
			size += 1 + 2*depth
		case ':':
			size++
		}
		i++
	}
	return size
}
