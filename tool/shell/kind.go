package shell

import (
	"embed"
	"encoding/json"
	"math"
	"slices"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/internal/rule"
	"github.com/berth-run/berth/tool"
)

// Kind returns the shell tool, whose calls run in containers.
func Kind(containers Containers, limits Limits) tool.Kind {
	return tool.Kind{
		Type: berth.ToolShell, Name: name, Rules: rules, Advice: advise,
		Bind: func(c tool.Context, t berth.Tool) (tool.Tool, error) {
			var shell berth.ShellTool
			if err := t.Decode(&shell); err != nil {
				return nil, err
			}
			if shell.Environment == nil {
				return New(nil, nil, limits), nil
			}
			environment := &berth.ShellEnvironment{Type: shell.Environment.Type, ContainerID: shell.Environment.ContainerID}
			if shell.Environment.Type == berth.EnvironmentLocal {
				return New(environment, nil, limits), nil
			}
			return New(environment, containers.Shell(c.Caller, shell.Environment.ContainerID), limits), nil
		},
		Container: &tool.Container{Environment: environmentOf, Settle: settle},
		Calls: &tool.Calls{Call: berth.ItemShellCall, Output: berth.ItemShellCallOutput,
			CallPrefix: berth.PrefixShellCall, OutputPrefix: berth.PrefixShellCallOutput,
			LowerCall: lowerCall, LowerOutput: lowerOutput, Hosted: inContainer, Outcome: outcome, Fill: fill,
			Draft: func() tool.Draft { return &draft{} }, Commands: commandsOf, Script: script},
	}
}

var localEnvironment = rule.Object(rule.Fields{"type": rule.AnyText, "skills": rule.UnsupportedUnlessEmpty})

// Environments are the rules for the environments of a shell, by type.
var Environments = map[string]rule.Rule{
	berth.EnvironmentAuto: rule.Object(rule.Fields{
		"type": rule.AnyText, "file_ids": rule.List(rule.Text(1, 256), 50), "memory_limit": rule.MemoryLimit,
		"network_policy": rule.ByType(rule.NetworkPolicies), "skills": rule.UnsupportedUnlessEmpty,
		"berth": rule.ContainerSource(rule.Fields{"on_lost": rule.OneOf(string(berth.OnLostFail), string(berth.OnLostNew))}),
	}),
	berth.EnvironmentReference: rule.Object(rule.Fields{"type": rule.AnyText, "container_id": rule.Text(1, 256)}, "container_id"),
	berth.EnvironmentLocal:     localEnvironment,
}

func rules(*tool.Registry) tool.Rules {
	offered := func(environments map[string]rule.Rule) rule.Rule {
		return rule.Object(rule.Fields{"type": rule.AnyText, "environment": rule.ByType(environments), "allowed_callers": rule.Callers})
	}
	chosen := rule.Object(rule.Fields{"type": rule.AnyText})
	number := rule.Integer(0, math.MaxInt32)
	code := rule.Integer(math.MinInt32, math.MaxInt32)
	return tool.Rules{
		Tool: offered(Environments),
		// A container is settled with the request only.
		Found:  offered(map[string]rule.Rule{berth.EnvironmentLocal: localEnvironment}),
		Choice: chosen, Subset: chosen,
		Call: rule.Call(rule.Fields{
			"action": rule.OpenObject(rule.Fields{
				"commands": rule.List(rule.AnyText, 0), "timeout_ms": number, "max_output_length": number,
			}, "commands"),
			"environment": rule.ByType(map[string]rule.Rule{
				berth.EnvironmentReference: rule.OpenObject(rule.Fields{"type": rule.AnyText, "container_id": rule.Text(1, 256)}, "container_id"),
				berth.EnvironmentLocal:     rule.OpenObject(rule.Fields{"type": rule.AnyText, "container_id": rule.AnyText}),
			}),
		}, "action"),
		Output: rule.Call(rule.Fields{
			"max_output_length": number,
			"output": rule.List(rule.OpenObject(rule.Fields{
				"stdout": rule.AnyText, "stderr": rule.AnyText, "outcome": rule.ByType(map[string]rule.Rule{
					"exit":    rule.OpenObject(rule.Fields{"type": rule.AnyText, "exit_code": code}, "exit_code"),
					"timeout": rule.OpenObject(rule.Fields{"type": rule.AnyText, "exit_code": code}),
				}),
			}, "stdout", "stderr", "outcome"), 0),
		}, "output"),
	}
}

// adviceFiles hold what models get wrong about the shell, a file a family.
//
//go:embed advice/*.md
var adviceFiles embed.FS

