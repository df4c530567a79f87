package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// A condition selects the objects of a listing by one field of their JSON.
type condition struct {
	field string // such as status or berth.reason
	value string // a pattern of path.Match
	not   bool   // select the objects whose field does not match
}

// conditions is the value of --filter, which may be repeated.
type conditions struct {
	example string
	fields  []string // that objects have; a last element of * matches any name
	all     []condition
}

// filterFlag adds --filter to a command that prints objects of type T, without the shorthand of
// listings.
func filterFlag[T any](cmd *cobra.Command, example string) *conditions {
	c := &conditions{example: example, fields: fieldsOf(reflect.TypeFor[T]())}
	cmd.Flags().Var(c, "filter",
		"print only those with this value, such as "+example+"; != excludes, * matches any text; all of several must match")
	if err := cmd.RegisterFlagCompletionFunc("filter", c.complete); err != nil {
		panic(err) // the flag exists
	}
	return c
}

func (c *conditions) String() string { return "" }
func (c *conditions) Type() string   { return "FIELD=VALUE" }

// Set adds a condition. It returns an error if the text is none or if no object has the field.
func (c *conditions) Set(text string) error {
	field, value, ok := strings.Cut(text, "=")
	one := condition{field: field, value: value}
	one.field, one.not = strings.CutSuffix(field, "!")
	if _, err := path.Match(value, ""); !ok || one.field == "" || err != nil {
		return fmt.Errorf("expected FIELD=VALUE or FIELD!=VALUE, such as %s", c.example)
	}
	if !slices.ContainsFunc(c.fields, func(known string) bool {
		return known == one.field || within(known, one.field)
	}) {
		return fmt.Errorf("unknown field %q; the fields are %s", one.field, strings.Join(c.fields, ", "))
	}
	c.all = append(c.all, one)
	return nil
}

// within reports whether a field is one of the map that a known field such as metadata.* names.
func within(known, field string) bool {
	prefix, ok := strings.CutSuffix(known, "*")
	return ok && strings.HasPrefix(field, prefix) && len(field) > len(prefix)
}

// complete returns the fields for the completion of --filter.
func (c *conditions) complete(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
	var found []cobra.Completion
	for _, field := range c.fields {
		found = append(found, strings.TrimSuffix(field, "*"))
	}
	return found, cobra.ShellCompDirectiveNoSpace | cobra.ShellCompDirectiveNoFileComp
}

// fieldsOf returns the fields of a type as its JSON has them: those of a structure inside are
// OUTER.INNER, those of a map are NAME.*.
func fieldsOf(t reflect.Type) []string {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	var fields []string
	for _, f := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous || !f.IsExported() || name == "-" || name == "" {
			continue // the fields of an embedded structure are visible themselves
		}
		inner := f.Type
		for inner.Kind() == reflect.Pointer {
			inner = inner.Elem()
		}
		switch {
		case inner.Implements(reflect.TypeFor[json.Marshaler]()), inner == reflect.TypeFor[time.Time]():
			fields = append(fields, name)
		case inner.Kind() == reflect.Map:
			fields = append(fields, name+".*")
		case inner.Kind() == reflect.Struct:
			for _, field := range fieldsOf(inner) {
				fields = append(fields, name+"."+field)
			}
		default:
			fields = append(fields, name)
		}
	}
	return fields
}

// keep reports whether all conditions select an object.
func (c *conditions) keep(object any) (bool, error) {
	if len(c.all) == 0 {
		return true, nil
	}
	text, err := json.Marshal(object)
	if err != nil {
		return false, fmt.Errorf("filter: %w", err)
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber() // 1e+06 would not be the number that --json prints
	var fields map[string]any
	if err := d.Decode(&fields); err != nil {
		return false, fmt.Errorf("filter: %w", err)
	}
	for _, one := range c.all {
		if one.matches(valueAt(fields, one.field)) == one.not {
			return false, nil
		}
	}
	return true, nil
}

// valueAt returns the value of a field, or nil. Keys of a map may contain dots.
func valueAt(fields map[string]any, field string) any {
	if v, ok := fields[field]; ok {
		return v
	}
	for i := range field {
		if field[i] != '.' {
			continue
		}
		if inner, ok := fields[field[:i]].(map[string]any); ok {
			return valueAt(inner, field[i+1:])
		}
	}
	return nil
}

// matches reports whether a value of JSON, or an element of a list, satisfies the condition. JSON omits
// empty strings, false and 0.
func (c condition) matches(v any) bool {
	switch v := v.(type) {
	case nil:
		return slices.Contains([]string{"", "false", "0"}, c.value)
	case []any:
		return slices.ContainsFunc(v, c.matches) || len(v) == 0 && c.matches(nil)
	case map[string]any: // an element of a list: any of its fields
		for _, inner := range v {
			if c.matches(inner) {
				return true
			}
		}
		return false
	}
	text := fmt.Sprint(v)
	return like(text, c.value) || shortID(text) == c.value
}

// like reports whether a text matches a pattern of path.Match. A slash in the text is no separator.
func like(text, pattern string) bool {
	plain := strings.NewReplacer("/", "\x00").Replace
	ok, err := path.Match(plain(pattern), plain(text))
	return ok && err == nil
}

// has reports whether a condition is on this field.
func (c *conditions) has(field string) bool {
	return slices.ContainsFunc(c.all, func(one condition) bool { return one.field == field })
}
