package server

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
// and have an allowed value of its type. It notes the line of each key and element.
type keyReader struct {
	lines map[string]int // by name
	depth int
}

// A keyError is an error at a line of a configuration file.
type keyError struct {
	line    int
	problem string // begins with the key
}

func (e *keyError) Error() string { return e.problem }

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

// check returns an error unless a node is a valid value of type t.
func (r keyReader) check(n *yaml.Node, t reflect.Type, at keyPath) error {
	if r.depth++; r.depth > maxDepth {
		return r.wrong(n, at, "is nested too deeply")
	}
	switch {
	case n.Kind == yaml.AliasNode:
		return r.check(n.Alias, t, at)
	case n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null":
		return nil
	case reflect.PointerTo(t).Implements(unmarshalerType):
		return r.scalar(n, t, at)
	}
	switch t.Kind() {
	case reflect.Pointer:
		return r.check(n, t.Elem(), at)
	case reflect.Struct, reflect.Map:
		return r.mapping(n, t, at)
	case reflect.Slice:
		if n.Kind != yaml.SequenceNode {
			return r.wrong(n, at, "must be a list, such as [a, b]")
		}
		for i, e := range n.Content {
			at := at.element(fmt.Sprintf("[%d]", i))
			r.lines[at.name] = e.Line
			if err := r.check(e, t.Elem(), at); err != nil {
				return err
			}
		}
		return nil
	}
	return r.scalar(n, t, at)
}

func (r keyReader) mapping(n *yaml.Node, t reflect.Type, at keyPath) error {
	if n.Kind != yaml.MappingNode {
		return r.wrong(n, at, "must be a mapping with keys below it")
	}
	var fields map[string]reflect.Type
	if t.Kind() == reflect.Struct {
		fields = keysOf(t)
	}
	seen := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, v := n.Content[i], n.Content[i+1]
		if first, twice := seen[k.Value]; twice {
			return &keyError{k.Line, fmt.Sprintf("%s appears twice, first on line %d", at.key(k.Value).name, first)}
		}
		seen[k.Value] = k.Line
		if k.ShortTag() == "!!merge" {
			if err := r.merged(v, t, at); err != nil {
				return err
			}
			continue
		}
		of, below := reflect.Type(nil), at.key(k.Value)
		if fields == nil {
			of, below = t.Elem(), at.element("."+k.Value)
		} else if of = fields[k.Value]; of == nil {
			return &keyError{k.Line, fmt.Sprintf("unknown key %s; %s", below.name, similarKey(k.Value, fields, at.name == ""))}
		}
		r.lines[below.name] = k.Line
		if err := r.check(v, of, below); err != nil {
			return err
		}
	}
	return nil
}

// merged checks the mappings of a merge key.
func (r keyReader) merged(v *yaml.Node, t reflect.Type, at keyPath) error {
	all := []*yaml.Node{v}
	if v.Kind == yaml.SequenceNode {
		all = v.Content
	}
	for _, m := range all {
		if err := r.check(m, t, at); err != nil {
			return err
		}
	}
	return nil
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

// scalar checks a single value against its type and its rule.
func (r keyReader) scalar(n *yaml.Node, t reflect.Type, at keyPath) error {
	if n.Kind != yaml.ScalarNode {
		return r.wrong(n, at, "must be a single value")
	}
	if (t.Kind() == reflect.Int || t.Kind() == reflect.Int64) && !reflect.PointerTo(t).Implements(unmarshalerType) && t != durationType && n.ShortTag() == "!!float" { // yaml would truncate it
		return r.wrong(n, at, "must be a whole number")
	}
	v := reflect.New(t)
	if err := n.Decode(v.Interface()); err != nil {
		return r.unreadable(n, t, at, err)
	}
	rule := keyRules[at.rule]
	if rule.allows != "" && !rule.allowed(v.Elem()) {
		return r.wrong(n, at, "must be "+rule.allows)
	}
	return nil
}

// unreadable returns the error for a value that does not parse as its type.
func (r keyReader) unreadable(n *yaml.Node, t reflect.Type, at keyPath, err error) error {
	switch {
	case reflect.PointerTo(t).Implements(unmarshalerType) || reflect.PointerTo(t).Implements(textType):
		return &keyError{n.Line, at.name + ": " + lineNumber.ReplaceAllString(err.Error(), "")}
	case t == durationType:
		if _, err := strconv.ParseFloat(n.Value, 64); err == nil {
			return &keyError{n.Line, fmt.Sprintf("%s: %s needs a unit, such as %sm", at.name, n.Value, n.Value)}
		}
		return r.wrong(n, at, "must be a duration, such as 90s, 20m or 12h")
	case t.Kind() == reflect.Bool:
		return r.wrong(n, at, "must be true or false")
	case t.Kind() == reflect.Float64:
		return r.wrong(n, at, "must be a number")
	case t.Kind() == reflect.Int || t.Kind() == reflect.Int64:
		return r.wrong(n, at, "must be a whole number")
	}
	return r.wrong(n, at, "must be text")
}

func (keyReader) wrong(n *yaml.Node, at keyPath, problem string) error {
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
