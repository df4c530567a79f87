package modeltest

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"regexp"
	"slices"
	"strings"
)

// anthropicMessages decodes a conversation and checks its order.
type anthropicMessages struct {
	*check
	request *anthropicRequest

	marks           int      // number of blocks with cache_control
	manual          bool     // thinking has a budget
	thinksByDefault bool     // the model thinks by default
	waiting         []string // ids of calls whose results must come next
	ids             map[string]bool
	prefix          string // what precedes the current message
}

type anthropicMessage struct {
	Role    string          `json:"role"`
	Content json.RawMessage `json:"content"`
}

type anthropicBlock struct {
	Type         string           `json:"type"`
	Text         *string          `json:"text"`
	Source       *anthropicSource `json:"source"`
	Title        string           `json:"title"`
	Context      any              `json:"context"`
	Citations    any              `json:"citations"`
	ID           string           `json:"id"`
	Name         string           `json:"name"`
	Input        json.RawMessage  `json:"input"`
	ToolUseID    string           `json:"tool_use_id"`
	Content      json.RawMessage  `json:"content"`
	IsError      *bool            `json:"is_error"`
	Thinking     *string          `json:"thinking"`
	Signature    string           `json:"signature"`
	Data         string           `json:"data"`
	CacheControl *anthropicCache  `json:"cache_control"`
}

type anthropicSource struct {
	Type      string `json:"type"`
	MediaType string `json:"media_type"`
	Data      string `json:"data"`
	URL       string `json:"url"`
}

var anthropicID = regexp.MustCompile(`^[a-zA-Z0-9_-]+$`)

func (m *anthropicMessages) cached(c *anthropicCache) {
	if c != nil {
		m.marks++
		m.want(c.Type == "ephemeral" && contains(c.TTL, "", "5m", "1h"), "cache_control: %+v", *c)
	}
}

// read returns the prefix of the answer: system, tools and messages without cache
// marks.
func (m *anthropicMessages) read(body []byte, got *Request) string {
	m.ids = map[string]bool{}
	prefixes := prefixesOf(body, len(m.request.Messages))
	m.system(got)
	m.want(len(m.request.Messages) > 0, "messages: at least one message is required")
	last := ""
	for i, raw := range m.request.Messages {
		var one anthropicMessage
		if !m.strictly(raw, "a message", &one) {
			return ""
		}
		m.want(contains(one.Role, "user", "assistant"), "messages.%d.role: %q", i, one.Role)
		m.want(i > 0 || one.Role == "user", "messages: first message must use the \"user\" role")
		m.want(one.Role != last, "messages: roles must alternate between \"user\" and \"assistant\"")
		last = one.Role
		m.prefix = prefixes[i]
		if one.Role == "user" {
			m.user(i, one.Content, got)
		} else {
			m.assistant(i, one.Content, got)
		}
	}
	m.want(last == "user",
		"This model does not support assistant message prefill. The conversation must end with a user message.")
	return prefixes[len(m.request.Messages)]
}

func (m *anthropicMessages) system(got *Request) {
	if m.request.System == nil || json.Unmarshal(m.request.System, &got.System) == nil {
		return
	}
	var texts []string
	for _, b := range m.blocks(-1, m.request.System) {
		if m.want(b.Type == "text", "system: a block of type %q", b.Type) {
			texts = append(texts, *b.Text)
		}
	}
	got.System = strings.Join(texts, "\n\n")
}

// blocks decodes content: a string, or non-empty blocks.
func (m *anthropicMessages) blocks(i int, raw json.RawMessage) []anthropicBlock {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		raw, _ = json.Marshal([]map[string]string{{"type": "text", "text": text}}) // strings always marshal
	}
	var list []json.RawMessage
	if !m.want(json.Unmarshal(raw, &list) == nil && len(list) > 0,
		"messages.%d: all messages must have non-empty content", i) {
		return nil
	}
	var out []anthropicBlock
	for _, one := range list {
		var b anthropicBlock
		if !m.strictly(one, "a content block", &b) {
			return nil
		}
		m.fields(i, &b, one)
		m.cached(b.CacheControl)
		if m.refusal != nil {
			return nil
		}
		out = append(out, b)
	}
	return out
}

// fieldsOf holds the valid fields of each type of block.
var fieldsOf = map[string]string{
	"text": "text citations", "image": "source", "document": "source title context citations",
	"tool_use":    "id name input",
	"tool_result": "tool_use_id content is_error", "thinking": "thinking signature", "redacted_thinking": "data",
}

