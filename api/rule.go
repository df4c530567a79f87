package api

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/berth-run/berth"
)

// A rule checks the JSON value at a place in a request, such as
// "tools[0].name", and returns the first thing that is wrong with it. Rules and
// the words of their errors follow OpenAI's.
type rule func(at string, v any) error

// fields are an object's fields by name. null is a field that was left out.
type fields map[string]rule

// object allows these fields and no others.
func object(known fields, required ...string) rule {
	return func(at string, v any) error {
		obj, ok := v.(map[string]any)
		if !ok {
			return wrongType(at, "an object", v)
		}
		for _, name := range slices.Sorted(maps.Keys(obj)) {
			if known[name] == nil {
				return unknownParameter(join(at, name))
			}
		}
		return checkFields(at, obj, known, required)
	}
}

// openObject allows any other field as well, which is then kept as it came. A
// name that differs from a known one by case alone is refused, because a decoder
// that ignores case would take it for the known one.
func openObject(known fields, required ...string) rule {
	return func(at string, v any) error {
		obj, ok := v.(map[string]any)
		if !ok {
			return wrongType(at, "an object", v)
		}
		for _, name := range slices.Sorted(maps.Keys(obj)) {
			if known[name] != nil {
				continue
			}
			for k := range known {
				if strings.EqualFold(k, name) {
					return unknownParameter(join(at, name))
				}
			}
		}
		return checkFields(at, obj, known, required)
	}
}

