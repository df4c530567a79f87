package modeltest

import (
	"encoding/json"
	"slices"
	"strings"
)

// chatMessages decodes a conversation and checks its order.
type chatMessages struct {
	*check
	reasoning string
	waiting   []string // ids of calls that must be answered next
}

type chatMessage struct {
	Role             string          `json:"role"`
	Content          json.RawMessage `json:"content"`
	Name             string          `json:"name"`
	Refusal          *string         `json:"refusal"`
	ToolCalls        []chatCall      `json:"tool_calls"`
	ToolCallID       string          `json:"tool_call_id"`
	ReasoningContent string          `json:"reasoning_content"`
	Reasoning        string          `json:"reasoning"`
}

type chatCall struct {
	ID       string `json:"id"`
	Type     string `json:"type"`
	Function struct {
		Name      string  `json:"name"`
		Arguments *string `json:"arguments"`
	} `json:"function"`
}

type chatPart struct {
	Type     string  `json:"type"`
	Text     *string `json:"text"`
	Refusal  *string `json:"refusal"`
	ImageURL *struct {
		URL    string `json:"url"`
		Detail string `json:"detail"`
	} `json:"image_url"`
	File *struct {
		Filename string `json:"filename"`
		FileData string `json:"file_data"`
		FileID   string `json:"file_id"`
	} `json:"file"`
	InputAudio any `json:"input_audio"`
}

func (c *chatMessages) read(raw []json.RawMessage, got *Request) {
	c.want(len(raw) > 0, "messages must not be empty")
	for i, one := range raw {
		var m chatMessage
		if !c.strictly(one, "a message", &m) {
			return
		}
		msg := Message{Role: m.Role}
		c.order(i, &m)
		c.content(i, &m, &msg)
		c.calls(i, &m, &msg)
		if m.ReasoningContent+m.Reasoning != "" {
			field := "reasoning"
			if m.ReasoningContent != "" {
				field = "reasoning_content"
			}
			c.want(field == c.reasoning && m.Role == "assistant", "messages[%d] has an unknown field: %s", i, field)
			msg.Thought = m.ReasoningContent + m.Reasoning
		}
		if msg.Role == "developer" {
			msg.Role = "system"
		}
		if i == 0 && msg.Role == "system" {
			got.System = msg.Text
			continue
		}
		got.Messages = append(got.Messages, msg)
	}
	c.want(len(c.waiting) == 0, "the calls %v are not answered", c.waiting)
}

// order checks that each call is answered once and immediately.
func (c *chatMessages) order(i int, m *chatMessage) {
	switch m.Role {
	case "system", "developer", "user", "assistant":
		c.want(len(c.waiting) == 0, "messages[%d]: the calls %v are not answered before it", i, c.waiting)
		c.want(m.ToolCallID == "", "messages[%d]: tool_call_id in a message of role %s", i, m.Role)
	case "tool":
		n := slices.Index(c.waiting, m.ToolCallID)
		if c.want(n >= 0, "messages[%d]: no call %q waits for an answer", i, m.ToolCallID) {
			c.waiting = slices.Delete(c.waiting, n, n+1)
		}
	default:
		c.want(false, "messages[%d].role %q", i, m.Role)
	}
}

func (c *chatMessages) content(i int, m *chatMessage, msg *Message) {
	var missing = len(m.Content) == 0 || string(m.Content) == "null"
	if missing {
		c.want(m.Role == "assistant" && (len(m.ToolCalls) > 0 || m.Refusal != nil), "messages[%d] has no content", i)
		return
	}
	if json.Unmarshal(m.Content, &msg.Text) == nil {
		return
	}
	var parts []json.RawMessage
	if !c.want(json.Unmarshal(m.Content, &parts) == nil && len(parts) > 0,
		"messages[%d].content is neither text nor parts", i) {
		return
	}
	var texts []string
	for _, raw := range parts {
		var p chatPart
		if !c.strictly(raw, "a content part", &p) {
			return
		}
		if p.Type == "text" {
			if c.want(p.Text != nil, "messages[%d]: a text part without text", i) {
				texts = append(texts, *p.Text)
			}
			continue
		}
		c.want(m.Role == "user", "messages[%d]: role %s takes text only, not %s", i, m.Role, p.Type)
		c.media(i, &p, msg)
	}
	msg.Text = strings.Join(texts, "\n")
}

func (c *chatMessages) media(i int, p *chatPart, msg *Message) {
	switch p.Type {
	case "image_url":
		if c.want(p.ImageURL != nil && isImage(p.ImageURL.URL), "messages[%d]: an image is neither an address nor data",
			i) {
			c.want(slices.Contains([]string{"", "auto", "low", "high"}, p.ImageURL.Detail), "messages[%d]: detail %q",
				i, p.ImageURL.Detail)
			msg.Images = append(msg.Images, p.ImageURL.URL)
		}
	case "file":
		f := p.File
		if c.want(f != nil && (f.FileID != "" || f.Filename != "" && strings.HasPrefix(f.FileData, "data:")),
			"messages[%d]: a file has no name or no data: URL", i) {
			msg.Files = append(msg.Files, f.Filename)
		}
	case "input_audio":
	default:
		c.want(false, "messages[%d]: a part of type %q", i, p.Type)
	}
}

func (c *chatMessages) calls(i int, m *chatMessage, msg *Message) {
	msg.CallID = m.ToolCallID
	c.want(m.ToolCalls == nil || m.Role == "assistant" && len(m.ToolCalls) > 0, "messages[%d].tool_calls", i)
	for _, call := range m.ToolCalls {
		f := call.Function
		c.want(call.Type == "function", "messages[%d]: a call of type %q", i, call.Type)
		c.want(call.ID != "" && len(call.ID) <= 40, "messages[%d]: a call's id has %d characters", i, len(call.ID))
		c.want(!slices.Contains(c.waiting, call.ID), "messages[%d]: the id %s is there twice", i, call.ID)
		c.want(functionName.MatchString(f.Name), "messages[%d]: a call of %q", i, f.Name)
		c.waiting = append(c.waiting, call.ID)
		if !c.want(f.Arguments != nil, "messages[%d]: a call without arguments", i) {
			continue
		}
		// OpenAI takes any string; vLLM, llama.cpp and Ollama parse it.
		var object map[string]any
		c.want(json.Unmarshal([]byte(*f.Arguments), &object) == nil && object != nil,
			"messages[%d]: arguments %q are no JSON object", i, *f.Arguments)
		msg.Calls = append(msg.Calls, Call{call.ID, f.Name, *f.Arguments})
	}
}
