package config

import (
	"encoding"
	"fmt"
	"math"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// A keyReader validates the keys of a configuration before they are decoded: each must be known
// and have an allowed value of its type. It notes the line of each key and element, and replaces each
// value that it refuses by null.
type keyReader struct {
	lines    map[string]int // by name
	problems *[]error
	depth    int
}

// fail notes an error about a node, unless it is nil.
func (r keyReader) fail(n *yaml.Node, err error) {
	if err != nil {
		*r.problems = append(*r.problems, err)
		*n = yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null", Line: n.Line, Column: n.Column}
	}
}

// A keyError is an error at a line of a configuration file.
type keyError struct {
	line    int
	problem string // begins with the key
}

func (e *keyError) Error() string { return e.problem }

// unknownKey is the beginning of the error for an unknown key.
const unknownKey = "unknown key "

// maxDepth bounds aliases that contain themselves.
const maxDepth = 64

// A keyPath is a key's name, such as models[0].base_url, and the name of its rule, such as
// upstream.base_url.
type keyPath struct{ name, rule string }

func (k keyPath) key(name string) keyPath {
	if k.name == "" {
		return keyPath{name, name}
	}
	return keyPath{k.name + "." + name, k.rule + "." + name}
}

// element returns the path of an element of a map or a list. Models share the rules of
// upstreams.
func (k keyPath) element(name string) keyPath {
	if k.rule == "upstreams" || k.rule == "models" {
		return keyPath{k.name + name, "upstream"}
	}
	return keyPath{k.name + name, k.rule + ".*"}
}

var (
	durationType    = reflect.TypeFor[time.Duration]()
	unmarshalerType = reflect.TypeFor[yaml.Unmarshaler]()
	textType        = reflect.TypeFor[encoding.TextUnmarshaler]()
	lineNumber      = regexp.MustCompile(`^(yaml: )?(unmarshal errors:\s*)?line \d+: `)
)

// check checks that a node is a valid value of type t.
func (r keyReader) check(n *yaml.Node, t reflect.Type, at keyPath) {
	if r.depth++; r.depth > maxDepth {
		r.fail(n, wrong(n, at, "is nested too deeply"))
		return
	}
	switch {
	case n.Kind == yaml.AliasNode:
		r.check(n.Alias, t, at)
		return
	case n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null":
		return
	case reflect.PointerTo(t).Implements(unmarshalerType):
		r.fail(n, scalarError(n, t, at))
		return
	}
	switch t.Kind() {
	case reflect.Pointer:
		r.check(n, t.Elem(), at)
	case reflect.Struct, reflect.Map:
		r.mapping(n, t, at)
	case reflect.Slice:
		if n.Kind != yaml.SequenceNode {
			r.fail(n, wrong(n, at, "must be a list, such as "+listExample(at, t)))
			return
		}
		for i, e := range n.Content {
			at := at.element(fmt.Sprintf("[%d]", i))
			r.lines[at.name] = e.Line
			r.check(e, t.Elem(), at)
		}
	default:
		r.fail(n, scalarError(n, t, at))
	}
}

// listExample returns a value for a list of type t.
func listExample(at keyPath, t reflect.Type) string {
	switch {
	case at.name == "models":
		return "[{match: gpt-*, upstreams: [{name: openai}]}]"
	case t.Elem() == reflect.TypeFor[Target]():
		return "[{name: openai}]"
	case t.Elem() == reflect.TypeFor[Pool]():
		return "[{memory_limit: 4g, size: 2}]"
	case t.Elem() == reflect.TypeFor[SignInProject]():
		return "[{group: engineers, project: proj_default}]"
	}
	return "[a, b]"
}

func (r keyReader) mapping(n *yaml.Node, t reflect.Type, at keyPath) {
	if n.Kind != yaml.MappingNode {
		r.fail(n, wrong(n, at, "must be a mapping "+mappingExample(t)))
		return
	}
	var fields map[string]reflect.Type
	if t.Kind() == reflect.Struct {
		fields = keysOf(t)
	}
	seen := map[string]int{}
	var valid []*yaml.Node
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, v := n.Content[i], n.Content[i+1]
		if first, twice := seen[k.Value]; twice {
			r.fail(v, &keyError{k.Line, fmt.Sprintf("%s appears twice, first on line %d", at.key(k.Value).name, first)})
			continue
		}
		seen[k.Value] = k.Line
		valid = append(valid, k, v)
		if k.ShortTag() == "!!merge" {
			r.merged(v, t, at)
			continue
		}
		of, below := reflect.Type(nil), at.key(k.Value)
		if fields == nil {
			of, below = t.Elem(), at.element("."+k.Value)
		} else if of = fields[k.Value]; of == nil {
			r.fail(v, &keyError{k.Line, fmt.Sprintf(unknownKey+"%s; %s", below.name, similarKey(k.Value, fields,
				at.name == ""))})
			continue
		}
		r.lines[below.name] = k.Line
		r.check(v, of, below)
	}
	n.Content = valid
}

