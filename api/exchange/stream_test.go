package exchange

import (
	"bytes"
	"encoding/json"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
)

func TestEventWriterGolden(t *testing.T) {
	w := httptest.NewRecorder()
	s := New(Options{Limits: Limits{KeepAlive: time.Hour}})
	out := s.start(w, httptest.NewRequest("GET", "/", nil)).Events(false)
	for _, data := range []string{
		`{"type":"response.created","sequence_number":0,"response":{}}`,
		`{"type":"response.output_text.delta","sequence_number":1,"delta":"a\n"}`,
	} {
		var head struct{ Type berth.EventType }
		json.Unmarshal([]byte(data), &head)
		if err := out.Events([]store.Event{{Type: head.Type, Data: json.RawMessage(data)}}); err != nil {
			t.Fatal(err)
		}
	}
	out.Fail(2, berth.Errorf(berth.CodeUnavailable, "later"))
	want := `event: response.created
data: {"type":"response.created","sequence_number":0,"response":{}}

event: response.output_text.delta
data: {"type":"response.output_text.delta","sequence_number":1,"delta":"a\n"}

event: error
data: {"type":"error","sequence_number":2,"error":{"type":"server_error","code":"unavailable","message":"later","param":null},"code":"unavailable","message":"later","param":null}

`
	if diff := cmp.Diff(want, w.Body.String()); diff != "" {
		t.Errorf("stream (-want +got):\n%s", diff)
	}
	if !w.Flushed {
		t.Error("nothing was flushed")
	}
}

func pieces(data, tail []byte) [][]byte { return [][]byte{data, tail} }

func TestObfuscated(t *testing.T) {
	for _, text := range []string{"", "a", "ü\n\"", strings.Repeat("x", 15), strings.Repeat("x", 16),
		strings.Repeat("x", 40)} {
		delta, _ := json.Marshal(text)
		data := `{"type":"response.output_text.delta","delta":` + string(delta) + `,"sequence_number":4}`
		var got struct {
			Delta       string `json:"delta"`
			Obfuscation string `json:"obfuscation"`
			Number      int    `json:"sequence_number"`
		}
		if err := json.Unmarshal(bytes.Join(pieces(Obfuscate([]byte(data))), nil), &got); err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		n := utf8.RuneCountInString(got.Delta + got.Obfuscation)
		if got.Delta != text || got.Number != 4 || got.Obfuscation == "" || n%16 != 0 {
			t.Errorf("%q: got %+v with %d characters, want a multiple of 16", text, got, n)
		}
	}
	for _, data := range []string{
		`{"type":"response.completed","response":{"output":[{"delta":"x"}]}}`,
		`{"type":"response.shell_call_output_content.delta","delta":{"stdout":"\"delta\":\"x"}}`,
		`{"type":"response.output_text.done","text":"\"delta\":\"x\""}`,
	} {
		if got := string(bytes.Join(pieces(Obfuscate([]byte(data))), nil)); got != data {
			t.Errorf("got %s, want it untouched: %s", got, data)
		}
	}
}
