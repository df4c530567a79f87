package modeltest

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/model"
	"github.com/berth-run/berth/model/dialogue"
)

// Direct is a transport that calls a double without a network.
type Direct struct{ http.Handler }

// RoundTrip implements http.RoundTripper.
func (d Direct) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	d.ServeHTTP(w, r)
	return w.Result(), nil
}

// fragment returns the nth item of a conversation. The byte selects its type, and two
// of the byte's bits its id.
func fragment(b byte, n int) berth.Item {
	id := fmt.Sprintf("call_%d", b>>3&3)
	text := fmt.Sprintf("<%d>", n)
	switch b & 7 {
	case 0:
		return user("u")
	case 1:
		return assistant("a")
	case 2, 3:
		return call(id, "f", "{")
	case 4, 5:
		return output(id, text)
	case 6:
		return raw(`{"type":"function_call_output","call_id":"` + id + `","output":[{"type":"input_text","text":"` +
			text + `"},{"type":"input_image","image_url":"` + image + `"}]}`)
	}
	if b&8 == 0 {
		return berth.NewItem(berth.Reasoning{Type: berth.ItemReasoning, Summary: []berth.Content{},
			EncryptedContent: dialogue.Seal("another vendor", "double-1", "signed")})
	}
	return message("developer", berth.Content{Type: "input_text", Text: "d"})
}

// FuzzHistory sends items in any order. The double, which is strict, must accept the
// request, and receive each call once and every output.
func FuzzHistory(f *testing.F, p model.Provider, double *Double) {
	f.Add([]byte{0, 2, 4, 1, 0})
	f.Add([]byte{2, 10, 12, 4, 2, 3, 4, 6, 7, 15})
	f.Add([]byte{4, 6, 2, 1, 2, 0, 4})
	f.Fuzz(func(t *testing.T, order []byte) {
		req := &model.Request{Model: "double-1", Instructions: "Be brief."}
		calls := 0
		var outputs []string
		for n, b := range order[:min(len(order), 64)] {
			it := fragment(b, n)
			req.Items = append(req.Items, it)
			switch it.Type() {
			case berth.ItemFunctionCall:
				calls++
			case berth.ItemFunctionCallOutput:
				outputs = append(outputs, fmt.Sprintf("<%d>", n))
			}
		}
		before := len(double.Requests())
		if _, err := Collect(t, p, req); err != nil {
			t.Fatalf("%v: %v", order, err)
		}
		gotCalls := 0
		var texts strings.Builder
		for _, m := range double.Requests()[before].Messages {
			gotCalls += len(m.Calls)
			texts.WriteString(m.Text)
		}
		if gotCalls != calls {
			t.Errorf("%v: got %d calls, want %d", order, gotCalls, calls)
		}
		for _, o := range outputs {
			if n := strings.Count(texts.String(), o); n != 1 {
				t.Errorf("%v: got output %s %d times, want once", order, o, n)
			}
		}
	})
}
