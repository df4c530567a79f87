package chat

import (
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/berth-run/berth/model/upstream"
)

// AppendJSON implements upstream.Appender. A conversation has hundreds of messages of text,
// which are written without reflection.
func (r *request) AppendJSON(b []byte) ([]byte, error) {
	b = slices.Grow(b, r.size())
	b = append(b, `{"model":`...)
	b = appendString(b, r.Model)
	b = append(b, `,"messages":[`...)
	for i := range r.Messages {
		if i > 0 {
			b = append(b, ',')
		}
		var err error
		if b, err = r.Messages[i].appendJSON(b); err != nil {
			return nil, err
		}
	}
	b = append(b, ']')
	start := len(b)
	b, err := upstream.AppendJSON(b, (*fields)(r))
	if err != nil {
		return nil, err
	}
	b[start] = ',' // in place of the {; "stream" follows in any case
	return b, nil
}

// fields are those of a request without its model and messages.
type fields request

// size returns about the size of the JSON.
func (r *request) size() int {
	n := 1024
	for i := range r.Messages {
		text, _ := r.Messages[i].Content.(string)
		n += 64 + len(text) + len(text)/16
	}
	return n
}

func (m *message) appendJSON(b []byte) ([]byte, error) {
	text, ok := m.Content.(string)
	if !ok || m.Name != "" || m.ReasoningContent != "" || m.Reasoning != "" || m.ToolCalls != nil ||
		m.ToolCallID != "" {
		return upstream.AppendJSON(b, m)
	}
	b = append(b, `{"role":`...)
	b = appendString(b, m.Role)
	b = append(b, `,"content":`...)
	b = appendString(b, text)
	return append(b, '}'), nil
}

// appendString appends a JSON string. Bytes that are not UTF-8 become U+FFFD, as in package
// json.
func appendString(b []byte, s string) []byte {
	if !utf8.ValidString(s) {
		s = strings.ToValidUTF8(s, "\uFFFD")
	}
	b = append(b, '"')
	done := 0
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c >= ' ' && c != '"' && c != '\\' {
			continue
		}
		b = append(b, s[done:i]...)
		switch done = i + 1; c {
		case '"', '\\':
			b = append(b, '\\', c)
		case '\n':
			b = append(b, '\\', 'n')
		case '\r':
			b = append(b, '\\', 'r')
		case '\t':
			b = append(b, '\\', 't')
		default:
			const hex = "0123456789abcdef"
			b = append(b, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		}
	}
	return append(append(b, s[done:]...), '"')
}
