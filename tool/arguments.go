package tool

import (
	"encoding/json"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/berth-run/berth"
)

// A commandReader follows the JSON arguments of a shell call as the model writes
// them and tells of the strings in "commands" before the JSON is complete. It
// only serves the live view: what runs is decided by the complete JSON. Input
// that is not JSON makes it fall silent, never fail.
type commandReader struct {
	depth    int  // of open objects and arrays
	inString bool // between quotes
	text     []byte
	key      bool   // the string being read is a key of the outer object
	lastKey  string // the outer object's key whose value is being read
	list     bool   // inside the array of commands

	commands []string // read to their end
	current  []byte   // the decoded part of the one being read
}

// write takes more JSON and returns the events that it brings.
func (r *commandReader) write(s string) []berth.Event {
	var events []berth.Event
	for i := 0; i < len(s); i++ {
		c := s[i]
		if r.inString {
			r.text = append(r.text, c)
			if c == '"' && !escaped(r.text) {
				r.text = r.text[:len(r.text)-1]
				events = append(events, r.endString()...)
			}
			continue
		}
		switch c {
		case '"':
			r.inString, r.text = true, r.text[:0]
			r.key = r.depth == 1 && r.lastKey == ""
			if r.inCommands() {
				r.current = nil
				empty := ""
				events = append(events, r.event(berth.EventShellCommandAdded, nil, &empty))
			}
		case '{', '[':
			r.depth++
			r.list = r.list || (c == '[' && r.depth == 2 && r.lastKey == "commands")
		case '}', ']':
			r.depth--
			r.list = r.list && r.depth >= 2
		case ',':
			if r.depth == 1 {
				r.lastKey = ""
			}
		}
	}
	if r.inString && r.inCommands() {
		events = append(events, r.progress(false)...)
	}
	return events
}

func (r *commandReader) inCommands() bool { return r.list && r.depth == 2 }

func (r *commandReader) endString() []berth.Event {
	r.inString = false
	switch {
	case r.inCommands():
		return append(r.progress(true), r.endCommand())
	case r.key:
		r.lastKey = decodeString(r.text)
	}
	return nil
}

func (r *commandReader) endCommand() berth.Event {
	command := string(r.current)
	ev := r.event(berth.EventShellCommandDone, nil, &command)
	r.commands = append(r.commands, command)
	return ev
}

// abandon ends the command that is being read, if the arguments end within one.
func (r *commandReader) abandon() []berth.Event {
	if !r.inString || !r.inCommands() {
		return nil
	}
	r.inString = false
	return []berth.Event{r.endCommand()}
}

// progress decodes what r.text holds, tells of it and empties it. Unless the
// string has ended it keeps back what may be half an escape or half a rune.
func (r *commandReader) progress(ended bool) []berth.Event {
	n := len(r.text)
	if !ended {
		n = wholePrefix(r.text)
	}
	delta := decodeString(r.text[:n])
	r.text = append(r.text[:0], r.text[n:]...)
	if delta == "" {
		return nil
	}
	r.current = append(r.current, delta...)
	return []berth.Event{r.event(berth.EventShellCommandDelta, berth.StringDelta(delta), nil)}
}

func (r *commandReader) event(t berth.EventType, delta json.RawMessage, command *string) berth.Event {
	index := len(r.commands)
	return berth.Event{Type: t, CommandIndex: &index, Delta: delta, Command: command}
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
