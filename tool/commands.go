package tool

import (
	"encoding/json"

	"github.com/berth-run/berth"
)

// A commandReader tells of the commands of a shell call as the model writes them.
// It only serves the live view: what runs is decided by the complete JSON.
type commandReader struct {
	arguments argumentReader
	commands  []string // read to their end
	current   []byte   // the part of the one being read
	open      bool     // one is being read
}

// write takes more JSON and returns the events that it brings.
func (r *commandReader) write(s string) []berth.Event {
	var events []berth.Event
	for _, p := range r.arguments.write(s) {
		if p.key == "commands" && p.index >= 0 {
			events = append(events, r.take(p)...)
		}
	}
	return events
}

func (r *commandReader) take(p fragment) []berth.Event {
	var events []berth.Event
	if p.begun {
		empty := ""
		r.current, r.open = nil, true
		events = append(events, r.event(berth.EventShellCommandAdded, nil, &empty))
	}
	if p.text != "" {
		r.current = append(r.current, p.text...)
		events = append(events, r.event(berth.EventShellCommandDelta, berth.StringDelta(p.text), nil))
	}
	if p.ended {
		events = append(events, r.end())
	}
	return events
}

func (r *commandReader) end() berth.Event {
	command := string(r.current)
	ev := r.event(berth.EventShellCommandDone, nil, &command)
	r.commands, r.open = append(r.commands, command), false
	return ev
}

// abandon ends the command that is being read, if the arguments end within one.
func (r *commandReader) abandon() []berth.Event {
	if !r.open {
		return nil
	}
	return []berth.Event{r.end()}
}

func (r *commandReader) event(t berth.EventType, delta json.RawMessage, command *string) berth.Event {
	index := len(r.commands)
	return berth.Event{Type: t, CommandIndex: &index, Delta: delta, Command: command}
}
