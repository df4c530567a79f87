package contract

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// amendments are differences between OpenAI's service, as recorded, and its document.
// Berth follows the service, and so does this package.
var amendments = []struct {
	at  string // a place in the document
	how func(schema any) any
	why string
}{
	{"/schemas/ModelResponseProperties/properties/user", nullable, "a response without a user has null"},
	{"/schemas/ResponseUsage", nullable, "a response in progress has null"},
	{"/schemas/ResponseErrorCode/enum", dropped, "upstreams have codes of their own, such as insufficient_quota"},
	{"/schemas/ListFilesResponse/properties/first_id", nullable, "an empty page has none"},
	{"/schemas/ListFilesResponse/properties/last_id", nullable, "an empty page has none"},
	{"/schemas/Batch/properties/errors", nullable, "null until it is known, as in the document's example"},
	{"/schemas/Batch/properties/model", nullable, "null until it is known, as in the document's example"},
	{"/schemas/Batch/properties/output_file_id", nullable, "null until it is known, as in the document's example"},
	{"/schemas/Batch/properties/error_file_id", nullable, "null until it is known, as in the document's example"},
	{"/schemas/Batch/properties/in_progress_at", nullable, "null until it is known, as in the document's example"},
	{"/schemas/Batch/properties/finalizing_at", nullable, "null until it is known, as in the document's example"},
	{"/schemas/Batch/properties/completed_at", nullable, "null until it is known, as in the document's example"},
	{"/schemas/Batch/properties/failed_at", nullable, "null until it is known, as in the document's example"},
	{"/schemas/Batch/properties/expired_at", nullable, "null until it is known, as in the document's example"},
	{"/schemas/Batch/properties/cancelling_at", nullable, "null until it is known, as in the document's example"},
	{"/schemas/Batch/properties/cancelled_at", nullable, "null until it is known, as in the document's example"},
	{"/schemas/Batch/properties/usage", nullable, "null until it is known, as in the document's example"},
	{"/schemas/ListBatchesResponse/properties/first_id", nullable, "an empty page has none"},
	{"/schemas/ListBatchesResponse/properties/last_id", nullable, "an empty page has none"},
	{"/schemas/ResponseItemList/properties/first_id", nullable, "an empty page has none"},
	{"/schemas/ResponseItemList/properties/last_id", nullable, "an empty page has none"},
	{"/schemas/ConversationItemList/properties/first_id", nullable, "an empty page has none"},
	{"/schemas/ConversationItemList/properties/last_id", nullable, "an empty page has none"},
	{"/schemas/ContainerListResource/properties/first_id", nullable, "an empty page has none"},
	{"/schemas/ContainerListResource/properties/last_id", nullable, "an empty page has none"},
	{"/schemas/ContainerFileListResource/properties/first_id", nullable, "an empty page has none"},
	{"/schemas/ContainerFileListResource/properties/last_id", nullable, "an empty page has none"},
	{"/schemas/ListAssistantsResponse/properties/first_id", nullable, "an empty page has none"},
	{"/schemas/ListAssistantsResponse/properties/last_id", nullable, "an empty page has none"},
	{"/schemas/ListMessagesResponse/properties/first_id", nullable, "an empty page has none"},
	{"/schemas/ListMessagesResponse/properties/last_id", nullable, "an empty page has none"},
	{"/schemas/ListRunsResponse/properties/first_id", nullable, "an empty page has none"},
	{"/schemas/ListRunsResponse/properties/last_id", nullable, "an empty page has none"},
	{"/schemas/ListRunStepsResponse/properties/first_id", nullable, "an empty page has none"},
	{"/schemas/ListRunStepsResponse/properties/last_id", nullable, "an empty page has none"},
	{"/schemas/ChatCompletionList/properties/first_id", nullable, "an empty page has none"},
	{"/schemas/ChatCompletionList/properties/last_id", nullable, "an empty page has none"},
	{"/schemas/ChatCompletionMessageList/properties/first_id", nullable, "an empty page has none"},
	{"/schemas/ChatCompletionMessageList/properties/last_id", nullable, "an empty page has none"},
	{"/schemas/ListAssistantsResponse/properties/first_id", nullable, "an empty page has none"},
	{"/schemas/ListAssistantsResponse/properties/last_id", nullable, "an empty page has none"},
	{"/schemas/ListMessagesResponse/properties/first_id", nullable, "an empty page has none"},
	{"/schemas/ListMessagesResponse/properties/last_id", nullable, "an empty page has none"},
	{"/schemas/ListRunsResponse/properties/first_id", nullable, "an empty page has none"},
	{"/schemas/ListRunsResponse/properties/last_id", nullable, "an empty page has none"},
	{"/schemas/ListRunStepsResponse/properties/first_id", nullable, "an empty page has none"},
	{"/schemas/ListRunStepsResponse/properties/last_id", nullable, "an empty page has none"},
	{"/schemas/ChatCompletionResponseMessage/properties/role/enum", dropped,
		"messages of a request are listed in the same form"},
	{"/schemas/CreateChatCompletionRequest/allOf/1/properties/seed/anyOf/0/minimum", dropped,
		"rounded, it does not fit into 64 bits"},
	{"/schemas/CreateChatCompletionRequest/allOf/1/properties/seed/anyOf/0/maximum", dropped,
		"rounded, it does not fit into 64 bits"},
	{"/schemas/CreateChatCompletionStreamResponse/properties/usage", nullable, "null in all chunks except the last"},
	{"/schemas/Response/allOf/2/properties/incomplete_details/anyOf/0/properties/reason/enum", dropped,
		"Berth has reasons of its own: docs/agents.md"},
	{"/schemas/ContainerResource/properties/network_policy/properties/type/enum", with("open"),
		"Berth has a policy of its own: docs/network.md"},
	{"/schemas/ContainerNetworkPolicyDisabledParam/properties/type/enum", with("open"), "the same"},
	{"/schemas/VectorStoreSearchResultsPage/additionalProperties", dropped, "Berth adds the field berth"},
	{"/schemas/Embedding/properties/embedding", orString, "with encoding_format base64"},
	{"/schemas/CreateModerationResponse/properties/results/items/required", dropped, "those of the upstream's model"},
	{"/schemas/CreateModerationResponse/properties/results/items/properties/categories/required", dropped, "the same"},
	{"/schemas/CreateModerationResponse/properties/results/items/properties/category_scores/required", dropped,
		"the same"},
	{"/schemas/CreateModerationResponse/properties/results/items/properties/category_applied_input_types/required",
		dropped, "the same"},
	{"/schemas/WebSearchToolCall/required", without("action"), "an item that was just added has none"},
	{"/schemas/WebSearchToolCall/properties/status/enum", with("incomplete"),
		"a call that the model did not finish is incomplete"},
	{"/schemas/ToolChoiceTypes/properties/type/enum", with("web_search", "web_search_2025_08_26"),
		"the tools that the document describes beside their preview"},
	{"/schemas/MCPApprovalResponse/required", without("request_id"),
		"no such field is described, and no client sends it"},
	{"/schemas/MCPApprovalResponseResource/required", without("request_id"), "no such field is described"},
	{"/schemas/ChatCompletionMessageToolCallChunk/properties/type/enum", dropped,
		"a custom tool's call has the type custom"},
}

