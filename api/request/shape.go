package request

import jsonrule "github.com/berth-run/berth/internal/rule"

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

// Rules that other requests share with those of responses.
var (
	ContainerSource = jsonrule.ContainerSource(nil)
	MemoryLimit     = jsonrule.MemoryLimit
	NetworkPolicies = jsonrule.NetworkPolicies
)
