package texteditor

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/tool"
)

// Kind returns the kind of the text editor. It has no rules: clients of the Responses API cannot request it.
func Kind(containers Containers) tool.Kind {
	return tool.Kind{
		Type: berth.ToolTextEditor, Name: Name,
		Bind: func(c tool.Context, t berth.Tool) (tool.Tool, error) {
			environment, err := environmentOf(t)
			if err != nil {
				return nil, err
			}
			return &Tool{containers: containers, exec: containers.Shell(c.Caller, environment.ContainerID),
				project: c.Caller.Project, container: environment.ContainerID}, nil
		},
		Container: &tool.Container{Environment: environmentOf, Settle: settle},
		Calls: &tool.Calls{Call: berth.ItemTextEditorCall, CallPrefix: berth.PrefixTextEditorCall,
			LowerCall: lowerCall, LowerOutput: lowerOutput, Hosted: func(berth.Item) bool { return true },
			Commands: commandsOf,
			Outcome: func(it berth.Item) tool.Outcome {
				if it.Status() == berth.StatusFailed {
					return tool.Failed
				}
				return tool.OK
			}},
	}
}

// environmentOf returns the environment of the editor's container.
func environmentOf(t berth.Tool) (*berth.ShellToolEnvironment, error) {
	decoded, err := tool.Decode[berth.TextEditorTool](t, "text editor")
	if err != nil {
		return nil, err
	}
	if decoded.Environment == nil {
		return nil, berth.Invalid("environment", "Missing required parameter: 'environment'.")
	}
	return decoded.Environment, nil
}

// settle returns an editor with a reference to its container.
func settle(_ berth.Tool, id berth.ContainerID) (berth.Tool, error) {
	return berth.NewTool(berth.TextEditorTool{Type: berth.ToolTextEditor,
		Environment: &berth.ShellToolEnvironment{Type: berth.EnvironmentReference, ContainerID: id}}), nil
}

func lowerCall(item berth.Item) (function, arguments string, err error) {
	var call berth.TextEditorCall
	err = item.Decode(&call)
	return Name, string(call.Input), err
}

// commandsOf returns what an approval policy matches: "create /mnt/data/a.txt", and nothing for a view.
func commandsOf(item berth.Item) []string {
	var call berth.TextEditorCall
	var in input
	if item.Decode(&call) != nil || json.Unmarshal(call.Input, &in) != nil || in.problem() != "" ||
		in.Command == commandView {
		return nil
	}
	return []string{in.Command + " " + in.Path}
}

// lowerOutput returns the result of a call as a model sees it. A call in progress has none.
func lowerOutput(item berth.Item) (json.RawMessage, error) {
	var call berth.TextEditorCall
	if err := item.Decode(&call); err != nil || call.Result == nil {
		return nil, err
	}
	r := call.Result
	switch {
	case r.Error != "":
		return berth.StringDelta("The command failed. " + r.Message), nil
	case r.FileType == "image" && r.MediaType != "":
		return json.Marshal([]berth.Content{{Type: "input_image", Detail: "auto",
			ImageURL: "data:" + r.MediaType + ";base64," + r.Content}})
	case r.FileType != "":
		return berth.StringDelta(viewed(r)), nil
	case r.NewStart > 0:
		return berth.StringDelta(fmt.Sprintf("The file was changed from line %d on.\n%s", r.NewStart,
			strings.Join(r.Lines, "\n"))), nil
	case r.Updated:
		return berth.StringDelta("The file was replaced."), nil
	}
	return berth.StringDelta("The file was created."), nil
}

// viewed returns the lines of a view with their numbers.
func viewed(r *berth.TextEditorResult) string {
	if r.StartLine == 0 {
		return r.Content
	}
	if r.NumLines == 0 {
		return "[The file is empty.]"
	}
	var text strings.Builder
	for i, l := range split(r.Content) {
		fmt.Fprintf(&text, "%6d\t%s", r.StartLine+i, l)
	}
	if last := r.StartLine + r.NumLines - 1; last < r.TotalLines {
		fmt.Fprintf(&text, "\n[The file has %d lines.]", r.TotalLines)
	}
	return text.String()
}
