package rule

import (
	"maps"
	"slices"
)

// These are the fields of items and of the parts of messages, by type, in OpenAI's document and SDKs. Clients send them
// back as they got them. Those without a rule are preserved. "parsed" and "parsed_arguments" are added by the SDKs.
var (
	itemFields = map[string][]string{
		"additional_tools":        {"tools"},
		"apply_patch_call":        {"operation"},
		"apply_patch_call_output": {"output"},
		"code_interpreter_call":   {"code", "container_id", "outputs"},
		"compaction":              {"encrypted_content"},
		"computer_call":           {"action", "actions", "pending_safety_checks"},
		"computer_call_output":    {"acknowledged_safety_checks", "output"},
		"custom_tool_call":        {"async", "input", "name", "namespace"},
		"custom_tool_call_output": {"output"},
		"file_search_call":        {"queries", "results"},
		"function_call":           {"arguments", "async", "name", "namespace", "parsed_arguments"},
		"function_call_output":    {"name", "namespace", "output"},
		"image_generation_call": {"action", "background", "error", "output_format", "quality", "result",
			"revised_prompt", "size", "svg_usage"},
		"local_shell_call":        {"action"},
		"local_shell_call_output": {"output"},
		"mcp_approval_request":    {"arguments", "name", "server_label"},
		"mcp_approval_response":   {"approval_request_id", "approve", "reason"},
		"mcp_call":                {"approval_request_id", "arguments", "error", "name", "output", "server_label"},
		"mcp_list_tools":          {"error", "server_label", "tools"},
		"message":                 {"content", "phase"},
		"program":                 {"caller_id", "code", "fingerprint"},
		"program_output":          {"result"},
		"reasoning":               {"action", "content", "encrypted_content", "reason", "summary"},
		"shell_call":              {"action", "environment"},
		"shell_call_output":       {"max_output_length", "output"},
		"tool_search_call":        {"arguments", "execution"},
		"tool_search_output":      {"execution", "tools"},
		"web_search_call":         {"action"},
	}
	partFields = map[string][]string{
		"input_file":  {"prompt_cache_breakpoint"},
		"input_image": {"prompt_cache_breakpoint"},
		"input_text":  {"prompt_cache_breakpoint"},
		"output_text": {"parsed"},
	}

	// Each item and each part may have these.
	commonItemFields = []string{"agent", "created_by", "caller", "berth"}
	commonPartFields = []string{"berth"}
)

// itemType returns the type of an item. A message and a reference may have none.
func itemType(obj map[string]any) string {
	switch t, ok := obj["type"].(string); {
	case ok:
		return t
	case obj["role"] == nil:
		return "item_reference"
	}
	return "message"
}

// ItemFields returns the names of the fields of items of a type.
func ItemFields(itemType string) []string {
	return slices.Concat(commonItemFields, itemFields[itemType])
}

// PartFields returns the names of the fields of parts of a type.
func PartFields(partType string) []string {
	return slices.Concat(commonPartFields, partFields[partType])
}

// closed refuses fields that are neither known nor named by other, as OpenAI does.
func closed(known Fields, other func(obj map[string]any) []string, required ...string) Rule {
	check := OpenObject(known, required...)
	return func(at string, v any) error {
		obj, ok := v.(map[string]any)
		if !ok {
			return check(at, v)
		}
		var others []string
		for _, name := range slices.Sorted(maps.Keys(obj)) {
			if known[name] != nil {
				continue
			}
			if others == nil {
				others = other(obj)
			}
			if !slices.Contains(others, name) {
				return UnknownParameter(Join(at, name))
			}
		}
		return check(at, v)
	}
}
