// Package rule checks the JSON of requests before it is decoded. A tree of rules, one
// for each place, describes a valid request. The first violation becomes the error for
// the client, in OpenAI's words.
package rule

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// A Rule checks the JSON value at a place in a request, such as "tools[0].name". It
// returns the first violation as a *berth.Error, or nil. Rules and the words of their
// errors follow OpenAI's.
type Rule func(at string, v any) error

// Fields are the rules of an object's fields, by name. A field that is null counts as absent.
type Fields map[string]Rule

// Object allows these fields and no others.
func Object(known Fields, required ...string) Rule {
	return func(at string, v any) error {
		obj, ok := v.(map[string]any)
		if !ok {
			return WrongType(at, "an object", v)
		}
		for _, name := range slices.Sorted(maps.Keys(obj)) {
			if known[name] == nil {
				return UnknownParameter(Join(at, name))
			}
		}
		return CheckFields(at, obj, known, required)
	}
}

// OpenObject allows these fields and any others, which are preserved. It refuses a name
// that differs from a known one by case alone, because a case-insensitive decoder would
// confuse the two.
func OpenObject(known Fields, required ...string) Rule {
	return func(at string, v any) error {
		obj, ok := v.(map[string]any)
		if !ok {
			return WrongType(at, "an object", v)
		}
		for _, name := range slices.Sorted(maps.Keys(obj)) {
			if known[name] != nil {
				continue
			}
			for k := range known {
				if strings.EqualFold(k, name) {
					return UnknownParameter(Join(at, name))
				}
			}
		}
		return CheckFields(at, obj, known, required)
	}
}

// CheckFields checks the known fields of an object. It ignores all others.
func CheckFields(at string, obj map[string]any, known Fields, required []string) error {
	for _, name := range required {
		if obj[name] == nil {
			return Missing(Join(at, name))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(known)) {
		if v := obj[name]; v != nil {
			if err := known[name](Join(at, name), v); err != nil {
				return err
			}
		}
	}
	return nil
}

// ByType checks an object by the rule for its "type".
func ByType(kinds map[string]Rule) Rule { return ByField("type", kinds) }

// ByField checks an object by the rule for the value of one of its fields.
func ByField(name string, kinds map[string]Rule) Rule {
	return func(at string, v any) error {
		obj, ok := v.(map[string]any)
		if !ok {
			return WrongType(at, "an object", v)
		}
		at2 := Join(at, name)
		if obj[name] == nil {
			return Missing(at2)
		}
		kind, ok := obj[name].(string)
		if !ok {
			return WrongType(at2, "a string", obj[name])
		}
		if kinds[kind] == nil {
			return WrongValue(at2, kind, slices.Sorted(maps.Keys(kinds)))
		}
		return kinds[kind](at, v)
	}
}

// Merged returns the rules of both tables. If both have a rule for a type, b's wins.
func Merged(a, b map[string]Rule) map[string]Rule {
	out := maps.Clone(a)
	maps.Copy(out, b)
	return out
}

// List checks every element of an array. most is the maximum number of elements; 0 means no limit.
func List(each Rule, most int) Rule {
	return func(at string, v any) error {
		values, ok := v.([]any)
		if !ok {
			return WrongType(at, "an array", v)
		}
		if most > 0 && len(values) > most {
			return Errorf("array_above_max_length", at,
				"Invalid '%s': array too long. Expected an array with maximum length %d, but got an array with length %d instead.",
				at, most, len(values))
		}
		for i, e := range values {
			if err := each(fmt.Sprintf("%s[%d]", at, i), e); err != nil {
				return err
			}
		}
		return nil
	}
}

// AtLeastOne makes a rule refuse an empty array.
func AtLeastOne(r Rule) Rule {
	return func(at string, v any) error {
		if values, ok := v.([]any); ok && len(values) == 0 {
			return Errorf("empty_array", at,
				"Invalid '%s': empty array. Expected an array with minimum length 1, but got an empty array instead.", at)
		}
		return r(at, v)
	}
}

// OneSource makes the rule of an object require at least one of the given fields.
func OneSource(sources []string, r Rule) Rule {
	return func(at string, v any) error {
		if err := r(at, v); err != nil {
			return err
		}
		for _, name := range sources {
			if v.(map[string]any)[name] != nil {
				return nil
			}
		}
		return Missing(Join(at, sources[0]))
	}
}