func advise(family string) string {
	text, err := adviceFiles.ReadFile("advice/" + family + ".md")
	if err != nil {
		panic(err) // each family has its file
	}
	return string(text)
}

// environmentOf returns the environment that a shell asks a container for, or nil.
func environmentOf(t berth.Tool) (*berth.ShellToolEnvironment, error) {
	var shell berth.ShellTool
	if err := t.Decode(&shell); err != nil {
		return nil, err
	}
	if shell.Environment == nil || shell.Environment.Type == berth.EnvironmentLocal {
		return nil, nil
	}
	return shell.Environment, nil
}

// settle returns a shell with a reference to its container, other fields unchanged.
func settle(t berth.Tool, id berth.ContainerID) (berth.Tool, error) {
	fields := map[string]json.RawMessage{}
	if err := t.Decode(&fields); err != nil {
		return t, err
	}
	environment, err := json.Marshal(berth.ShellEnvironment{Type: berth.EnvironmentReference, ContainerID: id})
	if err != nil {
		return t, err
	}
	fields["environment"] = environment
	return berth.NewTool(fields), nil
}

// inContainer reports whether a shell call names a container.
func inContainer(item berth.Item) bool {
	var call struct {
		Environment *berth.ShellEnvironment `json:"environment"`
	}
	return item.Decode(&call) == nil && call.Environment != nil && call.Environment.Type == berth.EnvironmentReference
}

// commandsOf returns the commands of a call.
func commandsOf(item berth.Item) []string {
	var call berth.ShellCall
	if item.Decode(&call) != nil {
		return nil
	}
	return call.Action.Commands
}

// script returns the arguments of a call that runs commands.
func script(commands []string, timeoutMS *int) string {
	arguments, _ := json.Marshal(berth.ShellAction{Commands: commands, TimeoutMS: timeoutMS}) // strings and numbers always marshal
	return string(arguments)
}

// outcome returns how the commands of an output ended.
func outcome(item berth.Item) tool.Outcome {
	var out berth.ShellCallOutput
	if item.Decode(&out) != nil {
		return tool.OK
	}
	switch {
	case slices.ContainsFunc(out.Output, func(c berth.ShellContent) bool { return c.Outcome.Type == "timeout" }):
		return tool.TimedOut
	case slices.ContainsFunc(out.Output, func(c berth.ShellContent) bool {
		return c.Outcome.Type != "exit" || c.Outcome.ExitCode == nil || *c.Outcome.ExitCode != 0
	}):
		return tool.Failed
	}
	return tool.OK
}

// nulls are the fields that an item shows as null when a client leaves them out, by the
// object that holds them; "" is the item itself.
var nulls = map[berth.ItemType]map[string][]string{
	berth.ItemShellCall:       {"": {"environment"}, "action": {"max_output_length", "timeout_ms"}},
	berth.ItemShellCallOutput: {"": {"max_output_length"}},
}

func fill(it berth.Item, add map[string]any) error {
	held := map[string]json.RawMessage{}
	if err := it.Decode(&held); err != nil {
		return err
	}
	for within, names := range nulls[it.Type()] {
		if within == "" {
			for _, name := range names {
				if held[name] == nil {
					add[name] = nil
				}
			}
			continue
		}
		inner := map[string]json.RawMessage{}
		if err := json.Unmarshal(held[within], &inner); err != nil {
			return err
		}
		n := len(inner)
		for _, name := range names {
			if inner[name] == nil {
				inner[name] = json.RawMessage("null")
			}
		}
		if len(inner) > n {
			add[within] = inner
		}
	}
	return nil
}

// A draft collects the commands of a call as they are streamed.
type draft struct {
	commands []string
	text     []byte // of the command that is open
}

func (d *draft) Add(ev *berth.Event) {
	switch ev.Type {
	case berth.EventShellCommandAdded:
		d.commands = append(d.commands, "")
	case berth.EventShellCommandDone:
		if n := len(d.commands); n > 0 && ev.Command != nil {
			d.commands[n-1] = *ev.Command
		}
		d.text = nil
	case berth.EventShellCommandDelta:
		text, _ := ev.DeltaText()
		d.text = append(d.text, text...)
	}
}

func (d *draft) Fields(it berth.Item) map[string]any {
	var call berth.ShellCall
	n := len(d.commands)
	if it.Decode(&call) != nil || n == 0 {
		return nil
	}
	if len(d.text) > 0 {
		d.commands[n-1] = string(d.text)
	}
	call.Action.Commands = d.commands
	return map[string]any{"action": call.Action}
}
