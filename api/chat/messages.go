package chat

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/request"
	"github.com/berth-run/berth/internal/rule"
)

// completionMessageRule checks an entry of "messages" by its role.
var completionMessageRule = rule.ByField("role", map[string]rule.Rule{
	"developer": rule.Object(rule.Fields{"role": rule.AnyText, "content": textOr(textParts), "name": rule.Text(0, 256)},
		"content"),
	"system": rule.Object(rule.Fields{"role": rule.AnyText, "content": textOr(textParts), "name": rule.Text(0, 256)},
		"content"),
	"user": rule.Object(rule.Fields{"role": rule.AnyText, "content": textOr(userParts), "name": rule.Text(0, 256)},
		"content"),
	"assistant": assistantMessage,
	// OpenAI's guide of 2023 put the function's name here, and LangGraph still sends it.
	"tool": rule.Object(rule.Fields{"role": rule.AnyText, "content": textOr(textParts), "tool_call_id": rule.Text(1,
		256), "name": rule.Text(0, 256)}, "content", "tool_call_id"),
	"function": rule.Object(rule.Fields{"role": rule.AnyText, "content": rule.AnyText, "name": rule.Text(1, 64)},
		"name"),
})

// assistantMessage allows the fields of answers, so that clients can send answers back.
func assistantMessage(at string, v any) error {
	if err := assistantFields(at, v); err != nil {
		return err
	}
	m := v.(map[string]any)
	if m["content"] == nil && m["refusal"] == nil && m["tool_calls"] == nil && m["function_call"] == nil {
		return rule.Missing(rule.Join(at, "content"))
	}
	return nil
}

var assistantFields = rule.Object(rule.Fields{
	"role": rule.AnyText, "content": textOr(assistantParts), "name": rule.Text(0, 256), "refusal": rule.AnyText,
	"tool_calls": rule.List(rule.ByType(completionCalls), 128),
	"function_call": rule.Object(rule.Fields{"name": rule.Text(1, 64), "arguments": rule.AnyText}, "name",
		"arguments"),
	"annotations":       rule.List(rule.AnyObject, 0), // of an answer; ignored
	"reasoning_content": rule.AnyText,                 // of an answer with include_reasoning
	"audio":             rule.Unsupported,
})

// completionCalls also allows the index of streamed calls, because clients that join chunks
// do not remove it.
var completionCalls = map[string]rule.Rule{
	"function": rule.Object(rule.Fields{"id": rule.Text(1, 256), "type": rule.AnyText, "index": rule.Integer(0,
		math.MaxInt32),
		"function": rule.Object(rule.Fields{"name": rule.Text(1, 64), "arguments": rule.AnyText}, "name", "arguments")},
		"id", "function"),
	"custom": rule.Object(rule.Fields{"id": rule.Text(1, 256), "type": rule.AnyText, "index": rule.Integer(0,
		math.MaxInt32),
		"custom": rule.Object(rule.Fields{"name": rule.Text(1, 64), "input": rule.AnyText}, "name", "input")}, "id",
		"custom"),
}

var (
	textPart = rule.Object(rule.Fields{"type": rule.AnyText, "text": rule.AnyText,
		"prompt_cache_breakpoint": rule.Unsupported}, "text")
	textParts = map[string]rule.Rule{"text": textPart}

	assistantParts = map[string]rule.Rule{
		"text":    textPart,
		"refusal": rule.Object(rule.Fields{"type": rule.AnyText, "refusal": rule.AnyText}, "refusal"),
	}

	userParts = map[string]rule.Rule{
		"text": textPart,
		"image_url": rule.Object(rule.Fields{"type": rule.AnyText, "prompt_cache_breakpoint": rule.Unsupported,
			"image_url": rule.Object(rule.Fields{
				"url": rule.ImageURL, "detail": rule.OneOf("auto", "low", "high"),
			}, "url")}, "image_url"),
		"file": rule.Object(rule.Fields{"type": rule.AnyText, "prompt_cache_breakpoint": rule.Unsupported,
			"file": rule.OneSource([]string{"file_data", "file_id"}, rule.Object(rule.Fields{
				"file_data": rule.AnyText, "file_id": rule.Text(1, 256), "filename": rule.Text(0, 1024),
			}))}, "file"),
		"input_audio": rule.UnsupportedKind("parts"),
	}
)

