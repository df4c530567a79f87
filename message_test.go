package berth

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var messages = map[string]bool{ // whether they are decoded the fast way
	`{"type":"message","role":"user","content":"hello"}`:                                                                       true,
	` { "id" : "msg_1" , "type" : "message" , "role" : "assistant" , "content" : "a\"\\n\u00e9\ud83d\ude00" , "name" : "n" } `: true,
	`{"content":"the role follows","role":"assistant"}`:                                                                        true,
	`{"id":"msg_1","type":"message","status":"completed","phase":"commentary","role":"assistant","content":[{"type":"output_text","annotations":[],"logprobs":[],"text":"a\\b"},{"type":"other"}]}`: true,
	`{"role":"user","content":[]}`:                                                true,
	`{"role":"user","content":[{}],"content":"twice"}`:                            true,
	`{"role":"user","content":"twice","content":[{"text":"x"}]}`:                  true,
	`{"role":"user","content":[{"type":"input_image","image_url":"x"}]}`:          false,
	`{"role":"user","content":[{"type":"output_text","annotations":[{"a":1}]}]}`:  false,
	`{"role":"user","content":[{"type":"output_text","text":"x"}],"unknown":[1]}`: false,
	`{"Role":"user","content":"in another case"}`:                                 false,
	`{"role":null,"content":"x"}`:                                                 false,
	`{"role":"user","content":null}`:                                              false,
	`{"role":"user"}`:                                                             false,
	"{\"role\":\"user\",\"content\":\"\xff\"}":                                    false,
	`{"r\u006fle":"user","content":"x"}`:                                          false,
}

func TestMessageDecodesText(t *testing.T) {
	for text, fast := range messages {
		var m Message
		if got := m.decodeText([]byte(text)); got != fast {
			t.Errorf("decodeText(%s): got %v, want %v", text, got, fast)
		}
		sameMessage(t, []byte(text))
	}
}

// sameMessage checks that both ways decode a message alike.
func sameMessage(t *testing.T, text []byte) {
	t.Helper()
	var fast, full Message
	if !fast.decodeText(text) {
		return
	}
	if err := full.decode(text); err != nil {
		t.Errorf("%s: decoded what is refused: %v", text, err)
	}
	if diff := cmp.Diff(full, fast); diff != "" {
		t.Errorf("%s (-full +fast):\n%s", text, diff)
	}
}

func FuzzMessage(f *testing.F) {
	for text := range messages {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if json.Valid(text) {
			sameMessage(t, text)
		}
	})
}

func BenchmarkDecodeMessage(b *testing.B) {
	it := NewItem(Message{ID: "msg_0123456789abcdef", Type: "message", Status: "completed", Role: "assistant",
		Content: []Content{{Type: "output_text",
			Text: "word word word word word word word word word word word word word word word word"}}})
	for b.Loop() {
		var m Message
		if err := it.Decode(&m); err != nil {
			b.Fatal(err)
		}
	}
}
