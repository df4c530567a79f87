package chat

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/model"
	"github.com/berth-run/berth/model/modeltest"
	"github.com/berth-run/berth/model/upstream"
)

// conversation returns n items of an agent's session: a message, then calls and their
// outputs.
func conversation(n int) []berth.Item {
	items := []berth.Item{berth.NewItem(berth.Message{Type: berth.ItemMessage, Role: "user",
		Content: []berth.Content{{Type: "input_text",
			Text: "Please count the files of this directory, and then of each below it."}}})}
	for i := 0; len(items) < n; i++ {
		id := fmt.Sprintf("call_%d", i)
		items = append(items,
			berth.NewItem(berth.FunctionCall{Type: berth.ItemFunctionCall, CallID: id, Name: "shell",
				Arguments: `{"commands":["ls -la | wc -l"]}`}),
			berth.NewItem(berth.FunctionCallOutput{Type: berth.ItemFunctionCallOutput, CallID: id,
				Output: berth.StringDelta(
					`{"output":[{"outcome":{"type":"exit","exit_code":0},"stderr":"","stdout":"12\n"}]}`)}))
	}
	return items[:n]
}

// BenchmarkRequest measures the provider's share of a request: items to bytes.
func BenchmarkRequest(b *testing.B) {
	p, err := New(Options{Options: upstream.Options{BaseURL: "http://localhost/v1"}})
	if err != nil {
		b.Fatal(err)
	}
	for _, n := range []int{1, 100, 1000} {
		req := &model.Request{Model: "m", Items: conversation(n), Tools: []berth.FunctionTool{{Name: "shell"}}}
		b.Run(fmt.Sprintf("items=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				body, err := p.request(req)
				if err != nil {
					b.Fatal(err)
				}
				encoder := json.NewEncoder(io.Discard)
				encoder.SetEscapeHTML(false)
				if err := encoder.Encode(body); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkToken measures the provider's share of a streamed token: bytes to delta.
func BenchmarkToken(b *testing.B) {
	const tokens = 1000
	const text = `data: {"id":"chatcmpl-123","object":"chat.completion.chunk","created":1694268190,"model":"m","system_fingerprint":"fp_44709d6fcb","choices":[{"index":0,"delta":{"content":"Hello"},"logprobs":null,"finish_reason":null}]}` + "\n\n"
	const call = `data: {"id":"chatcmpl-123","object":"chat.completion.chunk","created":1694268190,"model":"m","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"","function":{"name":"f","arguments":"ls "}}]},"logprobs":null,"finish_reason":null}]}` + "\n\n"
	for name, event := range map[string]string{"text": text, "arguments": call} {
		in := strings.Repeat(event, tokens) + stream(end)
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				n := 0
				for _, err := range upstream.Read(strings.NewReader(in), newAnswer(&model.Request{},
					slog.New(slog.DiscardHandler)), slog.New(slog.DiscardHandler)) {
					if n++; err != nil {
						b.Fatal(err)
					}
				}
				if n != tokens+1 {
					b.Fatalf("got %d deltas, want %d", n, tokens+1)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*tokens), "ns/token")
		})
	}
}

// BenchmarkTurn measures a whole turn over loopback with an instant upstream, beside
// the same exchange with net/http only.
func BenchmarkTurn(b *testing.B) {
	double := modeltest.NewChatServer(b, modeltest.Always(modeltest.Reply(model.Text{Text: "Hello"},
		model.Finish{Reason: model.FinishStop})))
	double.Unchecked = true
	p, err := New(Options{Options: upstream.Options{BaseURL: double.URL}})
	if err != nil {
		b.Fatal(err)
	}
	req := &model.Request{Model: "m", Items: conversation(1)}
	b.Run("adapter", func(b *testing.B) {
		for b.Loop() {
			for _, err := range p.Stream(b.Context(), req) {
				if err != nil {
					b.Fatal(err)
				}
			}
		}
	})
	b.Run("net/http", func(b *testing.B) {
		for b.Loop() {
			res, err := http.Post(double.URL+"/chat/completions", "application/json",
				strings.NewReader(`{"model":"m","messages":[]}`))
			if err != nil {
				b.Fatal(err)
			}
			if _, err := io.Copy(io.Discard, res.Body); err != nil {
				b.Fatal(err)
			}
			res.Body.Close()
		}
	})
}
