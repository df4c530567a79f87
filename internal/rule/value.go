package rule

import (
	"encoding/base64"
	"encoding/json"
	"io"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Text allows strings of least to most characters. A most of 0 means any length.
func Text(least, most int) Rule {
	return func(at string, v any) error {
		s, ok := v.(string)
		if !ok {
			return WrongType(at, "a string", v)
		}
		n := utf8.RuneCountInString(s)
		if most > 0 && n > most {
			return Errorf("string_above_max_length", at,
				"Invalid '%s': string too long. Expected a string with maximum length %d, but got a string with length %d instead.",
				at, most, n)
		}
		if n < least {
			return Errorf("empty_string", at,
				"Invalid '%s': empty string. Expected a string with minimum length %d, but got an empty string instead.",
				at, least)
		}
		return nil
	}
}

// AnyText allows every string.
var AnyText = Text(0, 0)

// Matching allows strings of 1 to most characters that match the expression.
func Matching(expression string, most int) Rule {
	re, length := regexp.MustCompile(expression), Text(1, most)
	return func(at string, v any) error {
		if err := length(at, v); err != nil {
			return err
		}
		if !re.MatchString(v.(string)) {
			return Errorf("invalid_value", at,
				"Invalid '%s': string does not match pattern. Expected a string that matches the pattern '%s'.", at,
				expression)
		}
		return nil
	}
}

// OneOf allows these strings.
func OneOf(values ...string) Rule {
	return func(at string, v any) error {
		s, ok := v.(string)
		if !ok {
			return WrongType(at, "a string", v)
		}
		if !slices.Contains(values, s) {
			return WrongValue(at, s, values)
		}
		return nil
	}
}

// Boolean allows true and false.
func Boolean(at string, v any) error {
	if _, ok := v.(bool); !ok {
		return WrongType(at, "a boolean", v)
	}
	return nil
}

// Integer allows whole numbers from least to most.
func Integer(least, most int64) Rule {
	return func(at string, v any) error {
		number, ok := v.(json.Number)
		if !ok {
			return WrongType(at, "an integer", v)
		}
		n, err := strconv.ParseInt(number.String(), 10, 64)
		if err != nil {
			if strings.ContainsAny(number.String(), ".eE") {
				return WrongType(at, "an integer", v)
			}
			return Errorf("invalid_value", at, "Invalid '%s': the integer %s is out of range.", at,
				Clip(number.String()))
		}
		return InRange(at, "integer", number.String(), n, least, most)
	}
}

// Decimal allows numbers from least to most.
func Decimal(least, most float64) Rule {
	return func(at string, v any) error {
		number, ok := v.(json.Number)
		if !ok {
			return WrongType(at, "a decimal", v)
		}
		f, err := number.Float64()
		if err != nil {
			return Errorf("invalid_value", at, "Invalid '%s': the number %s is out of range.", at,
				Clip(number.String()))
		}
		return InRange(at, "decimal", number.String(), f, least, most)
	}
}

// InRange refuses a number outside of least to most. The error names its type, kind, and the text that was sent.
func InRange[N int64 | float64](at, kind, sent string, n, least, most N) error {
	if n < least {
		return Errorf(kind+"_below_min_value", at,
			"Invalid '%s': %s below minimum value. Expected a value >= %v, but got %s instead.", at, kind, least,
			Clip(sent))
	}
	if n > most {
		return Errorf(kind+"_above_max_value", at,
			"Invalid '%s': %s above maximum value. Expected a value <= %v, but got %s instead.", at, kind, most,
			Clip(sent))
	}
	return nil
}

// AnyObject allows every object.
func AnyObject(at string, v any) error {
	if _, ok := v.(map[string]any); !ok {
		return WrongType(at, "an object", v)
	}
	return nil
}

// Anything allows every value.
func Anything(string, any) error { return nil }

// Metadata allows an object of up to 16 pairs of strings.
func Metadata(at string, v any) error {
	const pairs, keyLength = 16, 64
	obj, ok := v.(map[string]any)
	if !ok {
		return WrongType(at, "an object", v)
	}
	if len(obj) > pairs {
		return Errorf("object_above_max_properties", at,
			"Invalid '%s': too many properties. Expected an object with at most %d properties, but got an object with %d properties instead.",
			at, pairs, len(obj))
	}
	value := Text(0, 512)
	for _, key := range slices.Sorted(maps.Keys(obj)) {
		if n := utf8.RuneCountInString(key); n > keyLength {
			return Errorf("string_above_max_length", at,
				"Invalid '%s' key '%s': string too long. Expected a string with maximum length %d, but got a string with length %d instead.",
				at, Clip(key), keyLength, n)
		}
		if err := value(Join(at, key), obj[key]); err != nil {
			return err
		}
	}
	return nil
}

// ImageURL allows http, https and data URLs. A data URL in base64 must be decodable;
// its padding may be missing.
func ImageURL(at string, v any) error {
	s, ok := v.(string)
	if !ok {
		return WrongType(at, "a string", v)
	}
	head, data, hasData := strings.Cut(s, ",")
	if !hasData || !strings.HasPrefix(head, "data:") {
		return WebURL(at, v)
	}
	if !strings.HasSuffix(strings.ToLower(head), ";base64") {
		return nil
	}
	if !isBase64(data) {
		return Errorf("invalid_value", at,
			"Invalid '%s'. Expected a base64-encoded data URL with an image MIME type (e.g. 'data:image/png;base64,aW1nIGJ5dGVzIGhlcmU='), but got an invalid base64-encoded value.", at)
	}
	return nil
}

// Base64 allows texts in standard base64 that are not empty; their padding may be missing.
func Base64(at string, v any) error {
	s, ok := v.(string)
	if !ok {
		return WrongType(at, "a string", v)
	}
	if !isBase64(s) {
		return Errorf("invalid_value", at, "Invalid '%s': expected a text in base64, but got an invalid one.", at)
	}
	return nil
}

// isBase64 reports whether a text is not empty and can be decoded. It decodes into nothing: texts may be large.
func isBase64(s string) bool {
	s = strings.TrimRight(s, "=\r\n")
	n, err := io.Copy(io.Discard, base64.NewDecoder(base64.RawStdEncoding, strings.NewReader(s)))
	return err == nil && n > 0
}

// WebURL allows http and https URLs.
func WebURL(at string, v any) error {
	s, ok := v.(string)
	if !ok {
		return WrongType(at, "a string", v)
	}
	if len(s) <= maxURL {
		if u, err := url.Parse(s); err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Hostname() != "" {
			return nil
		}
	}
	return Errorf("invalid_value", at,
		"Invalid '%s'. Expected a valid URL, but got a value with an invalid format.", at)
}

// maxURL is the maximum length of web URLs in bytes.
const maxURL = 16 << 10
