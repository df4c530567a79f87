package request

import (
	"maps"

	"github.com/berth-run/berth"
)

// Compact checks the body of POST /v1/responses/compact, as CompactResponseMethodPublicBody
// of OpenAI's OpenAPI document.
var Compact = object(some(responseFields, fields{"prompt_cache_key": text(0, 64)},
	"input", "instructions", "model", "previous_response_id", "prompt_cache_options",
	"prompt_cache_retention", "service_tier"), "model")

// InputTokens checks the body of POST /v1/responses/input_tokens, as TokenCountsBody of
// OpenAI's OpenAPI document: the fields of a request that make its context. None is required.
var InputTokens = object(some(responseFields, fields{"personality": unsupported},
	"conversation", "input", "instructions", "model", "parallel_tool_calls", "previous_response_id",
	"reasoning", "text", "tool_choice", "tools", "truncation"))

// some returns the rules of these names among all, and more.
func some(all, more fields, names ...string) fields {
	for _, name := range names {
		more[name] = all[name]
	}
	return more
}

// Template checks the fields of a response's request that a prompt may hold: those that do
// not concern one request alone.
var Template = func() rule {
	known := maps.Clone(responseFields)
	for _, name := range []string{"background", "conversation", "metadata", "previous_response_id", "prompt", "safety_identifier",
		"store", "stream", "stream_options", "user", "berth"} {
		delete(known, name)
	}
	return object(known)
}()

// conversationRule checks what names a conversation: its id, or an object with it.
func conversationRule(at string, v any) error {
	switch v.(type) {
	case string:
		return text(1, 256)(at, v)
	case map[string]any:
		return object(fields{"id": text(1, 256)}, "id")(at, v)
	}
	return wrongType(at, "one of a string or an object", v)
}

// ContainerSource checks "berth" of a request for a container.
var ContainerSource = object(sourceFields)

// chainSource checks that of a container_auto, which may continue a chain.
var chainSource = object(merged(sourceFields, fields{
	"on_lost": oneOf(string(berth.OnLostFail), string(berth.OnLostNew)),
}))

var sourceFields = fields{
	"template": text(1, 256), "snapshot_id": text(1, 256),
	"volumes": list(object(fields{
		"name": text(1, 63), "path": text(1, 256), "read_only": boolean,
	}, "name"), 16),
	"on_expiry": oneOf(string(berth.OnExpiryDelete), string(berth.OnExpirySnapshot)),
}

// What other requests than those of responses share with them.
var (
	Item            = itemRule // an input item
	MemoryLimit     = memoryLimit
	NetworkPolicies = networkPolicies
	Environments    = shellEnvironments // of the shell, by type
	UnservedTools   = unservedTools
)
