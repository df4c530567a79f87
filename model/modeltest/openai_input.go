package modeltest

import (
	"encoding/json"
	"regexp"
	"strings"
)

// responsesInput decodes a conversation and checks its items. Consecutive output of
// the model becomes one message, followed by the outputs of its calls.
type responsesInput struct {
	*check
	turn     *Message           // the open message of the assistant
	calls    map[string]int     // number of calls by id
	outputs  map[string]Message // by call id
	loose    string             // reasoning that nothing has followed yet
	started  bool               // a message has been decoded
	owned    []string           // ids of open calls of the vendor's computer
	answered bool               // its calls are answered, so further output is another message
}

type responsesItem struct {
	Type   string `json:"type"`
	ID     string `json:"id"`
	Status string `json:"status"`

	Role    string          `json:"role"`
	Content json.RawMessage `json:"content"`
	Phase   string          `json:"phase"`

	CallID    string          `json:"call_id"`
	Name      string          `json:"name"`
	Arguments *string         `json:"arguments"`
	Input     *string         `json:"input"` // of a custom tool's call
	Output    json.RawMessage `json:"output"`

	Summary          []responsesPart `json:"summary"`
	EncryptedContent string          `json:"encrypted_content"`
}

type responsesPart struct {
	Type        string  `json:"type"`
	Text        *string `json:"text"`
	Refusal     *string `json:"refusal"`
	Annotations any     `json:"annotations"`
	Logprobs    any     `json:"logprobs"`
	ImageURL    string  `json:"image_url"`
	Detail      string  `json:"detail"`
	FileID      string  `json:"file_id"`
	FileData    string  `json:"file_data"`
	FileURL     string  `json:"file_url"`
	Filename    string  `json:"filename"`
}

// fieldsOfItem holds the valid fields of each type of item.
var fieldsOfItem = map[string]string{
	"message": "role content phase", "function_call": "call_id name arguments",
	"function_call_output": "call_id output",
	"reasoning":            "summary content encrypted_content", "custom_tool_call": "call_id name input",
	"custom_tool_call_output": "call_id output",
}

var itemID = map[string]*regexp.Regexp{
	"message":          regexp.MustCompile(`^msg_[a-zA-Z0-9_-]{1,60}$`),
	"function_call":    regexp.MustCompile(`^fc_[a-zA-Z0-9_-]{1,61}$`),
	"custom_tool_call": regexp.MustCompile(`^ctc_`), "custom_tool_call_output": regexp.MustCompile(`^ctco_`),
	"function_call_output": regexp.MustCompile(`^(fc|fco)_`),
	"reasoning":            regexp.MustCompile(`^rs_[a-zA-Z0-9_-]{1,61}$`),
}

func (in *responsesInput) read(raw []json.RawMessage, got *Request) {
	in.want(raw != nil, "Missing required parameter: 'input'.")
	for i, one := range raw {
		var head struct{ Type string }
		in.want(json.Unmarshal(one, &head) == nil, "Invalid type for 'input[%d]'", i)
		if head.Type == "" {
			head.Type = "message"
		}
		allowed, known := fieldsOfItem[head.Type]
		if !known {
			in.other(i, head.Type)
			in.own(i, head.Type, one, got)
			continue
		}
		var it responsesItem
		if !in.strictly(one, "an item", &it) || !in.fields(i, head.Type, allowed, one, &it) {
			return
		}
		switch head.Type {
		case "message":
			in.message(i, &it, got)
		case "custom_tool_call":
			it.Arguments = it.Input
			in.call(i, &it, got)
		case "function_call":
			in.call(i, &it, got)
		case "function_call_output", "custom_tool_call_output":
			in.output(i, &it)
		case "reasoning":
			in.reasoning(i, &it, got)
		}
	}
	in.end(got)
	in.place(got)
}

// other accepts items of the vendor's own tools without checks.
func (in *responsesInput) other(i int, kind string) {
	in.want(contains(kind, "web_search_call", "file_search_call", "compaction", "mcp_call", "item_reference",
		"image_generation_call", "computer_call", "computer_call_output"),
		"Invalid value: '%s'. Supported values are: …", kind)
	in.loose = ""
}

func (in *responsesInput) fields(i int, kind, allowed string, raw json.RawMessage, it *responsesItem) bool {
	var given map[string]json.RawMessage
	_ = json.Unmarshal(raw, &given) // it was decoded before
	for name := range given {
		in.want(contains(name, append(strings.Fields(allowed), "type", "id", "status")...),
			"Unknown parameter: 'input[%d].%s'.", i, name)
	}
	in.want(it.ID == "" || itemID[kind].MatchString(it.ID),
		"Invalid 'input[%d].id': '%s'. Expected an ID that fits '%s'.", i, it.ID, kind)
	return in.want(contains(it.Status, "", "completed", "incomplete", "in_progress"), "Invalid value: '%s'.", it.Status)
}

func (in *responsesInput) message(i int, it *responsesItem, got *Request) {
	msg := Message{Role: it.Role}
	in.parts(i, it.Role, it.Content, &msg)
	switch it.Role {
	case "assistant":
		m := in.open(got)
		if m.Text != "" && msg.Text != "" {
			msg.Text = "\n\n" + msg.Text
		}
		m.Text += msg.Text
	case "system", "developer":
		in.end(got)
		if !in.started {
			got.System = strings.Trim(got.System+"\n\n"+msg.Text, "\n")
			return
		}
		msg.Role = "system"
		got.Messages = append(got.Messages, msg)
	case "user":
		in.end(got)
		in.started = true
		got.Messages = append(got.Messages, msg)
	default:
		in.want(false, "Invalid value: '%s'. Supported values are: 'assistant', 'system', 'developer', and 'user'.",
			it.Role)
	}
}

