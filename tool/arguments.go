package tool

import (
	"encoding/json"
	"unicode/utf16"
	"unicode/utf8"
)

// An argumentReader follows the JSON object of a call's arguments as the model
// writes it, and tells of strings before the JSON is complete: those that are the
// object's own values, and those in lists that are. Input that is not JSON makes
// it fall silent, never fail.
type argumentReader struct {
	depth    int  // of open objects and arrays
	inString bool // between quotes
	text     []byte
	key      bool   // the string being read is a key of the outer object
	lastKey  string // the outer object's key whose value is being read
	list     bool   // inside an array that is that value
	count    int    // strings of that array read to their end
}

// A fragment is more of one string.
type fragment struct {
	key   string // of the outer object
	index int    // among the strings of its list; -1 for a string that is the value itself
	text  string // decoded; may be empty
	begun bool   // the string begins here
	ended bool   // it ends here
}

// write takes more JSON and returns the fragments that it brings. What is known of a
// string comes at once.
func (r *argumentReader) write(s string) []fragment {
	var told []fragment
	begun := false
	for i := 0; i < len(s); i++ {
		c := s[i]
		if r.inString {
			r.text = append(r.text, c)
			if c == '"' && !escaped(r.text) {
				r.text = r.text[:len(r.text)-1]
				told = append(told, r.endString(begun)...)
				begun = false
			}
			continue
		}
		switch c {
		case '"':
			r.inString, r.text = true, r.text[:0]
			r.key = r.depth == 1 && r.lastKey == ""
			begun = true
		case '{', '[':
			r.depth++
			if c == '[' && r.depth == 2 && r.lastKey != "" {
				r.list, r.count = true, 0
			}
		case '}', ']':
			r.depth--
			r.list = r.list && r.depth >= 2
		case ',':
			if r.depth == 1 {
				r.lastKey = ""
			}
		}
	}
	if r.inString && r.isArgument() {
		if p := r.fragment(begun, false); p.begun || p.text != "" {
			told = append(told, p)
		}
	}
	return told
}

// isArgument reports whether the string being read is one to tell of.
func (r *argumentReader) isArgument() bool {
	return !r.key && r.lastKey != "" && (r.depth == 1 || r.list && r.depth == 2)
}

func (r *argumentReader) endString(begun bool) []fragment {
	r.inString = false
	switch {
	case r.isArgument():
		p := r.fragment(begun, true)
		if r.list {
			r.count++
		}
		return []fragment{p}
	case r.key:
		r.lastKey = decodeString(r.text)
	}
	return nil
}

// fragment decodes what r.text holds and empties it. Unless the string has ended it
// keeps back what may be half an escape or half a rune.
func (r *argumentReader) fragment(begun, ended bool) fragment {
	n := len(r.text)
	if !ended {
		n = wholePrefix(r.text)
	}
	p := fragment{key: r.lastKey, index: -1, text: decodeString(r.text[:n]), begun: begun, ended: ended}
	r.text = append(r.text[:0], r.text[n:]...)
	if r.list {
		p.index = r.count
	}
	return p
}

// escaped reports whether the last byte of s stands behind an odd number of backslashes.
func escaped(s []byte) bool {
	n := 0
	for i := len(s) - 2; i >= 0 && s[i] == '\\'; i-- {
		n++
	}
	return n%2 == 1
}

// wholePrefix returns how much of the inside of a JSON string can be decoded
// before the rest is known.
func wholePrefix(s []byte) int {
	n := 0 // the end of the last whole character
	for i := 0; i < len(s); {
		size := 1
		switch {
		case s[i] == '\\' && i+1 < len(s) && s[i+1] == 'u':
			size = 6
			if i+6 <= len(s) && utf16.IsSurrogate(hexRune(s[i+2:i+6])) && prefixes(`\u`, s[i+6:]) {
				size = 12 // the other half of the pair comes or is there
			}
		case s[i] == '\\':
			size = 2
		case s[i] >= utf8.RuneSelf && !utf8.FullRune(s[i:]):
			return n
		case s[i] >= utf8.RuneSelf:
			_, size = utf8.DecodeRune(s[i:])
		}
		if i+size > len(s) {
			return n
		}
		i += size
		n = i
	}
	return n
}

// prefixes reports whether s begins with prefix, as far as s goes.
func prefixes(prefix string, s []byte) bool {
	n := min(len(prefix), len(s))
	return prefix[:n] == string(s[:n])
}

func hexRune(s []byte) rune {
	var r rune
	for _, c := range s {
		switch {
		case '0' <= c && c <= '9':
			r = r<<4 | rune(c-'0')
		case 'a' <= c|0x20 && c|0x20 <= 'f':
			r = r<<4 | rune(c|0x20-'a'+10)
		}
	}
	return r
}

func decodeString(inside []byte) string {
	quoted := make([]byte, 0, len(inside)+2)
	quoted = append(append(append(quoted, '"'), inside...), '"')
	var s string
	if json.Unmarshal(quoted, &s) != nil {
		return ""
	}
	return s
}
