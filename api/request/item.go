package request

import (
	"encoding/json"
	"fmt"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/internal/rule"
	"github.com/berth-run/berth/tool"
)

// input checks "input": a string, or a list of items.
func (r *Rules) input(at string, v any) error {
	if _, ok := v.(string); ok {
		return nil
	}
	if _, ok := v.([]any); !ok {
		return rule.WrongType(at, "one of an array of input items or a string", v)
	}
	return rule.List(r.Item, 0)(at, v)
}

// Item checks an input item. The type of a message or a reference is optional.
func (r *Rules) Item(at string, v any) error {
	obj, ok := v.(map[string]any)
	if !ok || obj["type"] != nil {
		return r.items(at, v)
	}
	if obj["role"] == nil && obj["id"] != nil {
		return itemReference(at, v)
	}
	return message(at, v)
}

// unservedItems are the types of items of OpenAI's document that this server cannot
// produce.
var unservedItems = []string{
	"code_interpreter_call", "computer_call", "computer_call_output",
	"file_search_call", "image_generation_call", "mcp_call", "mcp_list_tools",
	"program", "program_output", "web_search_call",
}

// ownItems returns the rules for items other than calls and outputs, by type.
func ownItems(tools *tool.Registry) map[string]rule.Rule {
	return map[string]rule.Rule{
		string(berth.ItemMessage):   message,
		string(berth.ItemReference): itemReference,
		string(berth.ItemAdditionalTools): rule.Item(rule.Fields{
			"role": rule.OneOf("developer"), "tools": rule.List(tools.FoundRule(), 128),
		}, "role", "tools"),
		string(berth.ItemReasoning): rule.Item(rule.Fields{
			"encrypted_content": rule.AnyText,
			"summary": rule.List(rule.Part(rule.Fields{"type": rule.OneOf("summary_text")}, "type",
				"text"), 0),
			"content": rule.List(rule.Part(rule.Fields{"type": rule.OneOf("reasoning_text")}, "type", "text"), 0),
		}, "summary"),
		string(berth.ItemApprovalRequest): approvalRequest(tools, rule.Item(rule.Fields{
			"id": rule.Text(1, 256), "arguments": rule.Text(0, 1<<20), "name": rule.Text(1, 256),
			"server_label": rule.Text(1, 256),
		}, "id", "arguments", "name", "server_label")),
		string(berth.ItemApprovalResponse): rule.Item(rule.Fields{
			"approval_request_id": rule.Text(1, 256), "approve": rule.Boolean, "reason": rule.Text(0, 16<<10),
		}, "approval_request_id", "approve"),
		string(berth.ItemCompaction): rule.Item(rule.Fields{"encrypted_content": rule.Text(1, 20<<20)},
			"encrypted_content"),
		string(berth.ItemCompactionTrigger): rule.Item(rule.Fields{}),
		string(berth.ItemConfigurationUpdate): rule.Item(rule.Fields{
			"reasoning": rule.Object(rule.Fields{"effort": reasoningEffort}),
			"text": rule.Object(rule.Fields{"format": rule.ByType(map[string]rule.Rule{"text": textFormats["text"],
				"json_schema": textFormats["json_schema"]})}, "format"),
		}),
	}
}

// approvalRequest makes the rule of a request for approval check the name of a function of
// this server.
func approvalRequest(tools *tool.Registry, r rule.Rule) rule.Rule {
	return func(at string, v any) error {
		if err := r(at, v); err != nil {
			return err
		}
		request := v.(map[string]any)
		if request["server_label"] != tool.ApprovalLabel {
			return nil
		}
		return rule.OneOf(tools.Approvable()...)(rule.Join(at, "name"), request["name"])
	}
}

var itemReference = rule.Item(rule.Fields{}, "id")

