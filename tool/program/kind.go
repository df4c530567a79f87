// Package program is the programmatic_tool_calling tool, with which a model runs a program in
// JavaScript that calls other tools. The engine makes the calls; the program runs in a child
// process without privileges.
package program

import (
	"encoding/json"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/internal/rule"
	"github.com/berth-run/berth/tool"
	"github.com/berth-run/berth/tool/program/javascript"
)

// Kind returns the tool.
func Kind() tool.Kind {
	runner := javascript.NewRunner(javascript.DefaultCPU)
	return tool.Kind{
		Type: berth.ToolProgrammatic, Name: name,
		Rules: func(*tool.Registry) tool.Rules {
			typed := rule.Object(rule.Fields{"type": rule.AnyText})
			text := rule.Text(0, rule.MaxOutput)
			return tool.Rules{Tool: typed, Found: typed, Choice: typed, Subset: typed,
				Call: rule.Item(rule.Fields{"call_id": rule.Text(1, 64), "code": text, "fingerprint": text}, "id",
					"call_id", "code", "fingerprint"),
				Output: rule.Item(rule.Fields{"call_id": rule.Text(1, 64), "result": text,
					"status": rule.OneOf("completed", "incomplete")}, "id", "call_id", "result", "status")}
		},
		Bind: func(tool.Context, berth.Tool) (tool.Tool, error) { return &Tool{runner: runner}, nil },
		Calls: &tool.Calls{Call: berth.ItemProgram, Output: berth.ItemProgramOutput,
			CallPrefix: berth.PrefixProgram, OutputPrefix: berth.PrefixProgramOutput,
			LowerCall: lowerCall, LowerOutput: lowerOutput, Outcome: outcome,
			Hosted: func(berth.Item) bool { return true }},
	}
}

func lowerCall(item berth.Item) (function, arguments string, err error) {
	var p berth.Program
	if err := item.Decode(&p); err != nil {
		return "", "", err
	}
	raw, err := json.Marshal(map[string]string{"code": p.Code})
	return name, string(raw), err
}

// lowerOutput returns the result of a program, marked as data: it may be made of what a
// stranger's tool has sent.
func lowerOutput(item berth.Item) (json.RawMessage, error) {
	var out berth.ProgramOutput
	if err := item.Decode(&out); err != nil {
		return nil, err
	}
	if out.Result == "" {
		return berth.StringDelta("The program ended without output. Only what it writes with text() is returned."), nil
	}
	return berth.StringDelta(tool.Fence("the program", out.Result)), nil
}

func outcome(output berth.Item) tool.Outcome {
	if output.Status() == berth.StatusIncomplete {
		return tool.Failed
	}
	return tool.OK
}
