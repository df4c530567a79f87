package api_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

// conforms checks JSON against a type of the vendor's client: it has each field that the type requires, and no others,
// and values of the kinds of its fields.
func conforms[T any](t *testing.T, data []byte) {
	t.Helper()
	var v any
	check(t, json.Unmarshal(data, &v))
	if problem := fits(reflect.TypeFor[T](), v); problem != "" {
		t.Errorf("%s: %s", data, problem)
	}
	var into T
	check(t, json.Unmarshal(data, &into))
}

// extra are fields that only some of the vendor's types have.
var extra = map[string]bool{"caller": true}

func fits(of reflect.Type, v any) string {
	switch {
	case v == nil:
		return ""
	case of.Kind() == reflect.Slice && of.Elem().Kind() != reflect.Uint8:
		list, ok := v.([]any)
		if !ok {
			return "expected a list"
		}
		for _, each := range list {
			if problem := fits(of.Elem(), each); problem != "" {
				return problem
			}
		}
		return ""
	case of.Kind() == reflect.String && v != nil:
		if _, ok := v.(string); !ok {
			return "expected a string"
		}
	case of.Kind() == reflect.Int64:
		if _, ok := v.(float64); !ok {
			return "expected a number"
		}
	case of.Kind() == reflect.Struct && of.PkgPath() != "time":
		return fitsObject(of, v)
	}
	return ""
}

func fitsObject(of reflect.Type, v any) string {
	if variant := variantOf(of, v); variant != nil {
		return fitsObject(variant, v)
	}
	object, ok := v.(map[string]any)
	if !ok {
		return "" // a union of an object and another value
	}
	known := map[string]bool{}
	for field := range of.Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if name == "" || name == "-" {
			continue
		}
		known[name] = true
		held, present := object[name]
		if !present && required(field) {
			return of.Name() + " lacks " + name
		}
		if problem := fits(field.Type, held); problem != "" {
			return of.Name() + "." + name + ": " + problem
		}
	}
	for name := range object {
		if !known[name] && !extra[name] {
			return of.Name() + " has the unknown field " + name
		}
	}
	return ""
}

// later are required fields that the vendor added, and that its own service omits where they do not apply.
var later = map[string]bool{"context_management": true, "fallback_credit": true, "iterations": true, "speed": true,
	"lifecycle": true, "line": true, "deprecated_at": true, "retires_at": true, "estimated_tokens": true,
	"fallback_credit_token": true, "fallback_has_prefill_claim": true, "recommended_model": true}

func required(field reflect.StructField) bool {
	name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
	return field.Tag.Get("api") == "required" && !later[name]
}

// variantOf returns the member of a union that a value's "type" selects, or nil.
func variantOf(of reflect.Type, v any) reflect.Type {
	object, ok := v.(map[string]any)
	if !ok || !strings.HasSuffix(of.Name(), "Union") {
		return nil
	}
	kind, _ := object["type"].(string)
	for method := range reflect.PointerTo(of).Methods() {
		if !strings.HasPrefix(method.Name, "As") || method.Type.NumOut() != 1 || method.Type.NumIn() != 1 {
			continue
		}
		member := method.Type.Out(0)
		if member.Kind() != reflect.Struct {
			continue
		}
		if field, ok := member.FieldByName("Type"); ok && field.Tag.Get("default") == kind {
			return member
		}
	}
	return nil
}
