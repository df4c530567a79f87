package berth

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
)

// An Item is one element of a response's input or output: a message, reasoning,
// a call or a call's output. It holds its JSON, with the most used fields decoded.
// Unknown fields and types are preserved. An Item is immutable and safe for concurrent use.
// It is as small as a pointer: each turn of a conversation copies the list of all its items.
type Item struct{ shared *itemData }

type itemData struct {
	head itemHead
	raw  json.RawMessage
	text atomic.Pointer[Message] // what TextMessage returns, or notText; nil before its first call
}

// noItem has the data of the zero Item.
var noItem = &itemData{}

func (it Item) data() *itemData {
	if it.shared == nil {
		return noItem
	}
	return it.shared
}

type itemHead struct {
	ID     string   `json:"id"`
	Type   ItemType `json:"type"`
	Status Status   `json:"status"`
	Role   string   `json:"role"`
	CallID string   `json:"call_id"`
}

// scan reads the head of an item in its usual form, and passes over the other values, which may be
// images. It returns false for any other form, and h is undefined then.
func (h *itemHead) scan(b []byte) bool {
	s := jsonText{rest: b}
	return s.object(func(key []byte) bool {
		switch string(key) {
		case "id":
			return s.string(&h.ID)
		case "type":
			return s.string((*string)(&h.Type))
		case "status":
			return s.string((*string)(&h.Status))
		case "role":
			return s.string(&h.Role)
		case "call_id":
			return s.string(&h.CallID)
		}
		unusual := func(c byte) bool { return (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '_' }
		return !slices.ContainsFunc(key, unusual) && s.pass() // package json knows the names in another case, too
	})
}

// An ItemType is the "type" of an item.
type ItemType string

const (
	ItemMessage   ItemType = "message"
	ItemReasoning ItemType = "reasoning"
	ItemReference ItemType = "item_reference"

	ItemFunctionCall         ItemType = "function_call"
	ItemFunctionCallOutput   ItemType = "function_call_output"
	ItemCustomToolCall       ItemType = "custom_tool_call"
	ItemCustomToolCallOutput ItemType = "custom_tool_call_output"
	ItemShellCall            ItemType = "shell_call"
	ItemShellCallOutput      ItemType = "shell_call_output"
	ItemCodeInterpreterCall  ItemType = "code_interpreter_call"
	ItemTextEditorCall       ItemType = "text_editor_call"
	ItemLocalShellCall       ItemType = "local_shell_call"
	ItemLocalShellCallOutput ItemType = "local_shell_call_output"
	ItemApplyPatchCall       ItemType = "apply_patch_call"
	ItemApplyPatchCallOutput ItemType = "apply_patch_call_output"
	ItemToolSearchCall       ItemType = "tool_search_call"
	ItemToolSearchOutput     ItemType = "tool_search_output"

	ItemProgram       ItemType = "program"
	ItemProgramOutput ItemType = "program_output"

	ItemComputerCall       ItemType = "computer_call"
	ItemComputerCallOutput ItemType = "computer_call_output"

	ItemFileSearchCall ItemType = "file_search_call"
	ItemWebSearchCall  ItemType = "web_search_call"

	ItemImageGenerationCall ItemType = "image_generation_call"

	ItemMCPCall          ItemType = "mcp_call"
	ItemMCPListTools     ItemType = "mcp_list_tools"
	ItemApprovalRequest  ItemType = "mcp_approval_request"
	ItemApprovalResponse ItemType = "mcp_approval_response" // in input

	// ItemAdditionalTools adds tools for the items after it.
	ItemAdditionalTools ItemType = "additional_tools"
)

// NewItem makes an item of a typed body, such as a Message or a ShellCall.
// It panics if body does not marshal to a JSON object, which the types of this
// package always do.
func NewItem(body any) Item {
	raw, err := json.Marshal(body)
	if err != nil {
		panic(fmt.Sprintf("berth: NewItem(%T): %v", body, err))
	}
	var it Item
	if err := it.UnmarshalJSON(raw); err != nil {
		panic(fmt.Sprintf("berth: NewItem(%T): %v", body, err))
	}
	return it
}

// Tool returns the type of the tool that the item calls, such as "shell"; "" if it is no call. The types are few:
// those of functions and MCP servers are "function" and "mcp", whatever their names.
func (it Item) Tool() string {
	switch it.Type() {
	case ItemFunctionCall, ItemCustomToolCall, ItemShellCall, ItemCodeInterpreterCall, ItemTextEditorCall,
		ItemLocalShellCall, ItemApplyPatchCall, ItemToolSearchCall, ItemComputerCall, ItemFileSearchCall,
		ItemWebSearchCall, ItemImageGenerationCall, ItemMCPCall:
		return strings.TrimSuffix(strings.TrimSuffix(string(it.Type()), "_call"), "_tool") // custom_tool_call
	case ItemProgram:
		return "programmatic_tool_calling"
	}
	return ""
}

func (it Item) Type() ItemType { return it.data().head.Type }
func (it Item) ID() string     { return it.data().head.ID }
func (it Item) CallID() string { return it.data().head.CallID }
func (it Item) Status() Status { return it.data().head.Status }
func (it Item) Role() string   { return it.data().head.Role }
func (it Item) IsZero() bool   { return it.data().raw == nil }

// Raw returns the item's JSON. The caller must not change it.
func (it Item) Raw() json.RawMessage { return it.data().raw }

// String returns the item's JSON.
func (it Item) String() string { return string(it.Raw()) }

// notText marks an item that is no message of text.
var notText = &Message{}

// TextMessage returns the item as a message, if it has nothing but text in its usual form:
// no image, file or annotation. Otherwise it returns nil. It decodes an item once. The caller
// must not change the message.
func (it Item) TextMessage() *Message {
	d := it.data()
	m := d.text.Load()
	if m == nil {
		m = &Message{}
		if t := d.head.Type; t != ItemMessage && t != "" || !m.decodeText(d.raw) {
			m = notText
		}
		d.text.Store(m)
	}
	if m == notText {
		return nil
	}
	return m
}

// Decode reads the item into a typed body, such as a *Message.
func (it Item) Decode(body any) error {
	if m, ok := body.(*Message); ok {
		return m.UnmarshalJSON(it.Raw()) // which is valid
	}
	return json.Unmarshal(it.Raw(), body)
}

// With returns a copy of the item with the given fields set. Its callers complete
// items: they add a missing id or a final status.
func (it Item) With(fields map[string]any) (Item, error) {
	all := map[string]json.RawMessage{}
	if err := json.Unmarshal(it.Raw(), &all); err != nil {
		return Item{}, err
	}
	for k, v := range fields {
		raw, err := json.Marshal(v)
		if err != nil {
			return Item{}, err
		}
		all[k] = raw
	}
	raw, err := json.Marshal(all)
	if err != nil {
		return Item{}, err
	}
	var out Item
	err = out.UnmarshalJSON(raw)
	return out, err
}

func (it Item) MarshalJSON() ([]byte, error) {
	if it.IsZero() {
		return []byte("null"), nil
	}
	return it.Raw(), nil
}

// UnmarshalJSON keeps a copy of b, which must be valid JSON.
func (it *Item) UnmarshalJSON(b []byte) error {
	b = bytes.TrimSpace(b)
	if len(b) == 0 || b[0] != '{' {
		return errors.New("an item must be a JSON object")
	}
	var head itemHead
	if !head.scan(b) {
		head = itemHead{}
		if err := json.Unmarshal(b, &head); err != nil {
			return err
		}
	}
	it.shared = &itemData{head: head, raw: bytes.Clone(b)}
	return nil
}

// A Message is text (or images and files) from the user, the developer or the model.
type Message struct {
	ID      string    `json:"id,omitempty"`
	Type    ItemType  `json:"type"` // "message"
	Status  Status    `json:"status,omitempty"`
	Content []Content `json:"content"`
	Phase   string    `json:"phase,omitempty"` // of an assistant's message: commentary or final_answer
	Role    string    `json:"role"`            // user, assistant, system or developer
	Name    string    `json:"name,omitempty"`  // of the author, if several share a role; Chat Completions only
}

// Content is one part of a message. Which fields are set depends on Type:
// input_text, input_image, input_file, output_text, refusal, summary_text or
// reasoning_text.
type Content struct {
	Type        string            `json:"type"`
	Annotations []json.RawMessage `json:"annotations,omitempty"`
	Logprobs    []json.RawMessage `json:"logprobs,omitempty"`
	Text        string            `json:"text,omitempty"`
	Refusal     string            `json:"refusal,omitempty"`
	Detail      string            `json:"detail,omitempty"`
	ImageURL    string            `json:"image_url,omitempty"` // http(s): or data: URL
	FileID      string            `json:"file_id,omitempty"`
	FileData    string            `json:"file_data,omitempty"` // data: URL or base64
	FileURL     string            `json:"file_url,omitempty"`
	Filename    string            `json:"filename,omitempty"`
}

// MarshalJSON writes the fields of each type as OpenAI does: annotations and logprobs
// of output text are lists, never null or absent, and an empty text is present.
func (c Content) MarshalJSON() ([]byte, error) {
	switch c.Type {
	case "output_text":
		return json.Marshal(struct {
			Type        string            `json:"type"`
			Annotations []json.RawMessage `json:"annotations"`
			Logprobs    []json.RawMessage `json:"logprobs"`
			Text        string            `json:"text"`
		}{c.Type, orEmpty(c.Annotations), orEmpty(c.Logprobs), c.Text})
	case "refusal":
		return json.Marshal(struct {
			Type    string `json:"type"`
			Refusal string `json:"refusal"`
		}{c.Type, c.Refusal})
	case "input_text", "summary_text", "reasoning_text":
		return json.Marshal(struct {
			Type string `json:"type"`
			Text string `json:"text"`
		}{c.Type, c.Text})
	}
	type plain Content
	return json.Marshal(plain(c))
}

func orEmpty[T any](s []T) []T {
	if s == nil {
		return []T{}
	}
	return s
}

// UnmarshalJSON of a message accepts the short form in which content is a string.
func (m *Message) UnmarshalJSON(b []byte) error {
	if m.decodeText(b) {
		return nil
	}
	return m.decode(b)
}

// decode reads a message of any form.
func (m *Message) decode(b []byte) error {
	type plain Message
	var short struct {
		plain
		Content json.RawMessage `json:"content"`
	}
	if err := json.Unmarshal(b, &short); err != nil {
		return err
	}
	*m = Message(short.plain)
	content := bytes.TrimSpace(short.Content)
	if len(content) > 0 && content[0] == '"' {
		var text string
		if err := json.Unmarshal(content, &text); err != nil {
			return err
		}
		m.Content = []Content{shortContent(m.Role, text)}
		return nil
	}
	if len(content) == 0 {
		return errors.New("a message needs content")
	}
	return json.Unmarshal(content, &m.Content)
}

// Reasoning is a model's reasoning before its answer. EncryptedContent is readable
// only for the provider that created it, or it is Berth's own encryption of Content.
type Reasoning struct {
	ID               string    `json:"id"`
	Type             ItemType  `json:"type"` // "reasoning"
	Summary          []Content `json:"summary"`
	Content          []Content `json:"content,omitempty"`
	EncryptedContent string    `json:"encrypted_content,omitempty"`
	Status           Status    `json:"status,omitempty"`
}