func checkFields(at string, obj map[string]any, known fields, required []string) error {
	for _, name := range required {
		if obj[name] == nil {
			return missing(join(at, name))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(known)) {
		if v := obj[name]; v != nil {
			if err := known[name](join(at, name), v); err != nil {
				return err
			}
		}
	}
	return nil
}

// byType checks an object by the rule for its "type".
func byType(kinds map[string]rule) rule { return byField("type", kinds) }

// byField checks an object by the rule for the value of one of its fields.
func byField(name string, kinds map[string]rule) rule {
	return func(at string, v any) error {
		obj, ok := v.(map[string]any)
		if !ok {
			return wrongType(at, "an object", v)
		}
		at2 := join(at, name)
		if obj[name] == nil {
			return missing(at2)
		}
		kind, ok := obj[name].(string)
		if !ok {
			return wrongType(at2, "a string", obj[name])
		}
		if kinds[kind] == nil {
			return wrongValue(at2, kind, slices.Sorted(maps.Keys(kinds)))
		}
		return kinds[kind](at, v)
	}
}

// merged returns the rules of both tables.
func merged(a, b map[string]rule) map[string]rule {
	out := maps.Clone(a)
	maps.Copy(out, b)
	return out
}

// list checks every element; most is the greatest number of them, 0 for any.
func list(each rule, most int) rule {
	return func(at string, v any) error {
		values, ok := v.([]any)
		if !ok {
			return wrongType(at, "an array", v)
		}
		if most > 0 && len(values) > most {
			return wire("array_above_max_length", at,
				"Invalid '%s': array too long. Expected an array with maximum length %d, but got an array with length %d instead.", at, most, len(values))
		}
		for i, e := range values {
			if err := each(fmt.Sprintf("%s[%d]", at, i), e); err != nil {
				return err
			}
		}
		return nil
	}
}

// text allows strings of least to most characters; most 0 is any length.
func text(least, most int) rule {
	return func(at string, v any) error {
		s, ok := v.(string)
		if !ok {
			return wrongType(at, "a string", v)
		}
		n := utf8.RuneCountInString(s)
		if most > 0 && n > most {
			return wire("string_above_max_length", at,
				"Invalid '%s': string too long. Expected a string with maximum length %d, but got a string with length %d instead.", at, most, n)
		}
		if n < least {
			return wire("empty_string", at,
				"Invalid '%s': empty string. Expected a string with minimum length %d, but got an empty string instead.", at, least)
		}
		return nil
	}
}

var anyText = text(0, 0)

// matching allows strings of 1 to most characters that match the expression.
func matching(expression string, most int) rule {
	re, length := regexp.MustCompile(expression), text(1, most)
	return func(at string, v any) error {
		if err := length(at, v); err != nil {
			return err
		}
		if !re.MatchString(v.(string)) {
			return wire("invalid_value", at,
				"Invalid '%s': string does not match pattern. Expected a string that matches the pattern '%s'.", at, expression)
		}
		return nil
	}
}

// oneOf allows these strings.
func oneOf(values ...string) rule {
	return func(at string, v any) error {
		s, ok := v.(string)
		if !ok {
			return wrongType(at, "a string", v)
		}
		if !slices.Contains(values, s) {
			return wrongValue(at, s, values)
		}
		return nil
	}
}

func boolean(at string, v any) error {
	if _, ok := v.(bool); !ok {
		return wrongType(at, "a boolean", v)
	}
	return nil
}

// integer allows whole numbers from least to most.
func integer(least, most int64) rule {
	return func(at string, v any) error {
		number, ok := v.(json.Number)
		if !ok {
			return wrongType(at, "an integer", v)
		}
		n, err := strconv.ParseInt(number.String(), 10, 64)
		if err != nil {
			if strings.ContainsAny(number.String(), ".eE") {
				return wrongType(at, "an integer", v)
			}
			return wire("invalid_value", at, "Invalid '%s': the integer %s is out of range.", at, clip(number.String()))
		}
		return inRange(at, "integer", number.String(), n, least, most)
	}
}

// decimal allows numbers from least to most.
func decimal(least, most float64) rule {
	return func(at string, v any) error {
		number, ok := v.(json.Number)
		if !ok {
			return wrongType(at, "a decimal", v)
		}
		f, err := number.Float64()
		if err != nil {
			return wire("invalid_value", at, "Invalid '%s': the number %s is out of range.", at, clip(number.String()))
		}
		return inRange(at, "decimal", number.String(), f, least, most)
	}
}

func inRange[N int64 | float64](at, kind, sent string, n, least, most N) error {
	if n < least {
		return wire(kind+"_below_min_value", at,
			"Invalid '%s': %s below minimum value. Expected a value >= %v, but got %s instead.", at, kind, least, clip(sent))
	}
	if n > most {
		return wire(kind+"_above_max_value", at,
			"Invalid '%s': %s above maximum value. Expected a value <= %v, but got %s instead.", at, kind, most, clip(sent))
	}
	return nil
}

// anyObject allows every object.
func anyObject(at string, v any) error {
	if _, ok := v.(map[string]any); !ok {
		return wrongType(at, "an object", v)
	}
	return nil
}

func anything(string, any) error { return nil }

// unsupported refuses a field that OpenAI knows and this server does not serve.
func unsupported(at string, _ any) error {
	return wire("unsupported_parameter", at, "Unsupported parameter: '%s' is not supported by this server.", at)
}

// unsupportedUnlessEmpty allows an empty list, which asks for nothing.
func unsupportedUnlessEmpty(at string, v any) error {
	if values, ok := v.([]any); ok && len(values) == 0 {
		return nil
	}
	return unsupported(at, v)
}

// unsupportedKind refuses an object of a type that OpenAI knows and this server
// does not serve.
func unsupportedKind(what string) rule {
	return func(at string, v any) error {
		at = join(at, "type")
		kind, _ := v.(map[string]any)["type"].(string)
		return wire("unsupported_value", at, "Unsupported value: '%s' %s are not supported by this server.", kind, what)
	}
}

// join names a field of the thing at a place.
func join(at, name string) string {
	if at == "" {
		return clip(name)
	}
	return at + "." + clip(name)
}

func wire(code, at, format string, args ...any) error {
	return &berth.Error{Code: berth.CodeInvalid, Wire: code, Param: at, Message: fmt.Sprintf(format, args...)}
}

func missing(at string) error {
	return wire("missing_required_parameter", at, "Missing required parameter: '%s'.", at)
}

func unknownParameter(at string) error {
	return wire("unknown_parameter", at, "Unknown parameter: '%s'.", at)
}

func wrongType(at, want string, got any) error {
	return wire("invalid_type", at, "Invalid type for '%s': expected %s, but got %s instead.", at, want, kindOf(got))
}

func wrongValue(at, got string, values []string) error {
	quoted := make([]string, len(values))
	for i, v := range values {
		quoted[i] = "'" + v + "'"
	}
	return wire("invalid_value", at, "Invalid value: '%s'. Supported values are: %s.", clip(got), enumerate(quoted))
}

// kindOf names the type of a JSON value.
func kindOf(v any) string {
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

// enumerate writes a, b, and c.
func enumerate(words []string) string {
	switch n := len(words); n {
	case 0, 1, 2:
		return strings.Join(words, " and ")
	default:
		return strings.Join(words[:n-1], ", ") + ", and " + words[n-1]
	}
}
