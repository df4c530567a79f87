package shell

import (
	"encoding/json"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/tool"
)

// A commandReader reads the commands of a shell call as the model writes them, for the
// events of the stream. The complete JSON decides which commands run.
type commandReader struct {
	arguments tool.ArgumentReader
	commands  []string // the complete ones
	current   []byte   // the known part of the open one
	open      bool     // a command is being read
}

// write adds JSON and returns the events for it.
func (r *commandReader) write(s string) []berth.Event {
	var events []berth.Event
	for _, p := range r.arguments.Write(s) {
		if p.Key == "commands" && p.Index >= 0 {
			events = append(events, r.add(p)...)
		}
	}
	return events
}

func (r *commandReader) add(p tool.Fragment) []berth.Event {
	var events []berth.Event
	if p.Begun {
		empty := ""
		r.current, r.open = nil, true
		events = append(events, r.event(berth.EventShellCommandAdded, nil, &empty))
	}
	if p.Text != "" {
		r.current = append(r.current, p.Text...)
		events = append(events, r.event(berth.EventShellCommandDelta, berth.StringDelta(p.Text), nil))
	}
	if p.Ended {
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

// abandon ends the open command, if the arguments end within one.
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