func (m *anthropicMessages) fields(i int, b *anthropicBlock, raw json.RawMessage) {
	allowed, known := fieldsOf[b.Type]
	if !m.want(known, "messages.%d.content: a block of type %q", i, b.Type) {
		return
	}
	var given map[string]json.RawMessage
	_ = json.Unmarshal(raw, &given) // it was decoded before
	for name := range given {
		fits := name == "type" || name == "cache_control" && b.Type != "thinking" && b.Type != "redacted_thinking" ||
			slices.Contains(strings.Fields(allowed), name)
		m.want(fits, "messages.%d.content.%s.%s: Extra inputs are not permitted", i, b.Type, name)
	}
	if b.Type == "text" && m.want(b.Text != nil, "messages.%d.content.text: Field required", i) {
		m.want(strings.TrimSpace(*b.Text) != "", "messages: text content blocks must contain non-whitespace text")
	}
}

func (m *anthropicMessages) user(i int, raw json.RawMessage, got *Request) {
	msg := Message{Role: "user"}
	var texts []string
	other := false
	for _, b := range m.blocks(i, raw) {
		switch b.Type {
		case "tool_result":
			m.want(!other, "messages.%d: tool_result blocks must come before all others", i)
			got.Messages = append(got.Messages, m.result(i, &b))
			continue
		case "text":
			texts = append(texts, *b.Text)
		case "image", "document":
			m.media(i, &b, &msg)
		default:
			m.want(false, "messages.%d: a block of type %q in a user's message", i, b.Type)
		}
		other = true
	}
	m.want(len(m.waiting) == 0,
		"messages.%d: `tool_use` ids were found without `tool_result` blocks immediately after: %v", i-1, m.waiting)
	if msg.Text = strings.Join(texts, "\n"); other {
		got.Messages = append(got.Messages, msg)
	}
}

func (m *anthropicMessages) result(i int, b *anthropicBlock) Message {
	msg := Message{Role: "tool", CallID: b.ToolUseID}
	n := slices.Index(m.waiting, b.ToolUseID)
	if m.want(n >= 0, "messages.%d.content: unexpected `tool_use_id` found in `tool_result` blocks: %s.", i,
		b.ToolUseID) {
		m.waiting = slices.Delete(m.waiting, n, n+1)
	}
	if b.Content == nil || json.Unmarshal(b.Content, &msg.Text) == nil {
		return msg
	}
	var texts []string
	for _, part := range m.blocks(i, b.Content) {
		if part.Type == "text" {
			texts = append(texts, *part.Text)
		} else if m.want(contains(part.Type, "image", "document"), "messages.%d: a block of type %q in a tool_result",
			i, part.Type) {
			m.media(i, &part, &msg)
		}
	}
	msg.Text = strings.Join(texts, "\n")
	return msg
}

func (m *anthropicMessages) media(i int, b *anthropicBlock, msg *Message) {
	s := b.Source
	if !m.want(s != nil, "messages.%d.%s.source: Field required", i, b.Type) {
		return
	}
	_, err := base64.StdEncoding.DecodeString(s.Data)
	switch {
	case s.Type == "url":
		m.want(strings.HasPrefix(s.URL, "https://") && s.Data == "",
			"messages.%d.%s.source.url: Only HTTPS URLs are supported.", i, b.Type)
	case s.Type == "base64" && b.Type == "image":
		m.want(contains(s.MediaType, "image/png", "image/jpeg", "image/gif", "image/webp"),
			"messages.%d.image.source.media_type: %q", i, s.MediaType)
		m.want(err == nil && s.Data != "", "messages.%d.image.source: invalid base64 data", i)
	case s.Type == "base64":
		m.want(s.MediaType == "application/pdf" && err == nil && s.Data != "", "messages.%d.document.source: %q", i,
			s.MediaType)
	case s.Type == "text" && b.Type == "document":
		m.want(s.MediaType == "text/plain" && s.Data != "", "messages.%d.document.source: %q", i, s.MediaType)
	default:
		m.want(false, "messages.%d.%s.source.type: %q", i, b.Type, s.Type)
	}
	if b.Type == "document" {
		msg.Files = append(msg.Files, b.Title)
		return
	}
	url := s.URL
	if s.Type == "base64" {
		url = "data:" + s.MediaType + ";base64," + s.Data
	}
	msg.Images = append(msg.Images, url)
}