// textOr allows a string or a list of the given parts.
func textOr(parts map[string]rule.Rule) rule.Rule {
	return func(at string, v any) error {
		switch v.(type) {
		case string:
			return nil
		case []any:
			return rule.AtLeastOne(rule.List(rule.ByType(parts), 0))(at, v)
		}
		return rule.WrongType(at, "one of a string or array of objects", v)
	}
}

// A completionMessage is a message of a client, of any role.
type completionMessage struct {
	Role             string           `json:"role"`
	Content          json.RawMessage  `json:"content"` // a string, a list of completionPart, or null
	Name             string           `json:"name"`
	Refusal          *string          `json:"refusal"`
	ToolCalls        []completionCall `json:"tool_calls"`
	FunctionCall     *calledFunction  `json:"function_call"`
	ToolCallID       string           `json:"tool_call_id"`
	ReasoningContent string           `json:"reasoning_content"`
}

type completionPart struct {
	Type     string `json:"type"`
	Text     string `json:"text"`
	Refusal  string `json:"refusal"`
	ImageURL struct {
		URL    string `json:"url"`
		Detail string `json:"detail"`
	} `json:"image_url"`
	File struct {
		FileData string `json:"file_data"`
		FileID   string `json:"file_id"`
		Filename string `json:"filename"`
	} `json:"file"`
}

// A completionCall is a call in a message.
type completionCall struct {
	ID       string          `json:"id"`
	Type     string          `json:"type"` // "function" or "custom"
	Function *calledFunction `json:"function,omitempty"`
	Custom   *calledCustom   `json:"custom,omitempty"`
}

type calledCustom struct {
	Name  string `json:"name"`
	Input string `json:"input"`
}

