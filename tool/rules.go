package tool

import (
	"maps"
	"sync"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/internal/rule"
)

// Rules check the JSON of a kind of tool in requests. A nil rule refuses it.
type Rules struct {
	Tool   rule.Rule // an entry of "tools"
	Found  rule.Rule // a tool in an item, such as the output of a search
	Inner  rule.Rule // a tool in a namespace
	Choice rule.Rule // "tool_choice" that forces the tool
	Subset rule.Rule // an entry of "allowed_tools"
	Call   rule.Rule // an input item that is a call
	Output rule.Rule // an input item that is the output of a call

	Listing rule.Rule // an input item of type Kind.Listing
}

// Unserved are the tools of OpenAI's document that are refused by name unless a registered
// kind serves them.
var Unserved = []string{
	"code_interpreter", "computer", "computer_use", "computer_use_preview", "file_search", "image_generation", "mcp",
	"programmatic_tool_calling",
	"web_search", "web_search_2025_08_26", "web_search_preview", "web_search_preview_2025_03_11",
}

// ToolRule checks an entry of a request's "tools".
func (r *Registry) ToolRule() rule.Rule {
	return lazy(func() map[string]rule.Rule {
		return withAliases(r, r.withUnserved(func(k Rules) rule.Rule { return k.Tool }))
	})
}

// FoundRule checks a tool in an item: in the output of a search, or in "additional_tools".
func (r *Registry) FoundRule() rule.Rule {
	return lazy(func() map[string]rule.Rule { return r.withUnserved(func(k Rules) rule.Rule { return k.Found }) })
}

// InnerRule checks a tool in a namespace.
func (r *Registry) InnerRule() rule.Rule {
	return lazy(func() map[string]rule.Rule { return r.table(func(k Rules) rule.Rule { return k.Inner }) })
}

// ChoiceRule checks a "tool_choice" that is an object: one tool, or the allowed tools.
func (r *Registry) ChoiceRule() rule.Rule {
	return lazy(func() map[string]rule.Rule {
		choices := withAliases(r, r.withUnserved(func(k Rules) rule.Rule { return k.Choice }))
		allowed := maps.Clone(choices)
		maps.Copy(allowed, withAliases(r, r.table(func(k Rules) rule.Rule { return k.Subset })))
		choices["allowed_tools"] = rule.Object(rule.Fields{
			"type": rule.AnyText, "mode": rule.OneOf("auto", "required"), "tools": rule.List(rule.ByType(allowed), 128),
		}, "mode", "tools")
		return choices
	})
}

// ItemRules returns the rules for calls and outputs by the type of the item.
func (r *Registry) ItemRules() map[string]rule.Rule {
	calls := r.table(func(k Rules) rule.Rule { return k.Call })
	outputs := r.table(func(k Rules) rule.Rule { return k.Output })
	out := map[string]rule.Rule{}
	for name, each := range calls {
		out[string(r.kinds[name].Calls.Call)] = each
	}
	for name, each := range outputs {
		out[string(r.kinds[name].Calls.Output)] = each
	}
	for name, each := range r.table(func(k Rules) rule.Rule { return k.Listing }) {
		out[string(r.kinds[name].Listing)] = each
	}
	return out
}

// Fill sets the fields that the wire shows of a tool's item and that a client omitted.
func (r *Registry) Fill(it berth.Item, fields map[string]any) error {
	if c := r.CallsOf(it); c != nil && c.Fill != nil {
		return c.Fill(it, fields)
	}
	return nil
}

// table returns the rules that pick returns for each type of tool.
func (r *Registry) table(pick func(Rules) rule.Rule) map[string]rule.Rule {
	out := map[string]rule.Rule{}
	if r == nil {
		return out
	}
	for name, rules := range r.rules {
		if picked := pick(rules); picked != nil {
			out[name] = picked
		}
	}
	return out
}

// withUnserved returns the table of rules with a refusal for each tool of Unserved.
func (r *Registry) withUnserved(pick func(Rules) rule.Rule) map[string]rule.Rule {
	return rule.Merged(rule.WithUnsupported(map[string]rule.Rule{}, "tools", Unserved), r.table(pick))
}

// withAliases adds the aliases of types to a table of rules.
func withAliases(r *Registry, table map[string]rule.Rule) map[string]rule.Rule {
	if r != nil {
		for alias, of := range r.aliases {
			if each := table[of]; each != nil {
				table[alias] = each
			}
		}
	}
	return table
}

// lazy returns a rule that checks objects by their type. It builds the table at its first
// use, so that the rules of a kind can refer to those of other kinds.
func lazy(table func() map[string]rule.Rule) rule.Rule {
	byType := sync.OnceValue(func() rule.Rule { return rule.ByType(table()) })
	return func(at string, v any) error { return byType()(at, v) }
}
