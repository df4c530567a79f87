package search

import (
	"github.com/berth-run/berth"
	"github.com/berth-run/berth/internal/rule"
	"github.com/berth-run/berth/tool"
)

// Namespace returns the kind of namespaces.
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
			n, err := tool.Decode[berth.NamespaceTool](t, "namespace")
			return n.Name, n.Tools, err
		},
	}
}