// open returns the assistant's open message.
func (in *responsesInput) open(got *Request) *Message {
	in.started, in.loose = true, ""
	if in.answered {
		in.end(got)
	}
	if in.turn == nil {
		in.turn = &Message{Role: "assistant"}
	}
	return in.turn
}

// end closes the assistant's message.
func (in *responsesInput) end(got *Request) {
	in.want(in.loose == "", "Item '%s' of type 'reasoning' was provided without its required following item.", in.loose)
	if in.turn != nil && (in.turn.Text != "" || len(in.turn.Calls) > 0) {
		got.Messages = append(got.Messages, *in.turn)
	}
	in.turn, in.answered = nil, false
}

func (in *responsesInput) parts(i int, role string, raw json.RawMessage, msg *Message) {
	if json.Unmarshal(raw, &msg.Text) == nil && len(raw) > 0 && string(raw) != "null" {
		return
	}
	var list []json.RawMessage
	if !in.want(json.Unmarshal(raw, &list) == nil && list != nil, "Invalid type for 'input[%d].content'", i) {
		return
	}
	var texts []string
	for _, one := range list {
		var p responsesPart
		if !in.strictly(one, "a content part", &p) {
			return
		}
		fits := (role == "assistant") == contains(p.Type, "output_text", "refusal")
		in.want(fits && contains(p.Type, "output_text", "refusal", "input_text", "input_image", "input_file"),
			"Invalid value: '%s' in 'input[%d].content' of role %s.", p.Type, i, role)
		switch p.Type {
		case "output_text", "input_text":
			if in.want(p.Text != nil, "Missing required parameter: 'input[%d].content.text'.", i) && *p.Text != "" {
				texts = append(texts, *p.Text)
			}
		case "refusal":
			if in.want(p.Refusal != nil, "Missing required parameter: 'input[%d].content.refusal'.", i) {
				texts = append(texts, *p.Refusal)
			}
		case "input_image":
			in.want(isImage(p.ImageURL) || p.FileID != "",
				"Invalid 'input[%d].content.image_url'. Expected a valid URL, but got a value with an invalid format.", i)
			in.want(contains(p.Detail, "", "auto", "low", "high", "original"), "Invalid value: '%s'.", p.Detail)
			msg.Images = append(msg.Images, p.ImageURL)
		case "input_file":
			in.want(p.FileID != "" || p.FileURL != "" || strings.HasPrefix(p.FileData, "data:") && p.Filename != "",
				"Invalid 'input[%d].content': a file needs file_id, file_url, or file_data with filename.", i)
			msg.Files = append(msg.Files, p.Filename)
		}
	}
	msg.Text = strings.Join(texts, "\n")
}

func (in *responsesInput) call(i int, it *responsesItem, got *Request) {
	in.want(it.CallID != "" && len(it.CallID) <= 64, "Invalid 'input[%d].call_id': string too long or empty.", i)
	in.want(in.calls[it.CallID] == 0, "Duplicate call_id: %s", it.CallID)
	in.calls[it.CallID]++
	in.want(functionName.MatchString(it.Name), "Invalid 'input[%d].name': string does not match pattern.", i)
	m := in.open(got)
	if in.want(it.Arguments != nil, "Missing required parameter: 'input[%d].arguments'.", i) {
		m.Calls = append(m.Calls, Call{it.CallID, it.Name, *it.Arguments})
	}
}

func (in *responsesInput) output(i int, it *responsesItem) {
	_, again := in.outputs[it.CallID]
	in.want(it.CallID != "" && len(it.CallID) <= 64 && !again, "Invalid 'input[%d].call_id': %q", i, it.CallID)
	msg := Message{Role: "tool", CallID: it.CallID}
	in.want(in.loose == "", "Item '%s' of type 'reasoning' was provided without its required following item.", in.loose)
	in.parts(i, "user", it.Output, &msg)
	in.outputs[it.CallID] = msg
	in.answered = true
}

func (in *responsesInput) reasoning(i int, it *responsesItem, got *Request) {
	text := ""
	for _, p := range it.Summary {
		in.want(p.Type == "summary_text" && p.Text != nil, "Invalid value: '%s'.", p.Type)
		text += *p.Text
	}
	in.want(it.Summary != nil, "Missing required parameter: 'input[%d].summary'.", i)
	in.want(it.EncryptedContent != "",
		"Item with id '%s' not found. Items are not persisted when `store` is set to false.", it.ID)
	in.want(it.EncryptedContent == sign("responses", text), "The encrypted content could not be verified.")
	m := in.open(got)
	m.Thought += text
	m.Seals++
	in.loose = it.ID + "?"
}

// place inserts each output after the message with its call.
func (in *responsesInput) place(got *Request) {
	var out []Message
	for _, m := range got.Messages {
		out = append(out, m)
		for _, c := range m.Calls {
			o, ok := in.outputs[c.ID]
			in.want(ok, "No tool output found for function call %s.", c.ID)
			out = append(out, o)
			delete(in.outputs, c.ID)
		}
	}
	for id := range in.outputs {
		in.want(false, "No tool call found for function call output with call_id %s.", id)
	}
	got.Messages = out
}
