package tool

import (
	"encoding/json"
	"unicode/utf16"
	"unicode/utf8"
)

// An ArgumentReader reads the JSON object of a call's arguments as the model writes it. It
// returns strings before the JSON is complete: values of the object, and elements of
// arrays that are values. It returns nothing for input that is not JSON, and never fails.
type ArgumentReader struct {
	depth    int  // of open objects and arrays
	inString bool // between quotes
	text     []byte
	key      bool   // the string being read is a key of the outer object
	lastKey  string // the outer object's key whose value is being read
	list     bool   // inside an array that is that value
	count    int    // strings of that array read to their end
}

// A Fragment is a piece of one string.
type Fragment struct {
	Key   string // of the outer object
	Index int    // among the strings of its array; -1 for a string that is the value itself
	Text  string // decoded; may be empty
	Begun bool   // the fragment starts the string
	Ended bool   // the fragment ends the string
}

// Write adds JSON and returns the new fragments, including that of a string that has not
// ended.
func (r *ArgumentReader) Write(s string) []Fragment {
	var out []Fragment
	begun := false
	for i := 0; i < len(s); i++ {
		c := s[i]
		if r.inString {
			r.text = append(r.text, c)
			if c == '"' && !escaped(r.text) {
				r.text = r.text[:len(r.text)-1]
				out = append(out, r.endString(begun)...)
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
		if p := r.fragment(begun, false); p.Begun || p.Text != "" {
			out = append(out, p)
		}
	}
	return out
}

// isArgument reports whether to return the string being read.
func (r *ArgumentReader) isArgument() bool {
	return !r.key && r.lastKey != "" && (r.depth == 1 || r.list && r.depth == 2)
}

func (r *ArgumentReader) endString(begun bool) []Fragment {
	r.inString = false
	switch {
	case r.isArgument():
		p := r.fragment(begun, true)
		if r.list {
			r.count++
		}
		return []Fragment{p}
	case r.key:
		r.lastKey = decodeString(r.text)
	}
	return nil
}

// fragment decodes r.text and empties it. Unless the string has ended, an incomplete escape
// or rune remains there.
func (r *ArgumentReader) fragment(begun, ended bool) Fragment {
	n := len(r.text)
	if !ended {
		n = wholePrefix(r.text)
	}
	p := Fragment{Key: r.lastKey, Index: -1, Text: decodeString(r.text[:n]), Begun: begun, Ended: ended}
	r.text = append(r.text[:0], r.text[n:]...)
	if r.list {
		p.Index = r.count
	}
	return p
}

// escaped reports whether the last byte of s follows an odd number of backslashes.
func escaped(s []byte) bool {
	n := 0
	for i := len(s) - 2; i >= 0 && s[i] == '\\'; i-- {
		n++
	}
	return n%2 == 1
}

// wholePrefix returns the length of the prefix of a JSON string's content that can be
// decoded before the rest is known.
func wholePrefix(s []byte) int {
	n := 0 // the end of the last whole character
	for i := 0; i < len(s); {
		size := 1
		switch {
		case s[i] == '\\' && i+1 < len(s) && s[i+1] == 'u':
			size = 6
			if i+6 <= len(s) && utf16.IsSurrogate(hexRune(s[i+2:i+6])) && prefixes(`\u`, s[i+6:]) {
				size = 12 // with the second half of the surrogate pair
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

// prefixes reports whether s starts with prefix, or prefix starts with s.
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
