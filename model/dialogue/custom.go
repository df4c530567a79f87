package dialogue

import (
	"encoding/json"
	"strings"
)

// The engine sees a custom tool as a function whose only argument, "input", is the text.
// CustomStart, the text after Escape, and CustomEnd are the arguments of a call.
const (
	CustomStart = `{"input":"`
	CustomEnd   = `"}`
)

// CustomInput returns the text of the arguments of a custom tool's call.
func CustomInput(arguments string) string {
	var a struct {
		Input *string `json:"input"`
	}
	if json.Unmarshal([]byte(arguments), &a) != nil || a.Input == nil {
		return arguments
	}
	return *a.Input
}

// Escape returns a text as the inside of a JSON string.
func Escape(text string) string {
	var quoted strings.Builder
	enc := json.NewEncoder(&quoted)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(text); err != nil {
		panic(err) // a string, written to memory
	}
	return strings.TrimSuffix(quoted.String()[1:], "\"\n")
}
