package berth

import (
	"encoding/json"
	"slices"
	"testing"
)

// FuzzItemHead checks that an item has the head that package json reads.
func FuzzItemHead(f *testing.F) {
	for _, text := range []string{
		`{"id":"a","type":"message","status":"completed","role":"user","call_id":"c","content":[{"id":"b"}]}`,
		` { "content" : {"id":"x"} , "id" : "a\u0062" } `, `{}`, `{"ID":"a"}`, `{"\u0069d":"a"}`, `{"id":null}`,
		`{"id":1}`, `{"id":"a","id":"b"}`,
		`{"ſtatus":"a"}`, "{\"id\":\"\xff\"}", `{"id":"a","output":"}{\"id\":\"z\""}`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if !json.Valid(text) {
			t.Skip()
		}
		var want itemHead
		wantErr := json.Unmarshal(text, &want)
		var it Item
		err := it.UnmarshalJSON(text)
		if wantErr != nil && err == nil {
			t.Fatalf("%q: got no error, want %v", text, wantErr)
		}
		if err == nil && it.data().head != want {
			t.Errorf("%q: got %+v, want %+v", text, it.data().head, want)
		}
	})
}

func TestNewFunctionCallOutput(t *testing.T) {
	for _, output := range []json.RawMessage{nil, json.RawMessage(`"a"`),
		json.RawMessage(`[ {"type": "input_text", "text": "\n"} ]`)} {
		it, err := NewFunctionCallOutput("fco_1", "call_1", output)
		if err != nil {
			t.Fatal(err)
		}
		var got FunctionCallOutput
		if err := it.Decode(&got); err != nil {
			t.Fatalf("%s: %v", it, err)
		}
		want := slices.Clone(output)
		if want == nil {
			want = json.RawMessage("null")
		}
		if string(got.Output) != string(want) || got.ID != "fco_1" || it.CallID() != "call_1" ||
			it.Type() != ItemFunctionCallOutput || it.Status() != StatusCompleted {
			t.Errorf("%s: got %+v, want the output %s", it, got, want)
		}
	}
}
