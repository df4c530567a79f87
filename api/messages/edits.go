package messages

import (
	"bytes"
	"encoding/json"
	"math"
	"slices"

	"github.com/berth-run/berth/internal/rule"
)

// The edits of context_management that this server applies. Others change nothing.
const (
	editToolUses = "clear_tool_uses_20250919"
	editThinking = "clear_thinking_20251015"
	editCompact  = "compact_20260112"
)

// A contextManagement is the value of "context_management".
type contextManagement struct {
	Edits []contextEdit `json:"edits"`
}

// A contextEdit clears old parts of the messages before a model gets them. Which fields are set depends on the type.
type contextEdit struct {
	Type         string          `json:"type"`
	Trigger      *editLimit      `json:"trigger"`           // default 100,000 tokens
	Keep         json.RawMessage `json:"keep"`              // a limit, or "all"
	ClearAtLeast *editLimit      `json:"clear_at_least"`    // of tokens, or nothing is cleared
	ExcludeTools []string        `json:"exclude_tools"`     // whose results stay
	ClearInputs  json.RawMessage `json:"clear_tool_inputs"` // true, or the names of tools
	Instructions string          `json:"instructions"`
	Pause        bool            `json:"pause_after_compaction"`
}

// An editLimit is a number of input_tokens, tool_uses or thinking_turns.
type editLimit struct {
	Type  string `json:"type"`
	Value int    `json:"value"`
}

// The defaults of edits.
const (
	defaultTrigger   = 100_000 // tokens
	defaultToolUses  = 3
	defaultThoughtOf = 1       // turns
	defaultCompact   = 150_000 // tokens
)

// A toolUsesCleared reports an edit of tool uses.
type toolUsesCleared struct {
	Type   string `json:"type"`
	Tokens int    `json:"cleared_input_tokens"`
	Uses   int    `json:"cleared_tool_uses"`
}

// A thinkingCleared reports an edit of thoughts.
type thinkingCleared struct {
	Type   string `json:"type"`
	Tokens int    `json:"cleared_input_tokens"`
	Turns  int    `json:"cleared_thinking_turns"`
}

var limitRule = rule.OpenObject(rule.Fields{"type": rule.OneOf("input_tokens", "tool_uses"),
	"value": rule.Integer(0, math.MaxInt32)}, "type", "value")

// editRules are the rules of the edits by their type.
var editRules = map[string]rule.Rule{
	editToolUses: rule.OpenObject(rule.Fields{"trigger": limitRule, "keep": limitRule, "clear_at_least": limitRule,
		"exclude_tools": rule.List(rule.Text(1, 200), 512), "clear_tool_inputs": inputsRule}),
	editThinking: rule.OpenObject(rule.Fields{"keep": keepRule}),
	editCompact: rule.OpenObject(rule.Fields{"instructions": rule.Text(0, 64<<10),
		"pause_after_compaction": rule.Boolean,
		"trigger": rule.OpenObject(rule.Fields{"type": rule.OneOf("input_tokens"),
			"value": rule.Integer(1, math.MaxInt32)}, "type", "value")}),
}

// contextRule checks context_management.
var contextRule = rule.OpenObject(rule.Fields{"edits": rule.List(editRule, 32)})

// editRule checks an edit. One of an unknown type is allowed.
func editRule(at string, v any) error {
	obj, ok := v.(map[string]any)
	if !ok {
		return rule.WrongType(at, "an object", v)
	}
	kind, ok := obj["type"].(string)
	if !ok {
		return rule.WrongType(rule.Join(at, "type"), "a string", obj["type"])
	}
	if check := editRules[kind]; check != nil {
		return check(at, v)
	}
	return nil
}

// keepRule allows "all" or a number of turns.
func keepRule(at string, v any) error {
	if v == "all" {
		return nil
	}
	return rule.ByType(map[string]rule.Rule{"all": rule.OpenObject(rule.Fields{}),
		"thinking_turns": rule.OpenObject(rule.Fields{"value": rule.Integer(1, math.MaxInt32)}, "value")})(at, v)
}

// inputsRule allows a boolean or the names of tools.
func inputsRule(at string, v any) error {
	if _, ok := v.(bool); ok {
		return nil
	}
	return rule.List(rule.Text(1, 200), 512)(at, v)
}

// edit applies the edits of a request to its messages, and returns what each has cleared.
func (m *messageRequest) edit() (applied []any) {
	for i := range m.ContextManagement.Edits {
		switch e := &m.ContextManagement.Edits[i]; e.Type {
		case editToolUses:
			if tokens, uses := m.clearToolUses(e); uses > 0 {
				applied = append(applied, toolUsesCleared{e.Type, tokens, uses})
			}
		case editThinking:
			if tokens, turns := m.clearThinking(e); turns > 0 {
				applied = append(applied, thinkingCleared{e.Type, tokens, turns})
			}
		}
	}
	return applied
}