type calledFunction struct {
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

// A transcript converts messages to items. As at OpenAI, calls must be followed by their
// outputs.
type transcript struct {
	items   []berth.Item
	waiting []string          // ids of calls without an output yet
	custom  map[string]bool   // whether a call id belongs to a custom tool
	legacy  map[string]string // ids of calls of legacy functions by the function's name
	at      string            // the place of the current message, as in OpenAI's errors
}

// input returns the messages as the input of a response.
func (c *completionRequest) input(rules *request.Rules) (berth.Input, error) {
	t := &transcript{custom: map[string]bool{}, legacy: map[string]string{}}
	for i := range c.Messages {
		t.at = fmt.Sprintf("messages.[%d].role", i)
		if err := t.read(&c.Messages[i]); err != nil {
			return nil, err
		}
	}
	if err := t.answered(); err != nil {
		return nil, err
	}
	for i, it := range t.items {
		var err error
		if t.items[i], err = rules.Normalize(it); err != nil {
			return nil, err
		}
	}
	return t.items, nil
}

func (t *transcript) read(m *completionMessage) error {
	switch m.Role {
	case "tool":
		return t.output(m.ToolCallID, m)
	case "function":
		id := t.legacy[m.Name]
		delete(t.legacy, m.Name)
		return t.output(id, m)
	}
	if err := t.answered(); err != nil {
		return err
	}
	if m.Role == "assistant" {
		return t.assistant(m)
	}
	content, err := m.parts("input_text")
	if err != nil {
		return err
	}
	t.message(m, content)
	return nil
}

// answered returns an error if a call has no output yet.
func (t *transcript) answered() error {
	if len(t.waiting) == 0 {
		return nil
	}
	return berth.Invalid(t.at,
		"An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. The following tool_call_ids did not have response messages: %s",
		rule.Clip(strings.Join(t.waiting, ", ")))
}

func (t *transcript) output(id string, m *completionMessage) error {
	n := slices.Index(t.waiting, id)
	if n < 0 {
		return berth.Invalid(t.at,
			"Invalid parameter: messages with role '%s' must be a response to a preceding message with '%s'.",
			m.Role, map[string]string{"tool": "tool_calls", "function": "function_call"}[m.Role])
	}
	t.waiting = slices.Delete(t.waiting, n, n+1)
	output := m.Content
	if !given(output) {
		output = json.RawMessage(`""`)
	}
	if output[0] != '"' {
		parts, err := m.parts("input_text")
		if err != nil {
			return err
		}
		if output, err = json.Marshal(parts); err != nil {
			return err
		}
	}
	if t.custom[id] {
		t.add(berth.CustomToolCallOutput{Type: berth.ItemCustomToolCallOutput, CallID: id, Output: output})
	} else {
		t.add(berth.FunctionCallOutput{Type: berth.ItemFunctionCallOutput, CallID: id, Output: output})
	}
	return nil
}

// assistant adds the items of one turn of the model: reasoning, a message and calls.
func (t *transcript) assistant(m *completionMessage) error {
	if m.ReasoningContent != "" {
		t.add(berth.Reasoning{ID: berth.NewID(berth.PrefixReasoning), Type: berth.ItemReasoning,
			Summary: []berth.Content{},
			Content: []berth.Content{{Type: "reasoning_text", Text: m.ReasoningContent}}})
	}
	content, err := m.parts("output_text")
	if err != nil {
		return err
	}
	if m.Refusal != nil && *m.Refusal != "" {
		content = append(content, berth.Content{Type: "refusal", Refusal: *m.Refusal})
	}
	if len(content) > 0 {
		t.message(m, content)
	}
	for _, c := range m.ToolCalls {
		if t.custom[c.ID] = c.Custom != nil; !t.custom[c.ID] {
			t.call(c.ID, c.Function)
			continue
		}
		t.waiting = append(t.waiting, c.ID)
		t.add(berth.CustomToolCall{Type: berth.ItemCustomToolCall, CallID: c.ID, Name: c.Custom.Name,
			Input: c.Custom.Input})
	}
	if m.FunctionCall != nil {
		id := berth.NewID(berth.PrefixCall)
		t.legacy[m.FunctionCall.Name], t.custom[id] = id, false
		t.call(id, m.FunctionCall)
	}
	return nil
}

func (t *transcript) call(id string, f *calledFunction) {
	t.waiting = append(t.waiting, id)
	t.add(berth.FunctionCall{Type: berth.ItemFunctionCall, CallID: id, Name: f.Name, Arguments: f.Arguments})
}

func (t *transcript) message(m *completionMessage, content []berth.Content) {
	t.add(berth.Message{Type: berth.ItemMessage, Role: m.Role, Name: m.Name, Content: content})
}

func (t *transcript) add(body any) { t.items = append(t.items, berth.NewItem(body)) }

// parts returns a message's content. words is the type of its text parts.
func (m *completionMessage) parts(words string) ([]berth.Content, error) {
	if !given(m.Content) {
		return nil, nil
	}
	var whole string
	if json.Unmarshal(m.Content, &whole) == nil {
		if whole == "" && m.Role == "assistant" {
			return nil, nil // with calls, some clients send "" instead of null
		}
		return []berth.Content{{Type: words, Text: whole}}, nil
	}
	var parts []completionPart
	if err := json.Unmarshal(m.Content, &parts); err != nil {
		return nil, fmt.Errorf("decode content: %w", err)
	}
	out := make([]berth.Content, len(parts))
	for i, p := range parts {
		switch p.Type {
		case "text":
			out[i] = berth.Content{Type: words, Text: p.Text}
		case "refusal":
			out[i] = berth.Content{Type: "refusal", Refusal: p.Refusal}
		case "image_url":
			out[i] = berth.Content{Type: "input_image", ImageURL: p.ImageURL.URL, Detail: p.ImageURL.Detail}
		case "file":
			out[i] = berth.Content{Type: "input_file", FileData: p.File.FileData, FileID: p.File.FileID,
				Filename: p.File.Filename}
		}
	}
	return out, nil
}
