package request

import "github.com/berth-run/berth/internal/rule"

// conversationRule checks "conversation": an id, or an object with an id.
func conversationRule(at string, v any) error {
	switch v.(type) {
	case string:
		return rule.Text(1, 256)(at, v)
	case map[string]any:
		return rule.Object(rule.Fields{"id": rule.Text(1, 256)}, "id")(at, v)
	}
	return rule.WrongType(at, "one of a string or an object", v)
}
