// Package jsonscan reads JSON text without building values, so that it can be
// bounded, or cut, before it takes memory.
//
// The functions do not check syntax. Of text that is not JSON they return something,
// in linear time and without reading past its end.
package jsonscan

import (
	"bytes"
	"errors"
)

// The errors of Check.
var (
	ErrValues = errors.New("the JSON text has too many values")
	ErrDepth  = errors.New("the JSON text is nested too deep")
)

// Check returns an error if the text has more values than maxValues or is nested
// deeper than maxDepth. The outermost value has depth 0. Names in objects are not
// values.
func Check(text []byte, maxValues, maxDepth int) error {
	values, depth := 1, 0
	for i := 0; i < len(text) && values <= maxValues; {
		switch text[i] {
		case '"':
			i = str(text, i)
			continue
		case ',':
			values++
		case '[', '{':
			if depth++; depth > maxDepth+1 {
				return ErrDepth
			}
			if next := space(text, i+1); next < len(text) && text[next] != ']' && text[next] != '}' {
				values++
				if depth > maxDepth {
					return ErrDepth
				}
			}
		case ']', '}':
			depth--
		}
		i++
	}
	if values > maxValues {
		return ErrValues
	}
	return nil
}

// Field returns the place of the value that an object has under a name, and whether
// it has one. A name that is written with escapes is not found.
func Field(object []byte, name string) (start, end int, ok bool) {
	i := space(object, 0)
	if i == len(object) || object[i] != '{' {
		return 0, 0, false
	}
	for i = space(object, i+1); i < len(object) && object[i] == '"'; i = space(object, i+1) {
		after := str(object, i)
		found := after-i == len(name)+2 && string(object[i+1:after-1]) == name
		i = space(object, after)
		if i < len(object) && object[i] == ':' {
			i = space(object, i+1)
		}
		start, end = i, value(object, i)
		if found {
			return start, end, true
		}
		if i = space(object, end); i == len(object) || object[i] != ',' {
			break
		}
	}
	return 0, 0, false
}

// value returns the end of the value that begins at i.
func value(text []byte, i int) int {
	for depth := 0; i < len(text); {
		switch text[i] {
		case '"':
			if i = str(text, i); depth == 0 {
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

// str returns the end of the string that begins at i.
func str(text []byte, i int) int {
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

// space returns where the next character that is no white space is.
func space(text []byte, i int) int {
	for i < len(text) && (text[i] == ' ' || text[i] == '\t' || text[i] == '\n' || text[i] == '\r') {
		i++
	}
	return i
}
