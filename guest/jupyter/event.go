package jupyter

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// An Event is what the guest reports about a call of a kernel, as a line of JSON.
type Event struct {
	Type EventType `json:"type"`
	Text string    `json:"text,omitempty"`
	// Name is "stderr" for that Stream, and the name of an exception, whose message is Value.
	Name  string `json:"name,omitempty"`
	Value string `json:"value,omitempty"`
	// Data is a result by media type: JSON strings, images in base64, or any JSON.
	Data map[string]json.RawMessage `json:"data,omitempty"`
}

// An EventType is the type of an Event.
type EventType string

const (
	Stream      EventType = "stream"      // Text on stdout, or on the stream Name
	Result      EventType = "result"      // Data: the value of the last expression
	Display     EventType = "display"     // Data: what the code displays
	Failure     EventType = "error"       // Text: the traceback of an exception
	Restarted   EventType = "restarted"   // before the code: an earlier kernel has ended, with the variables in it
	Interrupted EventType = "interrupted" // Text: the code exceeded its time; the variables are kept
	Died        EventType = "died"        // Text: the kernel has ended, with the variables in it
	Notice      EventType = "notice"      // Text for the model
	Count       EventType = "count"       // Text: the number of executions of the kernel; only of an Instance
)

// Bounds on the results of one message that are passed on, in bytes.
const (
	maxData = 256 << 10
	maxPNG  = 2 << 20
)

// media are the media types of results that are passed on, with their limits.
var media = map[string]int{"text/plain": maxData, "text/html": maxData, "text/markdown": maxData, "text/latex": maxData,
	"application/json": maxData, "application/javascript": maxData, "application/pdf": maxPNG, "e2b/data": maxData,
	"e2b/chart":     maxData,
	"image/svg+xml": maxData, "image/png": maxPNG, "image/jpeg": maxPNG, "image/gif": maxPNG}

// Events returns what a message of the iopub channel means; most mean nothing.
func Events(m Message) []Event {
	if m.Content == nil && m.Type == "stream" {
		if text := startOfText(m.Start); text != "" {
			return []Event{{Type: Stream, Text: text},
				{Type: Notice, Text: "The rest of this output is above the size limit and was left out."}}
		}
	}
	if m.Content == nil {
		return []Event{{Type: Notice, Text: "An output above the size limit was left out."}}
	}
	var c struct {
		Name, Text string
		Data       map[string]json.RawMessage
		Ename      string
		Evalue     string
		Traceback  []string
	}
	if json.Unmarshal(m.Content, &c) != nil {
		return nil
	}
	switch m.Type {
	case "stream":
		if c.Name == "stdout" {
			c.Name = ""
		}
		return []Event{{Type: Stream, Text: c.Text, Name: c.Name}}
	case "error":
		text := strings.Join(c.Traceback, "\n")
		if text == "" {
			text = c.Ename + ": " + c.Evalue
		}
		return []Event{{Type: Failure, Text: Plain(text), Name: c.Ename, Value: Plain(c.Evalue)}}
	case "execute_result":
		return results(Result, c.Data)
	case "display_data", "update_display_data":
		return results(Display, c.Data)
	}
	return nil
}

var textKey = regexp.MustCompile(`[{,]\s*"text"\s*:\s*"`)

// startOfText returns the start of the field "text" of the start of an object in JSON.
func startOfText(start []byte) string {
	at := textKey.FindIndex(start)
	if at == nil {
		return ""
	}
	raw := start[at[1]:]
	n := 0
	for n < len(raw) && raw[n] != '"' {
		size := 1
		if raw[n] == '\\' {
			if size = 2; n+1 < len(raw) && raw[n+1] == 'u' {
				size = 6
			}
		} else if !utf8.FullRune(raw[n:]) {
			break
		}
		if n+size > len(raw) {
			break
		}
		n += size
	}
	var text string
	if json.Unmarshal(slices.Concat([]byte{'"'}, raw[:n], []byte{'"'}), &text) != nil {
		return ""
	}
	return text
}

func results(kind EventType, data map[string]json.RawMessage) []Event {
	kept := map[string]json.RawMessage{}
	var events []Event
	for name, value := range data {
		limit, ok := media[name]
		switch {
		case !ok:
		case len(value) > limit:
			events = append(events, Event{Type: Notice, Text: "A result of type " + name +
				" above the size limit was left out."})
		default:
			kept[name] = value
		}
	}
	if len(kept) > 0 {
		events = append(events, Event{Type: kind, Data: kept})
	}
	return events
}

var escapes = regexp.MustCompile(`\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(\x07|\x1b\\)`)

// Plain returns text without the escape sequences of terminals.
func Plain(text string) string {
	if strings.IndexByte(text, 0x1b) < 0 {
		return text
	}
	return escapes.ReplaceAllString(text, "")
}
