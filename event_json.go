package berth

import (
	"bytes"
	"encoding/json"
	"strconv"
)

// A response has hundreds of text deltas, so their JSON is written and read without
// reflection. All other events go through encoding/json.

// AppendJSON appends the event's JSON to b, exactly as json.Marshal returns it.
func (e *Event) AppendJSON(b []byte) ([]byte, error) {
	if !e.isTextDelta() {
		data, err := json.Marshal(e)
		return append(b, data...), err
	}
	b = append(b, `{"type":"`...)
	b = append(b, e.Type...)
	b = append(b, `","sequence_number":`...)
	b = strconv.AppendInt(b, e.SequenceNumber, 10)
	if e.ItemID != "" {
		b = append(b, `,"item_id":"`...)
		b = append(b, e.ItemID...)
		b = append(b, '"')
	}
	b = appendIndex(b, `,"output_index":`, e.OutputIndex)
	b = appendIndex(b, `,"content_index":`, e.ContentIndex)
	b = appendIndex(b, `,"summary_index":`, e.SummaryIndex)
	b = append(b, `,"delta":`...)
	b = append(b, e.Delta...)
	if e.Logprobs != nil {
		b = append(b, `,"logprobs":[]`...)
	}
	return append(b, '}'), nil
}

func appendIndex(b []byte, name string, index *int) []byte {
	if index == nil {
		return b
	}
	return strconv.AppendInt(append(b, name...), int64(*index), 10)
}

// isTextDelta reports whether the event has only the fields that AppendJSON writes itself,
// with texts that json.Marshal leaves unchanged.
func (e *Event) isTextDelta() bool {
	return len(e.Delta) > 0 && plainString(e.Delta) == len(e.Delta) && isWord(string(e.Type)) && isWord(e.ItemID) &&
		(e.Logprobs == nil || *e.Logprobs != nil && len(*e.Logprobs) == 0) &&
		e.Response == nil && e.Error == nil && e.Item == nil && e.Part == nil && len(e.Output) == 0 &&
		e.CommandIndex == nil && e.AnnotationIndex == nil && e.PartialImageIndex == nil && e.PartialImage == "" &&
		e.Size == "" && e.Quality == "" && e.Background == "" && e.OutputFormat == "" && len(e.Annotation) == 0 &&
		e.Text == nil && e.Refusal == nil && e.Arguments == nil && e.Command == nil && e.Name == "" &&
		e.Input == nil && e.Diff == nil && e.Code == nil && e.EventError == nil
}

// plainString returns the length of the JSON string that text begins with, or 0 if there
// is none or json.Marshal would change it: it escapes HTML and line separators.
func plainString(text []byte) int {
	if len(text) < 2 || text[0] != '"' {
		return 0
	}
	for i := 1; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"':
			return i + 1
		case c < 0x20, c == '<', c == '>', c == '&', c == 0xe2:
			return 0
		case c == '\\':
			if i++; i == len(text) || bytes.IndexByte([]byte(`"\/bfnrt`), text[i]) < 0 && !isUnicodeEscape(text[i:]) {
				return 0
			}
		}
	}
	return 0
}

func isUnicodeEscape(text []byte) bool {
	if len(text) < 5 || text[0] != 'u' {
		return false
	}
	_, err := strconv.ParseUint(string(text[1:5]), 16, 16)
	return err == nil
}

// isWord reports whether a text consists of the characters of types and ids.
func isWord(s string) bool {
	for i := range len(s) {
		c := s[i]
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '.' && c != '_' && c != '-' {
			return false
		}
	}
	return true
}

// DecodeEvent returns the event of a JSON text, as json.Unmarshal decodes it. It keeps no
// part of data.
func DecodeEvent(data []byte) (ev Event, err error) {
	if ev, ok := decodeTextDelta(data); ok {
		return ev, nil
	}
	err = json.Unmarshal(data, &ev)
	return ev, err
}

// decodeTextDelta decodes an event that has only the fields that AppendJSON writes itself.
func decodeTextDelta(data []byte) (ev Event, ok bool) {
	s := jsonText{rest: data}
	ok = s.object(func(key []byte) bool {
		switch string(key) {
		case "type":
			return s.word((*string)(&ev.Type))
		case "sequence_number":
			return s.integer(&ev.SequenceNumber)
		case "item_id":
			return s.word(&ev.ItemID)
		case "output_index":
			return s.index(&ev.OutputIndex)
		case "content_index":
			return s.index(&ev.ContentIndex)
		case "summary_index":
			return s.index(&ev.SummaryIndex)
		case "delta":
			raw, ok := s.quoted()
			ev.Delta = bytes.Clone(raw)
			return ok && plainString(raw) == len(raw)
		case "logprobs":
			ev.Logprobs = new([]json.RawMessage)
			return s.empty(ev.Logprobs)
		}
		return false
	})
	s.peek()
	return ev, ok && len(s.rest) == 0 && ev.Delta != nil
}

// word reads a string of the characters of types and ids.
func (s *jsonText) word(to *string) bool {
	raw, ok := s.quoted()
	if !ok {
		return false
	}
	*to = string(raw[1 : len(raw)-1])
	return isWord(*to)
}

// integer reads a number without sign, fraction and exponent.
func (s *jsonText) integer(to *int64) bool {
	s.peek()
	n := 0
	for n < len(s.rest) && s.rest[n] >= '0' && s.rest[n] <= '9' {
		n++
	}
	v, err := strconv.ParseInt(string(s.rest[:n]), 10, 64)
	ok := err == nil && (n == 1 || s.rest[0] != '0')
	*to, s.rest = v, s.rest[n:]
	return ok
}

func (s *jsonText) index(to **int) bool {
	var v int64
	ok := s.integer(&v)
	*to = new(int)
	**to = int(v)
	return ok
}
