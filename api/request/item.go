package request

import (
	"encoding/json"
	"maps"

	"github.com/berth-run/berth"
)

// inputRule checks "input": a string, or a list of items.
func inputRule(at string, v any) error {
	if _, ok := v.(string); ok {
		return nil
	}
	if _, ok := v.([]any); !ok {
		return wrongType(at, "one of an array of input items or a string", v)
	}
	return list(itemRule, 0)(at, v)
}

// itemRule checks an input item. A message, and a reference, may come without a type.
func itemRule(at string, v any) error {
	obj, ok := v.(map[string]any)
	if !ok || obj["type"] != nil {
		return itemKinds(at, v)
	}
	if obj["role"] == nil && obj["id"] != nil {
		return itemReference(at, v)
	}
	return message(at, v)
}

// unservedItems are the input items of OpenAI's document that nothing here could
// have made.
var unservedItems = []string{
	"code_interpreter_call", "computer_call", "computer_call_output",
	"file_search_call", "image_generation_call", "mcp_call", "mcp_list_tools",
	"program", "program_output", "web_search_call",
}

var itemKinds = byType(withUnsupported(merged(callItems, map[string]rule{
	string(berth.ItemMessage):   message,
	string(berth.ItemReference): itemReference,
	string(berth.ItemAdditionalTools): anItem(fields{
		"role": oneOf("developer"), "tools": list(foundTool, 128),
	}, "role", "tools"),
	string(berth.ItemReasoning): anItem(fields{
		"encrypted_content": anyText,
		"summary":           list(aPart(fields{"type": oneOf("summary_text")}, "type", "text"), 0),
		"content":           list(aPart(fields{"type": oneOf("reasoning_text")}, "type", "text"), 0),
	}, "summary"),
	string(berth.ItemApprovalRequest): anItem(fields{
		"id": text(1, 256), "arguments": text(0, 1<<20), "name": oneOf("shell"), "server_label": oneOf("berth"),
	}, "id", "arguments", "name", "server_label"),
	string(berth.ItemApprovalResponse): anItem(fields{
		"approval_request_id": text(1, 256), "approve": boolean, "reason": text(0, 16<<10),
	}, "approval_request_id", "approve"),
	string(berth.ItemCompaction):        anItem(fields{"encrypted_content": text(1, 20<<20)}, "encrypted_content"),
	string(berth.ItemCompactionTrigger): anItem(fields{}),
	string(berth.ItemConfigurationUpdate): anItem(fields{
		"reasoning": object(fields{"effort": reasoningEffort}),
		"text":      object(fields{"format": byType(map[string]rule{"text": textFormats["text"], "json_schema": textFormats["json_schema"]})}, "format"),
	}),
}), "items", unservedItems))

var itemReference = anItem(fields{}, "id")

// anItem allows an item with these fields. The fields that everything looks at
// have their types in every item, meant there or not.
func anItem(own fields, required ...string) rule {
	all := fields{
		"id": text(1, 256), "type": anyText, "call_id": text(1, 256), "role": anyText,
		"status": oneOf("in_progress", "completed", "incomplete"),
	}
	maps.Copy(all, own)
	return openObject(all, required...)
}

// aPart allows a part of a message, likewise.
func aPart(own fields, required ...string) rule {
	all := fields{
		"type": anyText, "text": anyText, "refusal": anyText, "annotations": list(anyObject, 0), "logprobs": list(anyObject, 0),
		"detail": anyText, "image_url": anyText, "file_id": anyText, "file_data": anyText, "file_url": anyText, "filename": anyText,
	}
	maps.Copy(all, own)
	return openObject(all, required...)
}

// message checks a message by its role: the model speaks output_text, all others
// input_text, images and files.
func message(at string, v any) error {
	if err := messageFrame(at, v); err != nil {
		return err
	}
	obj := v.(map[string]any)
	if _, short := obj["content"].(string); short {
		return nil
	}
	parts := inputParts
	if obj["role"] == "assistant" {
		parts = outputParts
	}
	return list(byType(parts), 0)(join(at, "content"), obj["content"])
}

var messageFrame = anItem(fields{
	"role": oneOf("user", "assistant", "system", "developer"), "content": anything,
}, "role", "content")

var inputParts = map[string]rule{
	"input_text": aPart(fields{}, "text"),
	"input_image": oneSource([]string{"image_url", "file_id"}, aPart(fields{
		"image_url": imageURL, "file_id": text(1, 256), "detail": oneOf("auto", "low", "high", "original"),
	})),
	"input_file": oneSource([]string{"file_data", "file_id", "file_url"}, aPart(fields{
		"file_id": text(1, 256), "filename": text(0, 1024), "detail": oneOf("auto", "low", "high"), "file_url": webURL,
	})),
}

