package codeinterpreter

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/internal/rule"
	"github.com/berth-run/berth/tool"
)

// Kind returns the kind of code_interpreter.
func Kind(containers Containers, limits Limits) tool.Kind {
	return tool.Kind{
		Type: berth.ToolCode, Name: name, Rules: rules, Chat: inChat,
		Bind: func(c tool.Context, t berth.Tool) (tool.Tool, error) {
			environment, err := environmentOf(t)
			if err != nil {
				return nil, err
			}
			bound := New(environment.ContainerID, containers.Shell(c.Caller, environment.ContainerID), limits)
			bound.contents = containers.Contents(c.Caller.Project, environment.ContainerID)
			return bound, nil
		},
		Container: &tool.Container{Param: "container", Environment: environmentOf, Settle: settle},
		Calls: &tool.Calls{Call: berth.ItemCodeInterpreterCall, CallPrefix: berth.PrefixCodeCall,
			LowerCall: lowerCall, LowerOutput: lowerOutput, Hosted: func(berth.Item) bool { return true },
			Outcome: outcome, Outline: outline, Fill: fill, Draft: tool.FieldDraft("code"), Commands: commandsOf},
	}
}

var auto = rule.ByType(map[string]rule.Rule{"auto": rule.Object(rule.Fields{
	"type": rule.AnyText, "file_ids": rule.List(rule.Text(1, 256), 50), "memory_limit": rule.MemoryLimit,
	"network_policy": rule.ByType(rule.NetworkPolicies),
	"berth": rule.ContainerSource(rule.Fields{"on_lost": rule.OneOf(string(berth.OnLostFail),
		string(berth.OnLostNew))}),
})})

// container allows the id of a container, or an object of type auto.
func container(at string, v any) error {
	if _, ok := v.(string); ok {
		return rule.Text(1, 256)(at, v)
	}
	return auto(at, v)
}

func rules(*tool.Registry) tool.Rules {
	chosen := rule.Object(rule.Fields{"type": rule.AnyText})
	return tool.Rules{
		Tool: rule.Object(rule.Fields{"type": rule.AnyText, "container": container, "allowed_callers": rule.Callers},
			"container"),
		Choice: chosen, Subset: chosen,
		Call: rule.Item(rule.Fields{
			"code": rule.AnyText, "container_id": rule.Text(1, 256),
			"outputs": rule.List(rule.ByType(map[string]rule.Rule{
				"logs":  rule.OpenObject(rule.Fields{"type": rule.AnyText, "logs": rule.AnyText}, "logs"),
				"image": rule.OpenObject(rule.Fields{"type": rule.AnyText, "url": rule.AnyText}, "url"),
			}), 0),
		}, "id", "code"),
	}
}

// inChat describes the tool in Chat Completions, where the container may be omitted.
var inChat = &tool.Chat{
	Tool:   rule.Object(rule.Fields{"type": rule.AnyText, "container": container}),
	Choice: rule.Object(rule.Fields{"type": rule.AnyText}),
	Convert: func(entry json.RawMessage) (berth.Tool, error) {
		fields := map[string]json.RawMessage{}
		if err := json.Unmarshal(entry, &fields); err != nil {
			return berth.Tool{}, fmt.Errorf("decode tool: %w", err)
		}
		if fields["container"] == nil {
			fields["container"] = json.RawMessage(`{"type":"auto"}`)
		}
		return berth.NewTool(fields), nil
	},
}

// environmentOf returns the environment of a tool's container in the form that a shell
// requests it.
func environmentOf(t berth.Tool) (*berth.ShellToolEnvironment, error) {
	var entry struct {
		Container json.RawMessage `json:"container"`
	}
	if err := t.Decode(&entry); err != nil {
		return nil, berth.Invalid("container", "Invalid container: %v.", err)
	}
	environment := &berth.ShellToolEnvironment{Type: berth.EnvironmentReference}
	if bytes.HasPrefix(entry.Container, []byte(`"`)) {
		if err := json.Unmarshal(entry.Container, &environment.ContainerID); err != nil {
			return nil, fmt.Errorf("decode container: %w", err)
		}
		return environment, nil
	}
	if err := json.Unmarshal(entry.Container, environment); err != nil {
		return nil, berth.Invalid("container", "Invalid container: %v.", err)
	}
	environment.Type = berth.EnvironmentAuto
	return environment, nil
}

// settle returns a tool with the id of its container.
func settle(t berth.Tool, id berth.ContainerID) (berth.Tool, error) {
	fields := map[string]json.RawMessage{}
	if err := t.Decode(&fields); err != nil {
		return t, err
	}
	fields["container"] = berth.StringDelta(string(id))
	return berth.NewTool(fields), nil
}

func lowerCall(item berth.Item) (function, arguments string, err error) {
	var call struct {
		Code string `json:"code"`
	}
	if err := item.Decode(&call); err != nil {
		return name, "", err
	}
	raw, err := marshal(call)
	return name, string(raw), err
}

// marshal returns JSON in which <, > and & are not escaped: models read code as it is.
func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(v)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}

// lowerOutput returns the outputs of a call as text: its logs, and lines that stand for
// images. An item in progress has no output yet.
func lowerOutput(item berth.Item) (json.RawMessage, error) {
	if s := item.Status(); s == berth.StatusInProgress || s == berth.StatusIncomplete || s == "interpreting" {
		return nil, nil
	}
	var call berth.CodeInterpreterCall
	if err := item.Decode(&call); err != nil {
		return nil, err
	}
	var text strings.Builder
	images := 0
	for _, o := range call.Outputs {
		if o.Type != "image" {
			text.WriteString(o.Logs)
			continue
		}
		images++
		if s := text.String(); s != "" && !strings.HasSuffix(s, "\n") {
			text.WriteByte('\n')
		}
		media, _, _ := strings.Cut(strings.TrimPrefix(o.URL, "data:"), ";")
		fmt.Fprintf(&text, "[image %d: %s, about %d kB, shown to the user]\n", images, media, len(o.URL)*3/4/1000)
	}
	if call.Berth != nil && call.Berth.Restarted {
		return berth.StringDelta(restartedText + text.String()), nil
	}
	if text.Len() == 0 {
		return berth.StringDelta("(no output)"), nil
	}
	return berth.StringDelta(text.String()), nil
}

func outcome(item berth.Item) tool.Outcome {
	var call berth.CodeInterpreterCall
	if item.Decode(&call) != nil || call.Berth == nil {
		return tool.OK
	}
	switch call.Berth.Outcome {
	case "":
		return tool.OK
	case outcomeTimeout:
		return tool.TimedOut
	}
	return tool.Failed
}

// outline returns the code and the outputs of a call.
func outline(item berth.Item) []string {
	_, arguments, _ := lowerCall(item)
	lines := []string{"code_interpreter_call: " + arguments}
	if output, err := lowerOutput(item); err == nil && output != nil {
		lines = append(lines, "output: "+string(output))
	}
	return lines
}

func fill(it berth.Item, add map[string]any) error {
	held := map[string]json.RawMessage{}
	if err := it.Decode(&held); err != nil {
		return err
	}
	for name, value := range map[string]any{"container_id": "", "outputs": nil, "status": berth.StatusCompleted} {
		if held[name] == nil {
			add[name] = value
		}
	}
	return nil
}

// commandsOf returns the code of a call, which an approval policy matches.
func commandsOf(item berth.Item) []string {
	var call berth.CodeInterpreterCall
	if item.Decode(&call) != nil {
		return nil
	}
	return []string{call.Code}
}
