package search

import (
	"github.com/berth-run/berth"
	"github.com/berth-run/berth/internal/rule"
	"github.com/berth-run/berth/tool"
)

// Namespace returns the namespaces of the client's tools.
func Namespace() tool.Kind {
	return tool.Kind{
		Type: berth.ToolNamespace,
		Rules: func(r *tool.Registry) tool.Rules {
			offered := rule.Object(rule.Fields{
				"type": rule.AnyText, "name": rule.NamespaceName, "description": rule.AnyText,
				"tools": rule.List(r.InnerRule(), 128),
			}, "name", "description", "tools")
			return tool.Rules{Tool: offered, Found: offered,
				Subset: rule.Object(rule.Fields{"type": rule.AnyText, "name": rule.NamespaceName}, "name")}
		},
		Group: func(t berth.Tool) (string, []berth.Tool, error) {
			var n berth.NamespaceTool
			if err := t.Decode(&n); err != nil {
				return "", nil, berth.Invalid("", "Invalid namespace: %v.", err)
			}
			return n.Name, n.Tools, nil
		},
	}
}
