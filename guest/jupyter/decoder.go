package jupyter

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/berth-run/berth/internal/jsonscan"
)

// maxLine bounds one event, in bytes.
const maxLine = 8 << 20

// maxFields bounds the fields of one event together with its media types.
const maxFields = 1000

// A Decoder reads Events from lines of JSON that arrive in pieces. It never fails: it drops
// messages that are no events.
type Decoder struct {
	line    []byte // the start of a line that has not ended
	skipped bool   // up to the end of this line, because a part of it is missing
}

// Write adds a piece of output. skipped is the number of bytes that are missing before it.
func (d *Decoder) Write(data []byte, skipped int64) []Event {
	if skipped > 0 {
		d.line, d.skipped = nil, true
	}
	var events []Event
	for len(data) > 0 {
		end := bytes.IndexByte(data, '\n')
		if end < 0 {
			if len(d.line)+len(data) > maxLine {
				d.line, d.skipped = nil, true
			}
			if !d.skipped {
				d.line = append(d.line, data...)
			}
			return events
		}
		line := append(d.line, data[:end]...)
		data, d.line = data[end+1:], nil
		if d.skipped {
			d.skipped = false
			continue
		}
		var ev Event
		if len(line) <= maxLine && !crowded(line) && json.Unmarshal(line, &ev) == nil && ev.Type != "" {
			events = append(events, ev)
		}
	}
	return events
}

// crowded reports whether an event has more fields or media types than one has. Each takes far more memory than
// its text.
func crowded(line []byte) bool {
	fields := 0
	few := func(name, value []byte) bool { fields++; return fields <= maxFields }
	jsonscan.Fields(line, few)
	if start, end, ok := jsonscan.Field(line, "data"); ok {
		jsonscan.Fields(line[start:end], few)
	}
	return fields > maxFields
}

// Plain returns the text of an event, as a terminal would show it.
func (e Event) Plain() string {
	switch e.Type {
	case Result, Display:
		if text, ok := e.String("text/plain"); ok {
			return Plain(text) + "\n"
		}
		return ""
	case Restarted:
		return "[the kernel was started again]\n"
	}
	if text := Plain(e.Text); text != "" && e.Type != Stream && !strings.HasSuffix(text, "\n") {
		return text + "\n"
	}
	return Plain(e.Text)
}

// String returns the data of a media type, if that is a string or a list of strings.
func (e Event) String(media string) (string, bool) {
	var text string
	if json.Unmarshal(e.Data[media], &text) == nil {
		return text, true
	}
	var lines []string
	if e.Data[media] == nil || json.Unmarshal(e.Data[media], &lines) != nil {
		return "", false
	}
	return strings.Join(lines, ""), true
}