// mappingExample describes a mapping of type t.
func mappingExample(t reflect.Type) string {
	if t == reflect.TypeFor[Target]() {
		return "with the name of an upstream, such as {name: openai}"
	}
	return "with keys below it"
}

// merged checks the mappings of a merge key.
func (r keyReader) merged(v *yaml.Node, t reflect.Type, at keyPath) {
	all := []*yaml.Node{v}
	if v.Kind == yaml.SequenceNode {
		all = v.Content
	}
	for _, m := range all {
		r.check(m, t, at)
	}
}

// keysOf returns the keys of a struct with their types.
func keysOf(t reflect.Type) map[string]reflect.Type {
	keys := map[string]reflect.Type{}
	for f := range t.Fields() {
		name, options, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		switch {
		case options == "inline":
			for k, of := range keysOf(f.Type) {
				keys[k] = of
			}
		case name != "" && name != "-":
			keys[name] = f.Type
		}
	}
	return keys
}

// scalarError returns an error unless a node is a single value of its type that its rule allows.
func scalarError(n *yaml.Node, t reflect.Type, at keyPath) error {
	if n.Kind != yaml.ScalarNode {
		return wrong(n, at, "must be a single value")
	}
	// yaml would truncate it
	if (t.Kind() == reflect.Int || t.Kind() == reflect.Int64) && !reflect.PointerTo(t).Implements(unmarshalerType) &&
		t != durationType && n.ShortTag() == "!!float" {
		return wrong(n, at, "must be a whole number")
	}
	text := n.Value
	if d, err := ParseDuration(text); t == durationType && err == nil && days.MatchString(n.Value) {
		n.Value = d.String() // which yaml can decode
	}
	v := reflect.New(t)
	if err := n.Decode(v.Interface()); err != nil {
		return unreadable(n, t, at, err)
	}
	rule := keyRules[at.rule]
	if rule.allows != "" && !rule.allowed(v.Elem()) {
		n.Value = text
		return wrong(n, at, "must be "+rule.allows)
	}
	return nil
}

// unreadable returns the error for a value that does not parse as its type.
func unreadable(n *yaml.Node, t reflect.Type, at keyPath, err error) error {
	switch {
	case reflect.PointerTo(t).Implements(unmarshalerType) || reflect.PointerTo(t).Implements(textType):
		return &keyError{n.Line, at.name + ": " + lineNumber.ReplaceAllString(err.Error(), "")}
	case t == durationType:
		if _, err := strconv.ParseFloat(n.Value, 64); err == nil {
			return &keyError{n.Line, fmt.Sprintf("%s: %s needs a unit, such as %sm", at.name, n.Value, n.Value)}
		}
		return wrong(n, at, "must be a duration, such as 90s, 20m, 12h or 30d")
	case t.Kind() == reflect.Bool:
		return wrong(n, at, "must be true or false")
	case t.Kind() == reflect.Float64:
		return wrong(n, at, "must be a number")
	case t.Kind() == reflect.Int || t.Kind() == reflect.Int64:
		return wrong(n, at, "must be a whole number")
	}
	return wrong(n, at, "must be text")
}

// wrong returns the error for a node that is not what its key needs.
func wrong(n *yaml.Node, at keyPath, problem string) error {
	where := at.name
	if where == "" {
		where = "the configuration"
	}
	if n.Kind == yaml.ScalarNode {
		return &keyError{n.Line, fmt.Sprintf("%s: %q %s", where, n.Value, problem)}
	}
	return &keyError{n.Line, where + " " + problem}
}

// A keyRule defines the values that a key may have.
type keyRule struct {
	allows   string // description, after "must be"; "" allows all
	min, max float64
	or       []float64 // further allowed numbers
	words    []string  // allowed texts
}

// atLeast allows numbers from min on. Durations are in seconds.
func atLeast(min float64, words string) keyRule {
	return keyRule{allows: words, min: min, max: math.Inf(1)}
}

func between(min, max float64, words string) keyRule {
	return keyRule{allows: words, min: min, max: max}
}

// oneOf allows words, and "".
func oneOf(words ...string) keyRule {
	last := len(words) - 1
	return keyRule{allows: strings.Join(words[:last], ", ") + " or " + words[last], words: append(words, "")}
}

// zero also allows 0.
func (k keyRule) zero() keyRule {
	k.or = append(k.or, 0)
	return k
}

func (k keyRule) allowed(v reflect.Value) bool {
	var n float64
	switch {
	case v.Kind() == reflect.String:
		for _, w := range k.words {
			if v.String() == w {
				return true
			}
		}
		return false
	case v.Type() == durationType:
		n = time.Duration(v.Int()).Seconds()
	case v.CanInt():
		n = float64(v.Int())
	case v.CanFloat():
		n = v.Float()
	}
	for _, o := range k.or {
		if n == o {
			return true
		}
	}
	return n >= k.min && n <= k.max
}
