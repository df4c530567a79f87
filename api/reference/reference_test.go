package reference

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/berth-run/berth/internal/rule"
)

type embedded struct {
	Shared string `json:"shared"`
}

type thing struct {
	embedded
	Name   string            `json:"name"`
	Note   *string           `json:"note"`
	Extra  *int64            `json:"extra,omitempty"`
	Labels map[string]string `json:"labels,omitempty"`
	Parts  []thing           `json:"parts"`
	Raw    json.RawMessage   `json:"raw"`
	Secret string            `json:"-"`
}

func document1(routes ...*Route) ([]byte, error) {
	return Document([]Section{{Name: "Things", Routes: routes}}, Options{Root: "../..",
		Module: "github.com/berth-run/berth"})
}

func TestDocument(t *testing.T) {
	check := rule.Object(rule.Fields{"name": rule.AnyText, "note": rule.AnyText, "shared": rule.AnyText,
		"extra": rule.Boolean, "labels": rule.AnyObject,
		"parts": rule.AnyText, "raw": rule.AnyText}, "name", "note")
	doc, err := document1(On("POST /v1/things/{thing}", "Make a thing, or two", "things.md").Takes(check,
		thing{}).Gives(thing{}),
		On("/v1/things/{thing}/x/{path...}", "Forward to a thing", "").Methods("GET",
			"PUT").GivesBytes("application/zip"))
	if err != nil {
		t.Fatal(err)
	}
	if err := Validate(doc); err != nil {
		t.Error(err)
	}
	var got struct {
		Paths      map[string]map[string]object
		Components struct{ Schemas map[string]json.RawMessage }
	}
	if err := json.Unmarshal(doc, &got); err != nil {
		t.Fatal(err)
	}
	post := got.Paths["/v1/things/{thing_id}"]["post"]
	if post["operationId"] != "makeThing" ||
		got.Paths["/v1/things/{thing_id}/x/{path}"]["put"]["operationId"] != "forwardToThingByPut" {
		t.Errorf("got %v", got.Paths)
	}
	for name, want := range map[string]string{
		// of the request
		"Thing": `"parts":{"items":{"$ref":"#/components/schemas/ThingParam"},"type":"array"},"raw":{},"shared":{"type":"string"}},"required":["name","note"]`,
		"BerthThing": `{"properties":{"extra":{"type":"integer"},"labels":{"additionalProperties":{"type":"string"},"type":"object"},"name":{"type":"string"},` +
			`"note":{"type":["string","null"]},"parts":{"items":{"$ref":"#/components/schemas/BerthThing"},"type":"array"},"raw":{},"shared":{"type":"string"}},` +
			`"required":["name","note","parts","raw","shared"],"type":"object"}`,
	} {
		if !bytes.Contains(got.Components.Schemas[name], []byte(want)) {
			t.Errorf("%s: got %s, want %s", name, got.Components.Schemas[name], want)
		}
	}
}

func TestProblems(t *testing.T) {
	for name, tt := range map[string]struct {
		route *Route
		want  string
	}{
		"no types":          {On("GET /v1/things", "List things", ""), "describe the types"},
		"types of OpenAI's": {On("GET /v1/files", "List files", "").Gives(thing{}), "describe the types"},
		"a field too many": {On("POST /v1/things", "Make", "").Takes(rule.Object(rule.Fields{"name": rule.AnyText}),
			thing{}), "which its rule refuses"},
		"the same operation": {On("/v1/things", "Make", "").Methods("GET", "GET").Gives(thing{}),
			"the same operation id"},
	} {
		if _, err := document1(tt.route); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want %q", name, err, tt.want)
		}
	}
}

func TestValidateRefuses(t *testing.T) {
	for name, doc := range map[string]string{
		"another version":     `{"openapi":"3.0.0","info":{"title":"x","version":"1"},"paths":{}}`,
		"an unknown field":    `{"openapi":"3.1.0","info":{"title":"x","version":"1"},"paths":{},"extra":1}`,
		"a schema of nothing": `{"openapi":"3.1.0","info":{"title":"x","version":"1"},"paths":{},"components":{"schemas":{"A":{"$ref":"#/components/schemas/B"}}}}`,
		"a broken schema":     `{"openapi":"3.1.0","info":{"title":"x","version":"1"},"paths":{},"components":{"schemas":{"A":{"type":5}}}}`,
	} {
		if Validate([]byte(doc)) == nil {
			t.Errorf("%s is valid", name)
		}
	}
}
