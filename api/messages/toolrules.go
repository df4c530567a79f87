package messages

import (
	"maps"
	"slices"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/internal/rule"
)

// common are the fields of all tools.
var common = rule.Fields{"type": rule.AnyText, "name": rule.Text(1, 200), "cache_control": rule.AnyObject,
	"defer_loading": rule.Boolean, "strict": rule.Boolean, "eager_input_streaming": rule.Boolean,
	"allowed_callers": rule.List(rule.Matching("^(direct|code_execution_20[0-9]{6})$", 64), 8),
	"input_examples":  rule.List(rule.AnyObject, 64)}

// toolFields are the fields of each family beside the common ones.
var toolFields = map[string]rule.Fields{
	familyCustom: {"name": rule.Matching(rule.NamePattern, 128), "description": rule.AnyText,
		"input_schema": schemaRule},
	"bash":        {},
	"text_editor": {"max_characters": rule.Integer(1, 1<<40)},
	"memory":      {},
	"computer": {"display_width_px": rule.Integer(1, 1<<16), "display_height_px": rule.Integer(1, 1<<16),
		"display_number": rule.Integer(0, 1<<16), "enable_zoom": rule.Boolean},
	familySearch: {"max_uses": rule.Integer(1, 1<<20), "allowed_domains": domains,
		"blocked_domains": domains, "user_location": location},
	familyFetch: {"max_uses": rule.Integer(1, 1<<20), "allowed_domains": domains,
		"blocked_domains": domains, "citations": cited,
		"max_content_tokens": rule.Integer(1, 1<<40), "use_cache": rule.Boolean, "url_sources": rule.Anything,
		"response_inclusion": rule.AnyText},
	familyCode:        {},
	familySearchRegex: {},
	familySearchBM25:  {},
	familyToolset: {"mcp_server_name": rule.Text(1, 256), "default_config": configRule,
		"configs": configsRule, "tools": rule.UnsupportedUnlessEmpty},
}

var (
	domains    = rule.List(rule.Text(1, 300), 100)
	configRule = rule.Object(rule.Fields{"enabled": rule.Boolean, "defer_loading": rule.Boolean})
	location   = rule.Object(rule.Fields{"type": rule.OneOf("approximate"), "country": rule.Text(0, 64),
		"region": rule.Text(0, 128), "city": rule.Text(0, 128), "timezone": rule.Text(0, 64)})
	families = func() map[string]rule.Rule {
		all := map[string]rule.Rule{}
		for family, own := range toolFields {
			fields := maps.Clone(common)
			maps.Copy(fields, own)
			required := map[string][]string{familyCustom: {"name", "input_schema"},
				familyToolset: {"mcp_server_name"}, "computer": {"display_width_px", "display_height_px"}}
			all[family] = rule.Object(fields, required[family]...)
		}
		return all
	}()
)

func configsRule(at string, v any) error {
	configs, ok := v.(map[string]any)
	if !ok {
		return rule.WrongType(at, "an object", v)
	}
	for _, name := range slices.Sorted(maps.Keys(configs)) {
		if err := configRule(rule.Join(at, name), configs[name]); err != nil {
			return err
		}
	}
	return nil
}

func schemaRule(at string, v any) error {
	schema, ok := v.(map[string]any)
	if !ok {
		return rule.WrongType(at, "an object", v)
	}
	if problem := berth.SchemaProblem(schema); problem != "" {
		return berth.Invalid(at, "JSON schema is invalid. %s", problem)
	}
	return nil
}

// toolRule checks an entry of "tools" by the family of its type, which is optional.
func toolRule(at string, v any) error {
	obj, ok := v.(map[string]any)
	if !ok {
		return rule.WrongType(at, "an object", v)
	}
	t := toolParam{}
	if obj["type"] != nil {
		if t.Type, ok = obj["type"].(string); !ok {
			return rule.WrongType(rule.Join(at, "type"), "a string", obj["type"])
		}
	}
	check := families[t.family()]
	if check == nil {
		return rule.WrongValue(rule.Join(at, "type"), t.Type, slices.Sorted(maps.Keys(families)))
	}
	return check(at, v)
}
