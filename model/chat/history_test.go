package chat_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/model"
	"github.com/berth-run/berth/model/chat"
	"github.com/berth-run/berth/model/modeltest"
	"github.com/berth-run/berth/model/upstream"
)

// A direct transport calls a handler without a network.
type direct struct{ http.Handler }

func (d direct) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	d.ServeHTTP(w, r)
	return w.Result(), nil
}

// fragment is the item that a byte stands for; two bits of it choose among ids.
func fragment(b byte) berth.Item {
	id := fmt.Sprintf("call_%d", b>>3&3)
	switch b & 7 {
	case 0:
		return message("user", "u")
	case 1:
		return berth.NewItem(berth.Message{Type: berth.ItemMessage, Role: "assistant", Content: []berth.Content{{Type: "output_text", Text: "a"}}})
	case 2, 3:
		return berth.NewItem(berth.FunctionCall{Type: berth.ItemFunctionCall, CallID: id, Name: "f", Arguments: "{"})
	case 4, 5:
		return berth.NewItem(berth.FunctionCallOutput{Type: berth.ItemFunctionCallOutput, CallID: id, Output: berth.StringDelta("o")})
	case 6:
		return berth.NewItem(berth.FunctionCallOutput{Type: berth.ItemFunctionCallOutput, CallID: id,
			Output: []byte(`[{"type":"input_image","image_url":"https://example.com/a.png"}]`)})
	}
	return message("developer", "d")
}

// Items in any order become a conversation that a strict upstream takes, in which
// each call has one output and no output is lost.
func FuzzHistory(f *testing.F) {
	f.Add([]byte{0, 2, 4, 1, 0})
	f.Add([]byte{2, 10, 12, 4, 2, 3, 4, 6, 7})
	f.Add([]byte{4, 6, 2, 1, 2, 0, 4})
	double := modeltest.NewChatHandler(modeltest.Always(modeltest.Say(model.Finish{Reason: model.FinishStop})))
	p, err := chat.New(chat.Options{Options: upstream.Options{BaseURL: "http://double/v1", HTTPClient: &http.Client{Transport: direct{double}}}})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, order []byte) {
		req := &model.Request{Model: "m", Instructions: "Be brief."}
		calls, outputs := 0, 0
		for _, b := range order[:min(len(order), 64)] {
			it := fragment(b)
			req.Items = append(req.Items, it)
			switch it.Type() {
			case berth.ItemFunctionCall:
				calls++
			case berth.ItemFunctionCallOutput:
				outputs++
			}
		}
		before := len(double.Heard())
		if _, err := modeltest.Ask(t, p, req); err != nil {
			t.Fatalf("%v: %v", order, err)
		}
		heardCalls, heardOutputs := 0, 0
		for _, m := range double.Heard()[before].Messages {
			heardCalls += len(m.Calls)
			if m.Role == "tool" && m.Text != "The call was interrupted; there is no output." ||
				m.Role == "user" && len(m.Text) > 1 {
				heardOutputs++
			}
		}
		if heardCalls != calls || heardOutputs != outputs {
			t.Errorf("%v: heard %d calls and %d outputs, want %d and %d", order, heardCalls, heardOutputs, calls, outputs)
		}
	})
}
