package berth

import (
	"bytes"
	"encoding/json"
	"unicode/utf8"
)

// decodeText reads a message of text in its usual form, many times as fast as package json:
// each turn of a conversation reads all its messages. It returns false for any other form, and
// m is undefined then. b must be valid JSON.
func (m *Message) decodeText(b []byte) bool {
	*m = Message{}
	s := jsonText{rest: b}
	short, isShort := "", false
	ok := s.object(func(key []byte) bool {
		switch string(key) {
		case "id":
			return s.string(&m.ID)
		case "type":
			return s.string((*string)(&m.Type))
		case "status":
			return s.string((*string)(&m.Status))
		case "phase":
			return s.string(&m.Phase)
		case "role":
			return s.string(&m.Role)
		case "name":
			return s.string(&m.Name)
		case "content":
			if isShort = s.peek() == '"'; isShort {
				return s.string(&short)
			}
			return s.contents(&m.Content)
		}
		return false // package json ignores it, or knows it in another case
	})
	if !ok || s.peek() != 0 || !isShort && m.Content == nil {
		return false
	}
	if isShort {
		m.Content = []Content{shortContent(m.Role, short)}
	}
	return true
}

// shortContent returns the content of a message whose content is a string.
func shortContent(role, text string) Content {
	if role == "assistant" {
		return Content{Type: "output_text", Text: text}
	}
	return Content{Type: "input_text", Text: text}
}

// jsonText reads valid JSON from the start. Its methods return false for what they do not
// read.
type jsonText struct{ rest []byte }

// peek returns the next byte that is not a space, or 0 at the end.
func (s *jsonText) peek() byte {
	for i, c := range s.rest {
		if c != ' ' && c != '\n' && c != '\t' && c != '\r' {
			s.rest = s.rest[i:]
			return c
		}
	}
	s.rest = nil
	return 0
}

// skip skips the byte c, if it is the next one.
func (s *jsonText) skip(c byte) bool {
	if s.peek() != c {
		return false
	}
	s.rest = s.rest[1:]
	return true
}

// object calls value for each field, which reads it.
func (s *jsonText) object(value func(key []byte) bool) bool {
	if !s.skip('{') {
		return false
	}
	for first := true; !s.skip('}'); first = false {
		if !first && !s.skip(',') {
			return false
		}
		key, ok := s.quoted()
		if !ok || !s.skip(':') || !value(key[1:len(key)-1]) {
			return false
		}
	}
	return true
}

// contents reads the parts of a content, if all of them are text.
func (s *jsonText) contents(parts *[]Content) bool {
	if !s.skip('[') {
		return false
	}
	*parts = []Content{}
	for first := true; !s.skip(']'); first = false {
		var c Content
		if !first && !s.skip(',') || !s.object(func(key []byte) bool {
			switch string(key) {
			case "type":
				return s.string(&c.Type)
			case "text":
				return s.string(&c.Text)
			case "annotations":
				return s.empty(&c.Annotations)
			case "logprobs":
				return s.empty(&c.Logprobs)
			}
			return false
		}) {
			return false
		}
		*parts = append(*parts, c)
	}
	return true
}

// empty reads an empty list.
func (s *jsonText) empty(list *[]json.RawMessage) bool {
	*list = []json.RawMessage{}
	return s.skip('[') && s.skip(']')
}

// string reads a string.
func (s *jsonText) string(to *string) bool {
	raw, ok := s.quoted()
	if !ok {
		return false
	}
	if bytes.IndexByte(raw, '\\') >= 0 {
		return json.Unmarshal(raw, to) == nil
	}
	*to = string(raw[1 : len(raw)-1])
	return utf8.ValidString(*to)
}

// quoted returns a string with its quotes and escapes.
func (s *jsonText) quoted() (raw []byte, ok bool) {
	if s.peek() != '"' {
		return nil, false
	}
	for i := 1; ; i++ {
		n := bytes.IndexByte(s.rest[i:], '"')
		if n < 0 {
			return nil, false
		}
		i += n
		escapes := 0
		for s.rest[i-1-escapes] == '\\' {
			escapes++
		}
		if escapes%2 == 0 {
			raw, s.rest = s.rest[:i+1], s.rest[i+1:]
			return raw, true
		}
	}
}

// pass passes over a value of any kind.
func (s *jsonText) pass() bool {
	for depth := 0; ; {
		switch c := s.peek(); c {
		case 0:
			return false
		case '"':
			if _, ok := s.quoted(); !ok {
				return false
			}
		case '{', '[':
			depth++
			s.rest = s.rest[1:]
		case '}', ']':
			depth--
			s.rest = s.rest[1:]
		case ',', ':':
			s.rest = s.rest[1:]
		default: // a number, true, false or null
			end := bytes.IndexAny(s.rest, ",]} \n\t\r")
			if end < 0 {
				return false
			}
			s.rest = s.rest[end:]
		}
		if depth <= 0 {
			return depth == 0
		}
	}
}
