package request

import "github.com/berth-run/berth/internal/rule"

// conversationRule checks what names a conversation: its id, or an object with it.
func conversationRule(at string, v any) error {
	switch v.(type) {
	case string:
		return rule.Text(1, 256)(at, v)
	case map[string]any:
		return rule.Object(rule.Fields{"id": rule.Text(1, 256)}, "id")(at, v)
	}
	return rule.WrongType(at, "one of a string or an object", v)
}

// Rules that other requests share with those of responses.
var (
	ContainerSource = rule.ContainerSource(nil)
	MemoryLimit     = rule.MemoryLimit
	NetworkPolicies = rule.NetworkPolicies
)
