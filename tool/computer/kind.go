package computer

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/internal/jsonscan"
	"github.com/berth-run/berth/internal/rule"
	"github.com/berth-run/berth/tool"
)

// Kinds returns the computer tools. Their calls and outputs are the same items.
func Kinds(containers Containers, limits Limits) []tool.Kind {
	if limits.Timeout <= 0 {
		limits.Timeout = 10 * time.Minute
	}
	calls := &tool.Calls{Call: berth.ItemComputerCall, Output: berth.ItemComputerCallOutput,
		CallPrefix: berth.PrefixComputerCall, OutputPrefix: berth.PrefixComputerOutput,
		LowerCall: lowerCall, LowerOutput: lowerOutput, CheckOutput: checkOutput, Fill: fill,
		Hosted: inContainer, Outcome: outcome, Commands: commandsOf, Asks: asks}
	pixels, side := rule.Integer(1, math.MaxInt16), rule.Integer(minSide, maxSide)
	platform := rule.OneOf("windows", "mac", "linux", "ubuntu", "browser")
	return []tool.Kind{
		kind(berth.ToolComputer, calls, containers, limits,
			rule.Object(rule.Fields{"type": rule.AnyText, "environment": rule.ByType(environments),
				"berth": rule.Object(rule.Fields{"display_width": side, "display_height": side}, "display_width",
					"display_height")}),
			rule.Object(rule.Fields{"type": rule.AnyText})),
		kind(berth.ToolComputerPreview, calls, containers, limits,
			rule.Object(rule.Fields{"type": rule.AnyText, "display_width": pixels, "display_height": pixels,
				"environment": platform,
				"berth":       rule.Object(rule.Fields{"environment": rule.ByType(environments)})}, "display_width",
				"display_height", "environment"),
			rule.Object(rule.Fields{"type": rule.AnyText, "display_width": pixels, "display_height": pixels,
				"environment": platform},
				"display_width", "display_height", "environment")),
	}
}

// kind returns a computer tool. Only the first one has the rules of the items.
func kind(toolType string, calls *tool.Calls, containers Containers, limits Limits, offered,
	found rule.Rule) tool.Kind {
	param := "environment"
	if toolType == berth.ToolComputerPreview {
		param = "berth.environment"
	}
	return tool.Kind{
		Type: toolType, Name: toolType, Calls: calls,
		Rules: func(*tool.Registry) tool.Rules {
			chosen := rule.Object(rule.Fields{"type": rule.AnyText})
			rules := tool.Rules{Tool: offered, Found: found, // only the tools of a request get a container
				Choice: chosen, Subset: chosen}
			if toolType == berth.ToolComputer {
				rules.Call, rules.Output = callRule, outputRule
			}
			return rules
		},
		Bind: func(c tool.Context, t berth.Tool) (tool.Tool, error) {
			computer, err := tool.Decode[berth.ComputerTool](t, "computer tool")
			if err != nil {
				return nil, err
			}
			bound := &Tool{computer: computer, limits: limits}
			environment, err := environmentOf(t)
			switch {
			case err != nil:
				return nil, err
			case environment != nil:
				if b := computer.Berth; b != nil && toolType == berth.ToolComputer {
					bound.computer.DisplayWidth, bound.computer.DisplayHeight = b.DisplayWidth, b.DisplayHeight
				}
				bound.container = environment.ContainerID
				bound.exec = containers.Shell(c.Caller, environment.ContainerID)
			case c.IsNative(toolType):
				bound.native = &t
			}
			return bound, nil
		},
		Container: &tool.Container{Environment: environmentOf, Settle: settle, Param: param},
	}
}

var actionRule = func() rule.Rule {
	number := rule.Integer(math.MinInt32, math.MaxInt32)
	keys := rule.List(rule.AnyText, 0)
	place := func(more rule.Fields, required ...string) rule.Rule {
		fields := rule.Fields{"type": rule.AnyText, "x": number, "y": number, "keys": keys}
		for name, r := range more {
			fields[name] = r
		}
		return rule.OpenObject(fields, append(required, "x", "y")...)
	}
	plain := rule.OpenObject(rule.Fields{"type": rule.AnyText})
	return rule.ByType(map[string]rule.Rule{
		berth.ActionClick: place(rule.Fields{"button": rule.OneOf("left", "right", "wheel", "back", "forward")},
			"button"),
		berth.ActionDoubleClick: place(nil),
		berth.ActionMove:        place(nil),
		berth.ActionScroll:      place(rule.Fields{"scroll_x": number, "scroll_y": number}, "scroll_x", "scroll_y"),
		berth.ActionDrag: rule.OpenObject(rule.Fields{"type": rule.AnyText, "keys": keys,
			"path": rule.List(rule.OpenObject(rule.Fields{"x": number, "y": number}, "x", "y"), 0)}, "path"),
		berth.ActionKeypress: rule.OpenObject(rule.Fields{"type": rule.AnyText, "keys": keys}, "keys"),
		berth.ActionType: rule.OpenObject(rule.Fields{"type": rule.AnyText, "text": rule.Text(0, rule.MaxOutput)},
			"text"),
		berth.ActionScreenshot: plain, berth.ActionWait: plain,
	})
}()

var checks = rule.List(rule.OpenObject(rule.Fields{"id": rule.Text(1, 256), "code": rule.AnyText,
	"message": rule.AnyText}, "id"), 0)

var callRule = rule.Call(rule.Fields{"action": actionRule, "actions": rule.List(actionRule, 0),
	"pending_safety_checks": checks})

