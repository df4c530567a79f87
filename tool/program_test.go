package tool

import (
	"testing"

	"github.com/berth-run/berth"
)

func TestValueOf(t *testing.T) {
	for shown, want := range map[string]string{
		`"plain"`:     `"plain"`,
		`"{\"a\":1}"`: `{"a":1}`,
		`" [1, 2]\n"`: `[1, 2]`,
		`"[not json"`: `"[not json"`,
		`"42"`:        `"42"`,
		`[{"type":"input_text","text":"{\"a\":"},{"type":"input_text","text":"1}"}]`: `{"a":` + "\n" + `1}`,
		`[{"type":"input_image","image_url":"data:,"}]`:                              `[{"type":"input_image","image_url":"data:,"}]`,
	} {
		if got := string(valueOf([]byte(shown))); got != want {
			t.Errorf("%s: got %s, want %s", shown, got, want)
		}
	}
}

func TestCallers(t *testing.T) {
	for entry, want := range map[string]Callers{
		`{"type":"function"}`:                                             {Model: true},
		`{"type":"function","allowed_callers":null}`:                      {Model: true},
		`{"type":"function","allowed_callers":["direct"]}`:                {Model: true},
		`{"type":"function","allowed_callers":["programmatic"]}`:          {Programs: true},
		`{"type":"function","allowed_callers":["programmatic","direct"]}`: {Model: true, Programs: true},
	} {
		var tool berth.Tool
		if err := tool.UnmarshalJSON([]byte(entry)); err != nil {
			t.Fatal(err)
		}
		if got := CallersOf(tool); got != want {
			t.Errorf("%s: got %+v", entry, got)
		}
	}
}
