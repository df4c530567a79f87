package rule

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/berth-run/berth"
)

// Join returns the place of a field within the object at the given place.
func Join(at, name string) string {
	if at == "" {
		return Clip(name)
	}
	return at + "." + Clip(name)
}

// Errorf returns the error for an invalid value at a place. code is OpenAI's "code".
func Errorf(code, at, format string, args ...any) error {
	return &berth.Error{Code: berth.CodeInvalid, Wire: code, Param: at, Message: fmt.Sprintf(format, args...)}
}

// Missing returns the error for a required field that is absent.
func Missing(at string) error {
	return Errorf("missing_required_parameter", at, "Missing required parameter: '%s'.", at)
}

// UnknownParameter returns the error for a field that nothing reads.
func UnknownParameter(at string) error {
	return Errorf("unknown_parameter", at, "Unknown parameter: '%s'.", at)
}

// WrongType returns the error for a value of another type than want.
func WrongType(at, want string, got any) error {
	return Errorf("invalid_type", at, "Invalid type for '%s': expected %s, but got %s instead.", at, want, KindOf(got))
}

// WrongValue returns the error for a string that is not one of the given values.
func WrongValue(at, got string, values []string) error {
	quoted := make([]string, len(values))
	for i, v := range values {
		quoted[i] = "'" + v + "'"
	}
	return Errorf("invalid_value", at, "Invalid value: '%s'. Supported values are: %s.", Clip(got), enumerate(quoted))
}

// KindOf names the type of a JSON value, as rules decode it.
func KindOf(v any) string {
	switch v := v.(type) {
	case nil:
		return "null"
	case bool:
		return "a boolean"
	case string:
		return "a string"
	case json.Number:
		if strings.ContainsAny(v.String(), ".eE") {
			return "a decimal number"
		}
		return "an integer"
	case []any:
		return "an array"
	}
	return "an object"
}

// enumerate joins words as in "a, b, and c".
func enumerate(words []string) string {
	switch n := len(words); n {
	case 0, 1, 2:
		return strings.Join(words, " and ")
	default:
		return strings.Join(words[:n-1], ", ") + ", and " + words[n-1]
	}
}

// Clip shortens a client's text to 100 bytes for use in an error.
func Clip(s string) string {
	const most = 100
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}
