package computer

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/berth-run/berth"
)

func TestLowerOutput(t *testing.T) {
	type part struct {
		Type     string
		ImageURL string `json:"image_url"`
		FileID   string `json:"file_id"`
	}
	text := part{Type: "input_text"}
	for name, tt := range map[string]struct {
		fields string
		want   []part
	}{
		"Image": {`"output":{"type":"computer_screenshot","image_url":"data:a\"\u00e9"}`,
			[]part{{"input_image", "data:a\"é", ""}}},
		"Spaces": {`"output" : { "image_url" : "data:a" , "type":"computer_screenshot" } , "current_url":"https://a"`,
			[]part{{"input_image", "data:a", ""}, text}},
		"EscapedNames": {`"\u006futput":{"im\u0061ge_url":"data:a"}`, []part{{"input_image", "data:a", ""}}},
		"Twice":        {`"output":{"image_url":"data:a","image_url":"data:b"}`, []part{{"input_image", "data:b", ""}}},
		"File":         {`"output":{"file_id":"file_1","image_url":null}`, []part{{"input_image", "", "file_1"}}},
		"Empty":        {`"output":{"file_id":"file_1","image_url":""}`, []part{{"input_image", "", "file_1"}}},
		"Failed": {`"output":{"image_url":"data:a"},"berth":{"message":"too late"}`,
			[]part{{"input_image", "data:a", ""}, text}},
		"Blank": {`"output":{"image_url":"data:a"},"berth":{"blank":true,"message":"no display"}`, []part{text}},
		"Agreed": {`"output":{"image_url":"data:a"},"acknowledged_safety_checks":[{"id":"s"}]`,
			[]part{{"input_image", "data:a", ""}, text}},
	} {
		t.Run(name, func(t *testing.T) {
			var it berth.Item
			if err := json.Unmarshal([]byte(`{"type":"computer_call_output","call_id":"c",`+tt.fields+`}`),
				&it); err != nil {
				t.Fatal(err)
			}
			raw, err := lowerOutput(it)
			if err != nil {
				t.Fatal(err)
			}
			var got []part
			if err := json.Unmarshal(raw, &got); err != nil {
				t.Fatalf("%s: %v", raw, err)
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
		})
	}
}