var outputParts = map[string]rule{
	"output_text": aPart(fields{}, "text"),
	"refusal":     aPart(fields{}, "refusal"),
}

// idPrefixes are of the ids that items get which come without.
var idPrefixes = map[berth.ItemType]string{
	berth.ItemMessage:              berth.PrefixMessage,
	berth.ItemReasoning:            berth.PrefixReasoning,
	berth.ItemFunctionCall:         berth.PrefixFunctionCall,
	berth.ItemFunctionCallOutput:   berth.PrefixFunctionOutput,
	berth.ItemCustomToolCall:       berth.PrefixCustomCall,
	berth.ItemCustomToolCallOutput: berth.PrefixCustomOutput,
	berth.ItemShellCall:            berth.PrefixShellCall,
	berth.ItemShellCallOutput:      berth.PrefixShellCallOutput,
	berth.ItemLocalShellCall:       berth.PrefixLocalShellCall,
	berth.ItemLocalShellCallOutput: berth.PrefixLocalShellOut,
	berth.ItemApplyPatchCall:       berth.PrefixPatchCall,
	berth.ItemApplyPatchCallOutput: berth.PrefixPatchOutput,
	berth.ItemToolSearchCall:       berth.PrefixToolSearch,
	berth.ItemToolSearchOutput:     berth.PrefixToolSearchOut,
	berth.ItemAdditionalTools:      berth.PrefixTools,
	berth.ItemCompaction:           berth.PrefixCompaction,
	berth.ItemCompactionTrigger:    berth.PrefixItem,
	berth.ItemConfigurationUpdate:  berth.PrefixItem,
	berth.ItemApprovalRequest:      berth.PrefixApproval,
	berth.ItemApprovalResponse:     berth.PrefixApproval,
}

// stateless are the items that have no status.
var stateless = map[berth.ItemType]bool{berth.ItemReasoning: true, berth.ItemCompaction: true, berth.ItemAdditionalTools: true, berth.ItemConfigurationUpdate: true,
	berth.ItemApprovalRequest: true, berth.ItemApprovalResponse: true}

// normalize returns a checked input item in its full form, as it is kept, shown
// by input_items and given to the model: with a type, an id, a status, and
// content as a list. What else it holds stays as it came.
func normalize(it berth.Item) (berth.Item, error) {
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
	named := it.ID()
	if kind == berth.ItemLocalShellCallOutput && it.CallID() == "" {
		add["call_id"], named = named, "" // see localShellOutput
	}
	if named == "" {
		add["id"] = berth.NewID(idPrefixes[kind])
	}
	if it.Status() == "" && !stateless[kind] {
		add["status"] = berth.StatusCompleted
	}
	if kind == berth.ItemToolSearchCall || kind == berth.ItemToolSearchOutput {
		add["execution"] = "client" // the only one
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
	if err := addNulls(it, kind, add); err != nil {
		return it, err
	}
	if len(add) == 0 {
		return it, nil
	}
	return it.With(add)
}

// nulls are the fields which an item shows as null when a client leaves them out,
// by its type and the field that holds them; "" is the item itself.
var nulls = map[berth.ItemType]map[string][]string{
	berth.ItemShellCall:       {"": {"environment"}, "action": {"max_output_length", "timeout_ms"}},
	berth.ItemShellCallOutput: {"": {"max_output_length"}},
}

func addNulls(it berth.Item, kind berth.ItemType, add map[string]any) error {
	for within, names := range nulls[kind] {
		held := map[string]json.RawMessage{}
		if err := it.Decode(&held); err != nil {
			return err
		}
		if within == "" {
			for _, name := range names {
				if held[name] == nil {
					add[name] = nil
				}
			}
			continue
		}
		inner := map[string]json.RawMessage{}
		if err := json.Unmarshal(held[within], &inner); err != nil {
			return err
		}
		n := len(inner)
		for _, name := range names {
			if inner[name] == nil {
				inner[name] = json.RawMessage("null")
			}
		}
		if len(inner) > n {
			add[within] = inner
		}
	}
	return nil
}

// leftOut are the fields of a part that a client may leave out, by its type.
var leftOut = map[string]map[string]string{
	`"output_text"`: {"annotations": "[]", "logprobs": "[]"},
	`"input_image"`: {"detail": `"auto"`},
}

// fillPart adds what was left out of a part, and reports whether something was.
func fillPart(part map[string]json.RawMessage) (filled bool) {
	for name, value := range leftOut[string(part["type"])] {
		if part[name] == nil || IsNull(part[name]) {
			part[name] = json.RawMessage(value)
			filled = true
		}
	}
	return filled
}

// fullContent returns a message's content with nothing left out, or nil if it is
// complete as it is.
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
		return nil, err
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