// message checks a message. The parts of an assistant's message are output_text or refusal;
// those of other roles are input_text, images and files.
func message(at string, v any) error {
	if err := messageFrame(at, v); err != nil {
		return err
	}
	obj := v.(map[string]any)
	if _, short := obj["content"].(string); short {
		return nil
	}
	parts := rule.InputParts
	if obj["role"] == "assistant" {
		parts = rule.OutputParts
	}
	return rule.List(rule.ByType(parts), 0)(rule.Join(at, "content"), obj["content"])
}

var messageFrame = rule.Item(rule.Fields{
	"role": rule.OneOf("user", "assistant", "system", "developer"), "content": rule.Anything,
}, "role", "content")

// idPrefixes are the prefixes of ids by type. Tools define those of calls and outputs.
var idPrefixes = map[berth.ItemType]string{
	berth.ItemMessage:             berth.PrefixMessage,
	berth.ItemReasoning:           berth.PrefixReasoning,
	berth.ItemAdditionalTools:     berth.PrefixTools,
	berth.ItemCompaction:          berth.PrefixCompaction,
	berth.ItemCompactionTrigger:   berth.PrefixItem,
	berth.ItemConfigurationUpdate: berth.PrefixItem,
	berth.ItemApprovalRequest:     berth.PrefixApproval,
	berth.ItemApprovalResponse:    berth.PrefixApproval,
}

// stateless are the types of items without a status.
var stateless = map[berth.ItemType]bool{berth.ItemReasoning: true, berth.ItemCompaction: true,
	berth.ItemAdditionalTools: true, berth.ItemConfigurationUpdate: true,
	berth.ItemApprovalRequest: true, berth.ItemApprovalResponse: true}

// Normalize returns a checked input item in its full form: with a type, an id, a status,
// and content as a list. The store, the input_items route and models get this form. Other
// fields do not change.
func (r *Rules) Normalize(it berth.Item) (berth.Item, error) {
	add := map[string]any{}
	kind := it.Type()
	if kind == "" {
		kind = berth.ItemMessage
		if it.Role() == "" {
			kind = berth.ItemReference
		}
		add["type"] = kind
	}
	if kind == berth.ItemReference {
		return it.With(add)
	}
	if it.ID() == "" {
		add["id"] = berth.NewID(r.prefix(kind))
	}
	if it.Status() == "" && !stateless[kind] && !r.tools.IsListing(it) {
		add["status"] = berth.StatusCompleted
	}
	if kind == berth.ItemMessage {
		content, err := fullContent(it)
		if err != nil {
			return it, err
		}
		if content != nil {
			add["content"] = content
		}
	}
	if err := r.tools.Fill(it, add); err != nil {
		return it, err
	}
	if len(add) == 0 {
		return it, nil
	}
	return it.With(add)
}

// partDefaults are the default values of optional fields by the type of a part, as JSON.
var partDefaults = map[string]map[string]string{
	`"output_text"`: {"annotations": "[]", "logprobs": "[]"},
	`"input_image"`: {"detail": `"auto"`},
}

// fillPart sets the defaults of a part. It reports whether it changed the part.
func fillPart(part map[string]json.RawMessage) (filled bool) {
	for name, value := range partDefaults[string(part["type"])] {
		if part[name] == nil || IsNull(part[name]) {
			part[name] = json.RawMessage(value)
			filled = true
		}
	}
	return filled
}

// fullContent returns a message's content as a list with defaults. It returns nil if the
// content already has this form.
func fullContent(it berth.Item) (any, error) {
	var m struct {
		Content json.RawMessage `json:"content"`
	}
	if err := it.Decode(&m); err != nil {
		return nil, err
	}
	if m.Content[0] == '"' {
		var full berth.Message
		err := it.Decode(&full)
		return full.Content, err
	}
	var parts []map[string]json.RawMessage
	if err := json.Unmarshal(m.Content, &parts); err != nil {
		return nil, fmt.Errorf("decode content: %w", err)
	}
	filled := false
	for _, part := range parts {
		filled = fillPart(part) || filled
	}
	if !filled {
		return nil, nil
	}
	return parts, nil
}
