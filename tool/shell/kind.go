package shell

import (
	"context"
	"embed"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/internal/rule"
	"github.com/berth-run/berth/tool"
)

// Alias is the type by which some requests name the shell.
const Alias = "bash"

// A DefaultEnvironment returns the type of environment of a project's shells without one: EnvironmentAuto or
// EnvironmentLocal.
type DefaultEnvironment func(context.Context, berth.ProjectID) (string, error)

// Kind returns the shell tool, whose calls run in containers. A nil DefaultEnvironment always means
// EnvironmentAuto.
func Kind(containers Containers, limits Limits, byDefault DefaultEnvironment) tool.Kind {
	return tool.Kind{
		Type: berth.ToolShell, Name: name, Alias: Alias, Rules: rules, Chat: inChat, Advice: advise,
		Complete: func(ctx context.Context, c berth.Caller, t berth.Tool) (berth.Tool, error) {
			return complete(ctx, c.Project, t, byDefault)
		},
		Bind: func(c tool.Context, t berth.Tool) (tool.Tool, error) {
			var shell berth.ShellTool
			if err := t.Decode(&shell); err != nil {
				return nil, err
			}
			if shell.Environment == nil {
				return New(nil, nil, limits), nil
			}
			environment := &berth.ShellEnvironment{Type: shell.Environment.Type,
				ContainerID: shell.Environment.ContainerID}
			if shell.Environment.Type == berth.EnvironmentLocal {
				bound := New(environment, nil, limits)
				if len(shell.Environment.Skills) == 0 {
					return bound, nil
				}
				return bound, json.Unmarshal(shell.Environment.Skills, &bound.skills)
			}
			bound := New(environment, containers.Shell(c.Caller, shell.Environment.ContainerID), limits)
			bound.skills = shown(containers.Skills(c.Caller.Project, shell.Environment.ContainerID))
			bound.contents = containers.Contents(c.Caller.Project, shell.Environment.ContainerID)
			return bound, nil
		},
		Container: &tool.Container{Environment: environmentOf, Settle: settle},
		Calls: &tool.Calls{Call: berth.ItemShellCall, Output: berth.ItemShellCallOutput,
			CallPrefix: berth.PrefixShellCall, OutputPrefix: berth.PrefixShellCallOutput,
			LowerCall: lowerCall, LowerOutput: lowerOutput, Hosted: inContainer, Outcome: outcome, Outline: outline,
			Fill:  fill,
			Draft: func() tool.Draft { return &draft{} }, Commands: commandsOf, Script: script},
	}
}

var localEnvironment = rule.Object(rule.Fields{"type": rule.AnyText, "skills": rule.LocalSkills})

// environments are the rules for the environments of a shell, by type.
var environments = map[string]rule.Rule{
	berth.EnvironmentAuto: rule.Object(rule.Fields{
		"type": rule.AnyText, "file_ids": rule.List(rule.Text(1, 256), 50), "memory_limit": rule.MemoryLimit,
		"network_policy": rule.ByType(rule.NetworkPolicies), "skills": rule.Skills,
		"berth": rule.ContainerSource(rule.Fields{"on_lost": rule.OneOf(string(berth.OnLostFail),
			string(berth.OnLostNew))}),
	}),
	berth.EnvironmentReference: rule.Object(rule.Fields{"type": rule.AnyText, "container_id": rule.Text(1, 256)},
		"container_id"),
	berth.EnvironmentLocal: localEnvironment,
}

// inChat describes the shell in Chat Completions, where its commands always run in a
// container: a client has no form in which to answer them.
var inChat = &tool.Chat{
	Tool: rule.Object(rule.Fields{"type": rule.AnyText, "environment": rule.ByType(map[string]rule.Rule{
		berth.EnvironmentAuto:      environments[berth.EnvironmentAuto],
		berth.EnvironmentReference: environments[berth.EnvironmentReference],
		berth.EnvironmentLocal:     rule.UnsupportedKind("environments of Chat Completions"),
	})}),
	Choice: rule.Object(rule.Fields{"type": rule.AnyText}),
	Convert: func(entry json.RawMessage) (berth.Tool, error) {
		var t struct {
			Environment *berth.ShellToolEnvironment `json:"environment"`
		}
		if err := json.Unmarshal(entry, &t); err != nil {
			return berth.Tool{}, fmt.Errorf("decode tool: %w", err)
		}
		if t.Environment == nil {
			t.Environment = &berth.ShellToolEnvironment{Type: berth.EnvironmentAuto}
		}
		return berth.NewTool(berth.ShellTool{Type: berth.ToolShell, Environment: t.Environment}), nil
	},
}