// clearedTokens returns the tokens that the edits have cleared.
func (m *messageRequest) clearedTokens() (sum int) {
	for _, edit := range m.applied {
		switch edit := edit.(type) {
		case toolUsesCleared:
			sum += edit.Tokens
		case thinkingCleared:
			sum += edit.Tokens
		}
	}
	return sum
}

// tokensOf estimates the tokens of a text.
func tokensOf(bytes int) int { return bytes / 4 }

// size returns the bytes of a block's content.
func (b *contentBlock) size() int {
	return len(b.Text) + len(b.Source) + len(b.Input) + len(b.Content) + len(b.Thinking) + len(b.Data)
}

// size returns the bytes of the messages, the system prompt and the tools.
func (m *messageRequest) size() (n int) {
	for _, t := range m.Messages {
		for i := range t.Content {
			n += t.Content[i].size()
		}
	}
	for i := range m.System {
		n += m.System[i].size()
	}
	for i := range m.Tools {
		n += len(m.Tools[i].Description) + len(m.Tools[i].InputSchema)
	}
	return n
}

// A toolUse is a call of a client's tool and its result.
type toolUse struct{ call, result *contentBlock }

// cleared replaces the result of a call.
var cleared = json.RawMessage(`"The result was cleared to keep the conversation short."`)

// toolUses returns the calls that have a result, oldest first.
func (m *messageRequest) toolUses() []toolUse {
	var uses []toolUse
	for _, t := range m.Messages {
		for i := range t.Content {
			switch b := &t.Content[i]; b.Type {
			case "tool_use":
				uses = append(uses, toolUse{call: b})
			case "tool_result":
				at := slices.IndexFunc(uses, func(u toolUse) bool {
					return u.result == nil && u.call.ID == b.ToolUseID
				})
				if at >= 0 {
					uses[at].result = b
				}
			}
		}
	}
	return slices.DeleteFunc(uses, func(u toolUse) bool { return u.result == nil })
}

// clearToolUses clears the results of old calls.
func (m *messageRequest) clearToolUses(e *contextEdit) (tokens, count int) {
	trigger, keep := editLimit{"input_tokens", defaultTrigger}, editLimit{Value: defaultToolUses}
	if e.Trigger != nil {
		trigger = *e.Trigger
	}
	if len(e.Keep) > 0 {
		decodeInput(e.Keep, &keep)
	}
	uses := m.toolUses()
	if trigger.Type == "tool_uses" && len(uses) <= trigger.Value ||
		trigger.Type == "input_tokens" && tokensOf(m.size()) <= trigger.Value {
		return 0, 0
	}
	old := slices.DeleteFunc(uses[:max(0, len(uses)-keep.Value)], func(u toolUse) bool {
		return slices.Contains(e.ExcludeTools, u.call.Name) || bytes.Equal(u.result.Content, cleared)
	})
	freed := 0
	for _, u := range old {
		freed += len(u.result.Content) - len(cleared)
		if e.clearsInput(u.call.Name) {
			freed += len(u.call.Input) - len("{}")
		}
	}
	if tokens = tokensOf(max(0, freed)); e.ClearAtLeast != nil && tokens < e.ClearAtLeast.Value {
		return 0, 0
	}
	for _, u := range old {
		u.result.Content = cleared
		if e.clearsInput(u.call.Name) {
			u.call.Input = json.RawMessage("{}")
		}
	}
	return tokens, len(old)
}

// clearsInput reports whether the inputs of old calls of a tool are cleared too.
func (e *contextEdit) clearsInput(name string) bool {
	var names []string
	decodeInput(e.ClearInputs, &names) // a boolean names none
	return string(e.ClearInputs) == "true" || slices.Contains(names, name)
}

// clearThinking removes the thoughts of old turns.
func (m *messageRequest) clearThinking(e *contextEdit) (tokens, turns int) {
	keep := editLimit{Value: defaultThoughtOf}
	if len(e.Keep) > 0 {
		decodeInput(e.Keep, &keep)
	}
	if string(e.Keep) == `"all"` || keep.Type == "all" {
		return 0, 0
	}
	thinks := func(b contentBlock) bool { return b.Type == "thinking" || b.Type == "redacted_thinking" }
	freed, seen := 0, 0
	for i := range slices.Backward(m.Messages) {
		t := &m.Messages[i]
		if t.Role != "assistant" || !slices.ContainsFunc(t.Content, thinks) {
			continue
		}
		if seen++; seen <= keep.Value {
			continue
		}
		turns++
		for j := range t.Content {
			if thinks(t.Content[j]) {
				freed += t.Content[j].size()
			}
		}
		t.Content = slices.DeleteFunc(t.Content, thinks)
	}
	return tokensOf(freed), turns
}
