package anthropic

import (
	"encoding/json"
	"testing"

	sdk "github.com/anthropics/anthropic-sdk-go"
	"github.com/google/go-cmp/cmp"
)

// Schemas are simplified as Anthropic's SDK does it.
func TestSimplify(t *testing.T) {
	for _, schema := range []string{
		`{"type":"object","properties":{"a":{"type":"string"}},"required":["a"],"additionalProperties":false}`,
		`{"type":"object","properties":{"a":{"type":"string","minLength":1,"maxLength":5}}}`,
		`{"type":"object","properties":{"a":{"type":"string","format":"ipv4"},"b":{"type":"string","format":"regex","description":"A pattern."}}}`,
		`{"type":"object","additionalProperties":{"type":"integer","minimum":3,"multipleOf":1.5}}`,
		`{"type":"object"}`,
		`{"type":"array","items":{"type":"object","properties":{"n":{"type":"number"}}},"minItems":1,"maxItems":4,"uniqueItems":true}`,
		`{"type":"array","items":{"type":"string"},"minItems":2}`,
		`{"oneOf":[{"type":"string"},{"type":"null"},{"description":"no form"}]}`,
		`{"anyOf":[{"type":"object","properties":{"a":{"$ref":"#/$defs/A","description":"dropped"}}},{"type":"integer","exclusiveMaximum":9}],"$defs":{"A":{"type":"string","pattern":"^a","examples":["a"]}}}`,
		`{"allOf":[{"type":"object","properties":{"a":{"type":"boolean","default":true}}},{"type":"object"}]}`,
		`{"enum":["a","b",null],"title":"Letters","deprecated":true}`,
		`{"type":"object","properties":{"a":{"const":1},"b":{"type":"array","items":{"type":"array","items":{"type":"number","maximum":2},"contains":{"type":"number"}}}},"patternProperties":{"^x":{"type":"string"}}}`,
		`{"type":["string","null"],"maxLength":3}`,
	} {
		var plain, forSDK map[string]any
		if err := json.Unmarshal([]byte(schema), &plain); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal([]byte(schema), &forSDK); err != nil {
			t.Fatal(err)
		}
		raw, err := json.Marshal(sdk.BetaJSONSchemaOutputFormat(forSDK).Schema)
		if err != nil {
			t.Fatal(err)
		}
		var want any
		if err := json.Unmarshal(raw, &want); err != nil {
			t.Fatal(err)
		}
		if want == nil {
			t.Logf("the SDK makes nothing of %s", schema)
			continue
		}
		if diff := cmp.Diff(want, simplify(plain)); diff != "" {
			t.Errorf("%s (-SDK +Berth):\n%s", schema, diff)
		}
	}
}
