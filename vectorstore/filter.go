package vectorstore

import (
	"bytes"
	"encoding/json"
	"slices"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/internal/rule"
)

// A Filter selects files by their attributes: a comparison, or a compound of filters.
type Filter struct {
	Type    string   `json:"type"` // eq, ne, gt, gte, lt, lte, in, nin, and, or
	Key     string   `json:"key"`
	Value   any      `json:"value"`
	Filters []Filter `json:"filters"`
}

// ParseFilter decodes a filter that FilterRule allows. It returns nil for none.
func ParseFilter(raw json.RawMessage) (*Filter, error) {
	if len(raw) == 0 || string(raw) == "null" {
		return nil, nil
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	f := &Filter{}
	if err := d.Decode(f); err != nil {
		return nil, berth.Invalid("filters", "Invalid 'filters': %v.", err)
	}
	return f, nil
}

// Limits of a filter.
const (
	maxDepth  = 8
	maxValues = 1000
)

// comparisons are the types of comparisons.
var comparisons = []string{"eq", "ne", "gt", "gte", "lt", "lte", "in", "nin"}

// FilterRule checks "filters".
var FilterRule = filterRule(maxDepth)

func filterRule(depth int) rule.Rule {
	kinds := map[string]rule.Rule{}
	for _, c := range comparisons {
		value := scalar
		if c == "in" || c == "nin" {
			value = rule.List(scalar, maxValues)
		}
		kinds[c] = rule.Object(rule.Fields{"type": rule.AnyText, "key": rule.Text(1, 64), "value": value}, "key",
			"value")
	}
	inner := func(at string, _ any) error {
		return berth.Invalid(at, "Invalid '%s': filters are nested too deeply. Use at most %d levels.", at, maxDepth)
	}
	if depth > 1 {
		inner = filterRule(depth - 1)
	}
	for _, c := range []string{"and", "or"} {
		kinds[c] = rule.Object(rule.Fields{"type": rule.AnyText, "filters": rule.List(inner, 64)}, "filters")
	}
	return rule.ByType(kinds)
}

// scalar allows a string, a number or a boolean.
func scalar(at string, v any) error {
	switch v.(type) {
	case string, json.Number, bool:
		return nil
	}
	return rule.WrongType(at, "one of a string, number or boolean", v)
}

// AttributesRule checks "attributes".
func AttributesRule(at string, v any) error {
	obj, ok := v.(map[string]any)
	if !ok {
		return rule.WrongType(at, "an object", v)
	}
	if len(obj) > 16 {
		return rule.Errorf("object_above_max_properties", at,
			"Invalid '%s': too many properties. Expected an object with at most 16 properties, but got an object with %d properties instead.",
			at, len(obj))
	}
	for name, value := range obj {
		if err := rule.Text(1, 64)(at, name); err != nil {
			return err
		}
		if err := scalar(rule.Join(at, name), value); err != nil {
			return err
		}
		if s, ok := value.(string); ok {
			if err := rule.Text(0, 512)(rule.Join(at, name), s); err != nil {
				return err
			}
		}
	}
	return nil
}

// accepts reports whether a file with these attributes is selected. A file without the key
// of a comparison is selected by ne and nin only.
func (f *Filter) accepts(a berth.Attributes) bool {
	if f == nil {
		return true
	}
	each := func(g Filter) bool { return g.accepts(a) }
	value, has := a[f.Key]
	switch f.Type {
	case "and":
		return !slices.ContainsFunc(f.Filters, func(g Filter) bool { return !each(g) })
	case "or":
		return slices.ContainsFunc(f.Filters, each)
	case "ne":
		return !has || !equal(value, f.Value)
	case "in", "nin":
		list, _ := f.Value.([]any)
		in := has && slices.ContainsFunc(list, func(v any) bool { return equal(value, v) })
		return in == (f.Type == "in")
	case "eq":
		return has && equal(value, f.Value)
	}
	order, comparable := compare(value, f.Value)
	if !has || !comparable {
		return false
	}
	switch f.Type {
	case "gt":
		return order > 0
	case "gte":
		return order >= 0
	case "lt":
		return order < 0
	case "lte":
		return order <= 0
	}
	return false
}

func equal(a, b any) bool {
	if order, ok := compare(a, b); ok {
		return order == 0
	}
	x, isX := a.(bool)
	y, isY := b.(bool)
	return isX && isY && x == y
}

// compare returns the order of two numbers or of two strings.
func compare(a, b any) (order int, ok bool) {
	switch x := a.(type) {
	case json.Number:
		y, ok := b.(json.Number)
		if !ok {
			return 0, false
		}
		p, err1 := x.Float64()
		q, err2 := y.Float64()
		switch {
		case err1 != nil || err2 != nil:
			return 0, false
		case p < q:
			return -1, true
		case p > q:
			return 1, true
		}
		return 0, true
	case string:
		y, ok := b.(string)
		if !ok {
			return 0, false
		}
		return bytes.Compare([]byte(x), []byte(y)), true
	}
	return 0, false
}

// ChunkingRule checks "chunking_strategy". The overlap is at most half of a chunk.
func ChunkingRule(at string, v any) error {
	if err := chunkingShape(at, v); err != nil {
		return err
	}
	static, ok := v.(map[string]any)["static"].(map[string]any)
	if !ok {
		return nil
	}
	size, _ := static["max_chunk_size_tokens"].(json.Number).Int64()
	return rule.Integer(0, size/2)(rule.Join(rule.Join(at, "static"), "chunk_overlap_tokens"),
		static["chunk_overlap_tokens"])
}

var chunkingShape = rule.ByType(map[string]rule.Rule{
	"auto": rule.Object(rule.Fields{"type": rule.AnyText}),
	"static": rule.Object(rule.Fields{"type": rule.AnyText, "static": rule.Object(rule.Fields{
		"max_chunk_size_tokens": rule.Integer(100, 4096), "chunk_overlap_tokens": rule.Integer(0, 2048),
	}, "max_chunk_size_tokens", "chunk_overlap_tokens")}, "static"),
})

// RankingRule checks "ranking_options" of a search.
var RankingRule = rule.Object(rule.Fields{
	"ranker": rule.OneOf("auto", "none", "default-2024-11-15"), "score_threshold": rule.Decimal(0, 1),
	"hybrid_search": hybridRule,
})

// hybridRule checks "hybrid_search". One of the weights must be above 0.
func hybridRule(at string, v any) error {
	weight := rule.Decimal(0, 1000)
	if err := rule.Object(rule.Fields{"embedding_weight": weight, "text_weight": weight}, "embedding_weight",
		"text_weight")(at, v); err != nil {
		return err
	}
	for _, w := range v.(map[string]any) {
		if f, err := w.(json.Number).Float64(); err == nil && f > 0 {
			return nil
		}
	}
	return berth.Invalid(at, "Invalid '%s': both weights are 0. Set 'embedding_weight' or 'text_weight' above 0.", at)
}
