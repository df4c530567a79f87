// Package jsonscan reads JSON text without building values, so that it can be
// bounded, or cut, before it takes memory.
//
// The functions do not check syntax. Of text that is not JSON they return something,
// in linear time and without reading past its end.
package jsonscan

import (
	"bytes"
	"encoding/json"
	"errors"
	"unicode/utf8"
)

// The errors of Check.
var (
	ErrValues = errors.New("the JSON text has too many values")
	ErrDepth  = errors.New("the JSON text is nested too deep")
)

// MaxDepth is the nesting that somebody else's text may have.
const MaxDepth = 256

// MaxValues returns how many values somebody else's text of n bytes may have. It limits the memory of decoded
// values, which each take more than their text.
func MaxValues(n int) int { return min(10_000+n/8, 500_000) }

// Weight estimates the bytes of memory that it takes to decode a text and to use the result.
func Weight(bytes, values int) int64 { return 6*int64(bytes) + 300*int64(values) }

// Check returns how many values the text has, or an error if they are more than
// maxValues or nested deeper than maxDepth. The outermost value has depth 0. Names in
// objects are not values.
func Check(text []byte, maxValues, maxDepth int) (values int, err error) {
	values = 1
	depth := 0
	for i := 0; i < len(text) && values <= maxValues; {
		switch text[i] {
		case '"':
			i = String(text, i)
			continue
		case ',':
			values++
		case '[', '{':
			if depth++; depth > maxDepth+1 {
				return values, ErrDepth
			}
			if next := Space(text, i+1); next < len(text) && text[next] != ']' && text[next] != '}' {
				values++
				if depth > maxDepth {
					return values, ErrDepth
				}
			}
		case ']', '}':
			depth--
		}
		i++
	}
	if values > maxValues {
		return values, ErrValues
	}
	return values, nil
}

// Field returns the place of the value that an object has under a name, and whether
// it has one. A name that is written with escapes is not found.
func Field(object []byte, name string) (start, end int, ok bool) {
	i := Space(object, 0)
	if i == len(object) || object[i] != '{' {
		return 0, 0, false
	}
	for i = Space(object, i+1); i < len(object) && object[i] == '"'; i = Space(object, i+1) {
		after := String(object, i)
		found := after-i == len(name)+2 && string(object[i+1:after-1]) == name
		i = Space(object, after)
		if i < len(object) && object[i] == ':' {
			i = Space(object, i+1)
		}
		start, end = i, Value(object, i)
		if found {
			return start, end, true
		}
		if i = Space(object, end); i == len(object) || object[i] != ',' {
			break
		}
	}
	return 0, 0, false
}

// Fields calls field for each field of an object until it returns false. name is without
// quotes and may have escapes. Fields reports whether the text is one object, with white
// space around it, and field has accepted all of it.
func Fields(object []byte, field func(name, value []byte) bool) bool {
	i := Space(object, 0)
	if i == len(object) || object[i] != '{' {
		return false
	}
	if i = Space(object, i+1); i < len(object) && object[i] == '}' {
		return Space(object, i+1) == len(object)
	}
	for i < len(object) && object[i] == '"' {
		end := String(object, i)
		name := object[i+1 : max(i+1, end-1)]
		if i = Space(object, end); i == len(object) || object[i] != ':' {
			return false
		}
		start := Space(object, i+1)
		end = Value(object, start)
		if start == end || !field(name, object[start:end]) {
			return false
		}
		if i = Space(object, end); i == len(object) {
			return false
		}
		if object[i] == '}' {
			return Space(object, i+1) == len(object)
		}
		if object[i] != ',' {
			return false
		}
		i = Space(object, i+1)
	}
	return false
}

// Elements is Fields for the elements of a list.
func Elements(list []byte, element func(value []byte) bool) bool {
	i := Space(list, 0)
	if i == len(list) || list[i] != '[' {
		return false
	}
	if i = Space(list, i+1); i < len(list) && list[i] == ']' {
		return Space(list, i+1) == len(list)
	}
	for i < len(list) {
		end := Value(list, i)
		if i == end || !element(list[i:end]) {
			return false
		}
		if i = Space(list, end); i == len(list) {
			return false
		}
		if list[i] == ']' {
			return Space(list, i+1) == len(list)
		}
		if list[i] != ',' {
			return false
		}
		i = Space(list, i+1)
	}
	return false
}

// Unquote returns the text of a string, and whether value is one.
func Unquote(value []byte) (text string, ok bool) {
	if len(value) < 2 || value[0] != '"' || value[len(value)-1] != '"' {
		return "", false
	}
	inner := value[1 : len(value)-1]
	plain := utf8.Valid(inner)
	for _, c := range inner {
		plain = plain && c >= ' ' && c != '"' && c != '\\'
	}
	if plain {
		return string(inner), true
	}
	err := json.Unmarshal(value, &text)
	return text, err == nil
}

// Value returns the end of the value that begins at i.
func Value(text []byte, i int) int {
	for depth := 0; i < len(text); {
		switch text[i] {
		case '"':
			if i = String(text, i); depth == 0 {
				return i
			}
			continue
		case '[', '{':
			depth++
		case ']', '}':
			if depth == 0 {
				return i // of what the value is in
			}
			if depth--; depth == 0 {
				return i + 1
			}
		case ',', ' ', '\t', '\n', '\r':
			if depth == 0 {
				return i
			}
		}
		i++
	}
	return len(text)
}

// String returns the end of the string that begins at i.
func String(text []byte, i int) int {
	for i++; ; {
		n := bytes.IndexByte(text[i:], '"')
		if n < 0 {
			return len(text)
		}
		slashes := 0
		for slashes < n && text[i+n-1-slashes] == '\\' {
			slashes++
		}
		if i += n + 1; slashes%2 == 0 {
			return i
		}
	}
}

// Space returns where the next character that is no white space is.
func Space(text []byte, i int) int {
	for i < len(text) && (text[i] == ' ' || text[i] == '\t' || text[i] == '\n' || text[i] == '\r') {
		i++
	}
	return i
}
