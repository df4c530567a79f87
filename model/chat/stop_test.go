package chat

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/berth-run/berth/model"
	"github.com/berth-run/berth/model/upstream"
)

// The stop sequence that vLLM or SGLang reports is that of the turn; the number of a token is none.
func TestStopSequence(t *testing.T) {
	for reported, want := range map[string]string{`"stop_reason":"END"`: "END", `"matched_stop":"END"`: "END",
		`"stop_reason":128009`: "", `"matched_stop":null`: "", `"logprobs":null`: ""} {
		in := stream(`"content":"a"`, `|"finish_reason":"stop",`+reported)
		got := "none"
		a := newAnswer(&model.Request{}, slog.New(slog.DiscardHandler))
		for d, err := range upstream.Read(strings.NewReader(in), a, a.log) {
			if err != nil {
				t.Fatal(err)
			}
			if f, ok := d.(model.Finish); ok {
				got = f.Stop
			}
		}
		if got != want {
			t.Errorf("%s: got %q, want %q", reported, got, want)
		}
	}
}