// extensions are the types of events that the document lacks: Berth's own, explained in
// docs/divergences.md, and those that OpenAI sends nevertheless.
var extensions = []string{
	"response.cancelled",
	"response.apply_patch_call_operation_diff.delta", "response.apply_patch_call_operation_diff.done",
}

func nullable(schema any) any {
	return map[string]any{"anyOf": []any{schema, map[string]any{"type": "null"}}}
}

func orString(schema any) any {
	return map[string]any{"anyOf": []any{schema, map[string]any{"type": "string"}}}
}

func dropped(any) any { return nil }

func without(value string) func(any) any {
	return func(list any) any {
		return slices.DeleteFunc(slices.Clone(list.([]any)), func(v any) bool { return v == value })
	}
}

func with(values ...any) func(any) any {
	return func(list any) any { return append(slices.Clone(list.([]any)), values...) }
}

// assistantStreams are operations with a stream that the document describes only by its
// events.
var assistantStreams = []string{"/threads/runs", "/threads/{thread_id}/runs",
	"/threads/{thread_id}/runs/{run_id}/submit_tool_outputs"}

const assistantEvents = "#/schemas/AssistantStreamEvent"

// walk returns the value at a place in the tree, or nil.
func walk(node any, steps []string) any {
	for _, step := range steps {
		switch n := node.(type) {
		case map[string]any:
			node = n[step]
		case []any:
			i, err := strconv.Atoi(step)
			if err != nil || i >= len(n) {
				return nil
			}
			node = n[i]
		default:
			return nil
		}
	}
	return node
}

// amend applies the amendments to the tree of the document. It also adds streams that the
// document lacks: of GET /responses/{response_id}, of runs, and a completion's stream that
// ends with an error.
func amend(tree map[string]any) {
	for _, a := range amendments {
		steps := strings.Split(a.at, "/")[1:]
		last := steps[len(steps)-1]
		node, _ := walk(tree, steps[:len(steps)-1]).(map[string]any)
		if node[last] == nil {
			panic(fmt.Sprintf("contract: no schema to amend at %s", a.at))
		}
		if changed := a.how(node[last]); changed != nil {
			node[last] = changed
		} else {
			delete(node, last)
		}
	}
	const stream = "text/event-stream"
	for _, op := range tree["operations"].([]any) {
		op := op.(map[string]any)
		if op["method"] == "POST" && slices.Contains(assistantStreams, op["path"].(string)) {
			op["answers"].(map[string]any)["200"].(map[string]any)[stream] = map[string]any{"$ref": assistantEvents}
		}
		if op["method"] == "GET" && op["path"] == "/responses/{response_id}" {
			ok := op["answers"].(map[string]any)["200"].(map[string]any)
			ok[stream] = map[string]any{"$ref": "#/schemas/ResponseStreamEvent"}
		}
		if op["path"] == "/chat/completions" && op["method"] == "POST" {
			answer := op["answers"].(map[string]any)["200"].(map[string]any)
			failure := map[string]any{"$ref": "#/schemas/ErrorResponse"}
			answer[stream] = map[string]any{"anyOf": []any{answer[stream], failure}}
		}
	}
}