var outputRule = rule.Call(rule.Fields{
	"output": rule.ByType(map[string]rule.Rule{"computer_screenshot": rule.OneSource([]string{"image_url", "file_id"},
		rule.OpenObject(rule.Fields{"type": rule.AnyText, "image_url": rule.ImageURL, "file_id": rule.Text(1, 256)}))}),
	"acknowledged_safety_checks": checks, "current_url": rule.Text(0, 1<<16),
}, "output")

// fill sets the checks of a call, which the wire always shows.
func fill(it berth.Item, fields map[string]any) error {
	var c berth.ComputerCall
	if it.Type() != berth.ItemComputerCall {
		return nil
	}
	if err := it.Decode(&c); err != nil {
		return fmt.Errorf("decode computer call: %w", err)
	}
	if c.PendingSafetyChecks == nil {
		fields["pending_safety_checks"] = []berth.SafetyCheck{}
	}
	return nil
}

// lowerCall returns a call of the function of the tool that makes such items.
func lowerCall(it berth.Item) (function, text string, err error) {
	var c struct {
		Action              json.RawMessage     `json:"action"`
		Actions             []json.RawMessage   `json:"actions"`
		PendingSafetyChecks []berth.SafetyCheck `json:"pending_safety_checks"`
	}
	if err := it.Decode(&c); err != nil {
		return "", "", fmt.Errorf("decode computer call: %w", err)
	}
	lowered := map[string]any{}
	function = berth.ToolComputer
	if len(c.Action) > 0 && string(c.Action) != "null" {
		function, lowered["action"] = berth.ToolComputerPreview, c.Action
	} else {
		lowered["actions"] = append([]json.RawMessage{}, c.Actions...)
	}
	if reasons := messages(c.PendingSafetyChecks); len(reasons) > 0 {
		lowered["safety_checks"] = reasons
	}
	raw, err := json.Marshal(lowered)
	if err != nil {
		return "", "", fmt.Errorf("encode computer call: %w", err)
	}
	return function, string(raw), nil
}

// messages returns the texts of checks.
func messages(checks []berth.SafetyCheck) (texts []string) {
	for _, c := range checks {
		if c.Message != nil {
			texts = append(texts, *c.Message)
		}
	}
	return texts
}

// lowerOutput returns the screenshot, with what the client says about it. Each turn shows a model
// all screenshots of a chain, so this copies them without a look at them.
func lowerOutput(it berth.Item) (json.RawMessage, error) {
	rest, picture := withoutImage(it.Raw())
	var out berth.ComputerCallOutput
	if err := json.Unmarshal(rest, &out); err != nil {
		return nil, fmt.Errorf("decode computer output: %w", err)
	}
	if url := out.Output.ImageURL; url != "" { // it is written in an unusual form
		var err error
		if picture, err = json.Marshal(url); err != nil {
			return nil, fmt.Errorf("encode screenshot: %w", err)
		}
	}
	type part struct {
		Type   string       `json:"type"`
		Text   string       `json:"text,omitempty"`
		FileID berth.FileID `json:"file_id,omitempty"`
		Detail string       `json:"detail,omitempty"`
	}
	var parts []part
	shown := out.Berth == nil || !out.Berth.Blank
	if shown {
		parts = append(parts, part{Type: "input_image", FileID: out.Output.FileID, Detail: "auto"})
	}
	if out.Berth != nil {
		parts = append(parts, part{Type: "input_text", Text: tool.FenceAs("why the call failed", out.Berth.Message)})
	}
	if out.CurrentURL != "" {
		parts = append(parts, part{Type: "input_text", Text: tool.Fence("the browser's address", out.CurrentURL)})
	}
	if len(out.AcknowledgedSafetyChecks) > 0 {
		parts = append(parts, part{Type: "input_text", Text: "The user agreed to this call."})
	}
	raw, err := json.Marshal(parts)
	if err != nil {
		return nil, fmt.Errorf("encode screenshot: %w", err)
	}
	if shown && picture != nil {
		raw = slices.Concat([]byte(`[{"image_url":`), picture, []byte(","), bytes.TrimPrefix(raw, []byte("[{")))
	}
	return raw, nil
}

// withoutImage cuts the image out of the JSON of an output, and returns it as a JSON string, or nil if
// there is none.
func withoutImage(raw json.RawMessage) (rest, picture json.RawMessage) {
	from, to, ok := jsonscan.Field(raw, "output")
	if !ok {
		return raw, nil
	}
	start, end, ok := jsonscan.Field(raw[from:to], "image_url")
	if start, end = from+start, from+end; !ok || raw[start] != '"' || end-start == 2 {
		return raw, nil
	}
	return slices.Concat(raw[:start], []byte(`""`), raw[end:]), raw[start:end]
}

// checkOutput refuses the output of a call whose safety checks the client did not
// acknowledge.
func checkOutput(it, output berth.Item) error {
	var c berth.ComputerCall
	var out berth.ComputerCallOutput
	if err := it.Decode(&c); err != nil {
		return fmt.Errorf("decode computer call: %w", err)
	}
	if len(c.PendingSafetyChecks) == 0 {
		return nil
	}
	if err := output.Decode(&out); err != nil {
		return fmt.Errorf("decode computer output: %w", err)
	}
	for _, pending := range c.PendingSafetyChecks {
		if !slices.ContainsFunc(out.AcknowledgedSafetyChecks, func(s berth.SafetyCheck) bool {
			return s.ID == pending.ID
		}) {
			return berth.Invalid("acknowledged_safety_checks",
				"The safety check '%s' of computer call '%s' was not acknowledged. Ask the user, then list it in 'acknowledged_safety_checks' of the output.",
				pending.ID, c.CallID)
		}
	}
	return nil
}
