package main

import (
	"encoding/json"
	"fmt"
	"path"
	"reflect"
	"slices"
	"strings"
)

// A selector selects objects by the value of a field, as --json prints both.
type selector struct {
	field   []string // names from the outermost object inward
	pattern string   // see path.Match
}

// parseSelector parses FIELD=PATTERN.
func parseSelector(text string) (selector, error) {
	field, pattern, ok := strings.Cut(text, "=")
	if _, err := path.Match(pattern, ""); !ok || field == "" || err != nil {
		return selector{}, badUsage("--filter: %q is not FIELD=PATTERN, such as name=test-*", text)
	}
	return selector{strings.Split(field, "."), pattern}, nil
}

// matches reports whether an object, decoded from JSON, has a value that matches. A list matches with
// any of its elements. A slash in a value is no separator.
func (s selector) matches(object any) bool {
	for _, name := range s.field {
		fields, ok := object.(map[string]any)
		if !ok {
			return false
		}
		if object, ok = fields[name]; !ok {
			return false
		}
	}
	values := []any{object}
	if list, ok := object.([]any); ok {
		values = list
	}
	return slices.ContainsFunc(values, func(value any) bool {
		if value == nil {
			value = ""
		}
		if _, composed := value.(map[string]any); composed {
			return false
		}
		plain := func(text string) string { return strings.ReplaceAll(text, "/", "\x00") }
		ok, _ := path.Match(plain(s.pattern), plain(fmt.Sprint(value)))
		return ok
	})
}

// filtered returns the objects that match all filters of a listing.
func filtered[T any](l *listing, objects []T) ([]T, error) {
	var all []selector
	for _, text := range l.filters {
		s, err := parseSelector(text)
		if err != nil {
			return nil, err
		}
		if names := fieldNames(reflect.TypeFor[T]()); !slices.Contains(names, s.field[0]) {
			return nil, badUsage("--filter: there is no field %q here; there are: %s", s.field[0], strings.Join(names, ", "))
		}
		all = append(all, s)
	}
	if len(all) == 0 {
		return objects, nil
	}
	var kept []T
	for _, o := range objects {
		raw, err := json.Marshal(o)
		if err != nil {
			return nil, err
		}
		var object any
		decoder := json.NewDecoder(strings.NewReader(string(raw)))
		decoder.UseNumber()
		if err := decoder.Decode(&object); err != nil {
			return nil, err
		}
		if !slices.ContainsFunc(all, func(s selector) bool { return !s.matches(object) }) {
			kept = append(kept, o)
		}
	}
	return kept, nil
}

// fieldNames returns the names of a struct's fields in JSON, sorted.
func fieldNames(t reflect.Type) (names []string) {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	for _, field := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if name != "" && name != "-" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}