func rules(*tool.Registry) tool.Rules {
	offered := func(environments map[string]rule.Rule) rule.Rule {
		return rule.Object(rule.Fields{"type": rule.AnyText, "environment": rule.ByType(environments),
			"allowed_callers": rule.Callers})
	}
	chosen := rule.Object(rule.Fields{"type": rule.AnyText})
	number := rule.Integer(0, math.MaxInt32)
	code := rule.Integer(math.MinInt32, math.MaxInt32)
	return tool.Rules{
		Tool: offered(environments),
		// Only the tools of a request get a container.
		Found:  offered(map[string]rule.Rule{berth.EnvironmentLocal: localEnvironment}),
		Choice: chosen, Subset: chosen,
		Call: rule.Call(rule.Fields{
			"action": rule.OpenObject(rule.Fields{
				"commands": rule.List(rule.AnyText, 0), "timeout_ms": number, "max_output_length": number,
			}, "commands"),
			"environment": rule.ByType(map[string]rule.Rule{
				berth.EnvironmentReference: rule.OpenObject(rule.Fields{"type": rule.AnyText,
					"container_id": rule.Text(1, 256)}, "container_id"),
				berth.EnvironmentLocal: rule.OpenObject(rule.Fields{"type": rule.AnyText,
					"container_id": rule.AnyText}),
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

// adviceFiles hold one file for each family of models, about its mistakes with the shell.
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

// complete returns a shell with an environment.
func complete(ctx context.Context, p berth.ProjectID, t berth.Tool, byDefault DefaultEnvironment) (berth.Tool, error) {
	environment := berth.EnvironmentAuto
	fields := map[string]json.RawMessage{}
	if err := t.Decode(&fields); err != nil {
		return t, err
	}
	if held := fields["environment"]; held != nil && string(held) != "null" {
		return t, nil
	}
	if byDefault != nil {
		var err error
		if environment, err = byDefault(ctx, p); err != nil {
			return t, fmt.Errorf("read default environment: %w", err)
		}
	}
	if environment == berth.EnvironmentLocal {
		return t, nil // as the client wrote it
	}
	fields["environment"] = json.RawMessage(`{"type":"` + environment + `"}`)
	return berth.NewTool(fields), nil
}

// environmentOf returns the container environment that a shell requests, or nil if its
// commands run on the client's machine.
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

// settle returns a shell with a reference to its container and all other fields
// unchanged.
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
	// strings and numbers always marshal
	arguments, _ := json.Marshal(berth.ShellAction{Commands: commands, TimeoutMS: timeoutMS})
	return string(arguments)
}

// outline returns the commands of a call as one line, and each command of an output as
// one line. A line contains the line breaks of its commands and their output.
func outline(item berth.Item) []string {
	if item.Type() == berth.ItemShellCall {
		return []string{"shell_call: " + strings.Join(commandsOf(item), "\n")}
	}
	var out berth.ShellCallOutput
	_ = item.Decode(&out) // an output that cannot be read has no lines
	var lines []string
	for _, c := range out.Output {
		end := c.Outcome.Type
		if c.Outcome.ExitCode != nil {
			end = fmt.Sprintf("exit %d", *c.Outcome.ExitCode)
		}
		lines = append(lines, fmt.Sprintf("shell_call_output: %s\nstdout: %sstderr: %s", end, c.Stdout, c.Stderr))
	}
	return lines
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

// nulls are the fields that an item shows as null when a client omits them, by the object
// that holds them; "" is the item itself.
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
			return fmt.Errorf("decode %s: %w", within, err)
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

// A draft collects the streamed commands of a call.
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
