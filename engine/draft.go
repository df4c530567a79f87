package engine

import (
	"encoding/json"
	"errors"
	"strings"

	"github.com/berth-run/berth"
)

// drafts are what is known of the items that are open, by their place in the output.
// They are a fold of events.
type drafts map[int]*draft

// A draft is the part of an item that was streamed.
type draft struct {
	parts    []berth.Content // of a message that are complete
	kind     string          // of the part that is open
	text     strings.Builder // of that part, of arguments, or of the command that is open
	commands []string        // of a shell call
}

// note adds what events bring.
func (d drafts) note(events []berth.Event) {
	for i := range events {
		if ev := &events[i]; ev.OutputIndex != nil {
			d.add(*ev.OutputIndex, ev)
		}
	}
}

func (d drafts) add(index int, ev *berth.Event) {
	if ev.Type == berth.EventOutputItemAdded {
		d[index] = &draft{}
		return
	}
	open := d[index]
	if open == nil {
		return
	}
	switch ev.Type {
	case berth.EventOutputItemDone:
		delete(d, index)
	case berth.EventContentPartAdded, berth.EventReasoningSummaryPartAdded:
		open.kind = ev.Part.Type
		open.text.Reset()
	case berth.EventContentPartDone:
		open.parts = append(open.parts, *ev.Part)
		open.kind = ""
		open.text.Reset()
	case berth.EventShellCommandAdded:
		open.commands = append(open.commands, "")
	case berth.EventShellCommandDone:
		if n := len(open.commands); n > 0 && ev.Command != nil {
			open.commands[n-1] = *ev.Command
		}
		open.text.Reset()
	case berth.EventOutputTextDelta, berth.EventRefusalDelta, berth.EventReasoningTextDelta, berth.EventReasoningSummaryDelta,
		berth.EventFunctionArgumentsDelta, berth.EventCustomInputDelta, berth.EventPatchDiffDelta, berth.EventShellCommandDelta:
		var text string
		if json.Unmarshal(ev.Delta, &text) == nil {
			open.text.WriteString(text)
		}
	}
}

// fields returns the fields of an item that is closed before its end.
func (d *draft) fields(it berth.Item) map[string]any {
	fields := map[string]any{"status": berth.StatusIncomplete}
	if d == nil {
		return fields
	}
	text := d.text.String()
	switch it.Type() {
	case berth.ItemMessage:
		content := d.parts
		switch {
		case text != "" && d.kind == "refusal":
			content = append(content, berth.Content{Type: d.kind, Refusal: text})
		case text != "":
			content = append(content, berth.Content{Type: "output_text", Text: text})
		}
		if len(content) > 0 {
			fields["content"] = content
		}
	case berth.ItemReasoning:
		name := "content"
		if d.kind == "summary_text" {
			name = "summary"
		}
		fields[name] = []berth.Content{{Type: d.kind, Text: text}}
	case berth.ItemFunctionCall:
		fields["arguments"] = text
	case berth.ItemCustomToolCall:
		fields["input"] = text
	case berth.ItemApplyPatchCall:
		var call berth.ApplyPatchCall
		if it.Decode(&call) == nil && call.Operation.Diff != nil {
			call.Operation.Diff = &text
			fields["operation"] = call.Operation
		}
	case berth.ItemShellCall:
		var call berth.ShellCall
		if n := len(d.commands); it.Decode(&call) == nil && n > 0 {
			if text != "" {
				d.commands[n-1] = text
			}
			call.Action.Commands = d.commands
			fields["action"] = call.Action
		}
	}
	return fields
}

// abandon returns the events that close the open items as incomplete, so that the
// turn can be asked again.
func abandon(body berth.Response, open drafts) []berth.Event {
	var events []berth.Event
	for i, it := range body.Output {
		if it.Status() != berth.StatusInProgress && open[i] == nil {
			continue
		}
		closed, err := it.With(open[i].fields(it))
		if err != nil {
			panic(errors.Join(errors.New("an item of this process is not JSON"), err))
		}
		events = append(events, done(i, closed))
	}
	return events
}
