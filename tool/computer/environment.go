package computer

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/internal/rule"
	"github.com/berth-run/berth/tool"
)

// Template is the template of a new container for a desktop, unless the request names one.
const Template = "desktop"

// The least and the greatest side of a desktop in pixels.
const (
	minSide = 200
	maxSide = 4096
)

// The size of a desktop in pixels unless the request has another.
const (
	defaultWidth  = 1024
	defaultHeight = 768
)

// environments are the rules for the container of a desktop, by the type of the environment.
var environments = map[string]rule.Rule{
	berth.EnvironmentAuto: rule.Object(rule.Fields{
		"type": rule.AnyText, "file_ids": rule.List(rule.Text(1, 256), 50), "memory_limit": rule.MemoryLimit,
		"network_policy": rule.ByType(rule.NetworkPolicies),
		"berth": rule.ContainerSource(rule.Fields{"on_lost": rule.OneOf(string(berth.OnLostFail),
			string(berth.OnLostNew))}),
	}),
	berth.EnvironmentReference: rule.Object(rule.Fields{"type": rule.AnyText, "container_id": rule.Text(1, 256)},
		"container_id"),
}

// environmentOf returns the container environment that a tool requests, or nil if the client
// controls the computer. A new container has the template Template unless the environment names
// another one or a snapshot.
func environmentOf(t berth.Tool) (*berth.ShellToolEnvironment, error) {
	computer, err := tool.Decode[berth.ComputerTool](t, "computer tool")
	if err != nil {
		return nil, err
	}
	var environment *berth.ShellToolEnvironment
	switch raw := bytes.TrimSpace(computer.Environment); {
	case computer.Type == berth.ToolComputerPreview:
		if computer.Berth == nil || computer.Berth.Environment == nil {
			return nil, nil
		}
		if w, h := computer.DisplayWidth, computer.DisplayHeight; min(w, h) < minSide || max(w, h) > maxSide {
			return nil, berth.Invalid("display_width",
				"A display of %d × %d pixels is not possible in a container. Each side has %d to %d pixels.", w, h,
				minSide, maxSide)
		}
		environment = computer.Berth.Environment
	case len(raw) == 0 || raw[0] != '{':
		if computer.Berth != nil {
			return nil, berth.Invalid("berth",
				"The size of a display is for a computer in a container. Set 'environment', or remove 'berth'.")
		}
		return nil, nil
	default:
		if err := json.Unmarshal(raw, &environment); err != nil {
			return nil, berth.Invalid("environment", "Invalid environment: %v.", err)
		}
	}
	if environment.Type != berth.EnvironmentAuto {
		return environment, nil
	}
	var source berth.ContainerSource
	if environment.Berth != nil {
		source = *environment.Berth
	}
	if source.Template == "" && source.SnapshotID == "" {
		source.Template = Template
	}
	settled := *environment
	settled.Berth = &source
	return &settled, nil
}

// settle returns a tool with a reference to its container.
func settle(t berth.Tool, id berth.ContainerID) (berth.Tool, error) {
	fields := map[string]json.RawMessage{}
	if err := t.Decode(&fields); err != nil {
		return t, fmt.Errorf("decode computer tool: %w", err)
	}
	reference := berth.ShellToolEnvironment{Type: berth.EnvironmentReference, ContainerID: id}
	name, value := "environment", any(reference)
	if t.Type() == berth.ToolComputerPreview {
		name, value = "berth", berth.ComputerToolBerth{Environment: &reference}
	}
	raw, err := json.Marshal(value)
	if err != nil {
		return t, fmt.Errorf("encode environment: %w", err)
	}
	fields[name] = raw
	return berth.NewTool(fields), nil
}

// inContainer reports whether the server carries out a call.
func inContainer(item berth.Item) bool {
	if !bytes.Contains(item.Raw(), []byte(`"container_id"`)) {
		return false
	}
	var c berth.ComputerCall
	return item.Decode(&c) == nil && c.Berth != nil && c.Berth.ContainerID != ""
}

// outcome returns how the actions of a call ended, by its output.
func outcome(output berth.Item) tool.Outcome {
	var out berth.ComputerCallOutput
	switch {
	case output.Decode(&out) != nil || out.Berth == nil:
		return tool.OK
	case out.Berth.Outcome == outcomeTimeout:
		return tool.TimedOut
	}
	return tool.Failed
}

// asks reports whether a call has safety checks, so that the client must approve it.
func asks(item berth.Item) bool {
	var c berth.ComputerCall
	return item.Decode(&c) == nil && len(c.PendingSafetyChecks) > 0
}

// commandsOf returns the actions of a call as lines that an approval policy matches:
// "click left 10 20", "type hello", "keypress CTRL+L", "screenshot".
func commandsOf(item berth.Item) []string {
	var c berth.ComputerCall
	if item.Decode(&c) != nil {
		return nil
	}
	var lines []string
	for _, a := range allOf(c) {
		lines = append(lines, line(a))
	}
	return lines
}

func line(a berth.ComputerAction) string {
	words := []string{a.Type}
	if a.Button != "" {
		words = append(words, a.Button)
	}
	for _, n := range []*int{a.X, a.Y, a.ScrollX, a.ScrollY} {
		if n != nil {
			words = append(words, strconv.Itoa(*n))
		}
	}
	for _, p := range a.Path {
		words = append(words, strconv.Itoa(p.X), strconv.Itoa(p.Y))
	}
	if a.Keys != nil && len(*a.Keys) > 0 {
		words = append(words, strings.Join(*a.Keys, "+"))
	}
	if a.Text != nil {
		words = append(words, *a.Text)
	}
	return strings.Join(words, " ")
}