func (m *anthropicMessages) assistant(i int, raw json.RawMessage, got *Request) {
	msg := Message{Role: "assistant"}
	var texts []string
	blocks := m.blocks(i, raw)
	thought := func(b anthropicBlock) bool { return contains(b.Type, "thinking", "redacted_thinking") }
	for n, b := range blocks {
		switch b.Type {
		case "text":
			texts = append(texts, *b.Text)
		case "thinking", "redacted_thinking":
			m.want(n < len(blocks)-1, "messages.%d: The final block in an assistant message cannot be `thinking`.", i)
			m.thought(i, &b, &msg)
		case "tool_use":
			m.call(i, &b, &msg)
		default:
			m.want(false, "messages.%d: a block of type %q in an assistant's message", i, b.Type)
		}
	}
	last := i == len(m.request.Messages)-2
	if len(blocks) > 0 && m.manual && last && len(msg.Calls) > 0 {
		m.want(thought(blocks[0]),
			"messages.%d.content.0.type: Expected `thinking` or `redacted_thinking`, but found `%s`. When `thinking` is enabled, a final `assistant` message must start with a thinking block.",
			i, blocks[0].Type)
	}
	msg.Text = strings.Join(texts, "\n\n")
	got.Messages = append(got.Messages, msg)
}

// thought checks that a signature belongs to the model's family and, if thoughts are
// bound, to this conversation.
func (m *anthropicMessages) thought(i int, b *anthropicBlock, msg *Message) {
	_, claude := anthropicSince(m.request.Model, 0)
	m.want(!claude || m.request.Thinking != nil && m.request.Thinking.Type != "disabled" || m.thinksByDefault,
		"messages.%d: thoughts for a model that does not think", i)
	family := anthropicFamily(m.request.Model)
	of := func(prefix string) string {
		if b.Type == "redacted_thinking" {
			return sign("redacted", family, prefix)
		}
		return sign("thinking", family, prefix, *b.Thinking)
	}
	if b.Type == "thinking" && !m.want(b.Thinking != nil, "messages.%d.content.thinking.thinking: Field required", i) {
		return
	}
	if b.Signature+b.Data == of(m.prefix) {
		msg.Seals++
		if b.Thinking != nil {
			msg.Thought += *b.Thinking
		}
		return
	}
	binds, _ := anthropicSince(m.request.Model, 501)
	t := m.request.Thinking
	if binds && t != nil && t.Binding != nil && t.Binding.PrefixMismatchBehavior == "drop_block" {
		return
	}
	m.want(false, "messages.%d.content: Invalid `signature` in `%s` block", i, b.Type)
}

func (m *anthropicMessages) call(i int, b *anthropicBlock, msg *Message) {
	m.want(anthropicID.MatchString(b.ID),
		"messages.%d.content.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'", i)
	m.want(!m.ids[b.ID], "messages.%d: `tool_use` ids must be unique", i)
	m.ids[b.ID] = true
	m.want(functionName.MatchString(b.Name), "messages.%d.content.tool_use.name: %q", i, b.Name)
	m.want(bytes.HasPrefix(bytes.TrimSpace(b.Input), []byte("{")),
		"messages.%d.content.tool_use.input: Input should be an object", i)
	m.waiting = append(m.waiting, b.ID)
	msg.Calls = append(msg.Calls, Call{b.ID, b.Name, string(b.Input)})
}

// prefixesOf returns digests of what precedes each message, and of what precedes the
// answer.
func prefixesOf(body []byte, n int) []string {
	var r map[string]any
	_ = json.Unmarshal(body, &r) // it was decoded before
	messages, _ := r["messages"].([]any)
	text := func(v any) string {
		raw, _ := json.Marshal(unmarked(v)) // valid JSON always marshals
		return string(raw)
	}
	out := []string{sign(text(r["system"]), text(r["tools"]))}
	name, _ := r["model"].(string)
	if binds, _ := anthropicSince(name, 501); !binds {
		return make([]string, n+1) // thoughts are not bound
	}
	for i := range n {
		out = append(out, sign(out[i], text(messages[i])))
	}
	return out
}

// unmarked removes cache marks.
func unmarked(v any) any {
	switch v := v.(type) {
	case map[string]any:
		delete(v, "cache_control")
		for k := range v {
			v[k] = unmarked(v[k])
		}
	case []any:
		for i := range v {
			v[i] = unmarked(v[i])
		}
	}
	return v
}
