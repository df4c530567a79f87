package modeltest

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/model"
)

// chaos are the cases about vendors that misbehave.
var chaos = []conversation{
	{name: "timeouts", run: func(t *testing.T, h Harness) {
		for name, turn := range map[string]Turn{"before the first output": Reply(Wait(nil)),
			"after the first output": Reply(model.Text{Text: "a"}, Wait(nil))} {
			_, double := h.Open(t, Always(turn))
			UntilReceived(20*time.Millisecond, double.requestCount, func(timeout time.Duration) {
				_, err := Collect(t, h.At(t, double.URL, timeout), newRequest("hi"))
				if e := wantError(t, err, berth.CodeUpstream); !strings.Contains(e.Message, "stopped responding") {
					t.Errorf("%s: got %v", name, err)
				}
			})
			wantLeft(t, double.Left)
		}
	}},
	{name: "an HTML page instead of an answer", run: func(t *testing.T, h Harness) {
		p, _ := h.Open(t,
			Always(Turn{Refusal: &Refusal{Status: http.StatusOK, Body: "<html>Sign in to the network</html>"}}))
		_, err := Collect(t, p, newRequest("hi"))
		wantError(t, err, berth.CodeUpstream)
	}},
	{name: "an error without end", run: func(t *testing.T, h Harness) {
		p, _ := h.Open(t,
			Always(Turn{Refusal: &Refusal{Status: http.StatusBadRequest, Message: strings.Repeat("no ", 1<<20)}}))
		_, err := Collect(t, p, newRequest("hi"))
		if e := wantError(t, err, berth.CodeInvalid); len(e.Message) > 4096 {
			t.Errorf("the client is shown %d bytes", len(e.Message))
		}
	}},
	{name: "a context beyond the window", run: func(t *testing.T, h Harness) {
		p, _ := h.Open(t,
			Always(Turn{Refusal: &Refusal{Status: http.StatusBadRequest,
				Message: "prompt is too long: 210000 tokens > 200000 maximum"}}))
		if _, err := Collect(t, p, newRequest("hi")); !model.IsTooLong(err) {
			t.Errorf("got %v", err)
		}
	}},
	{name: "an answer of many megabytes", run: func(t *testing.T, h Harness) {
		long := strings.Repeat("0123456789abcdef", 1<<15)
		p, _ := h.Open(t, Always(Reply(model.Text{Text: long}, model.Text{Text: long}, model.Call{ID: "c1", Name: "now",
			Arguments: fmt.Sprintf("{%q:%q}", "a", long)}, stop)))
		if a := must(t, p, withTools("hi")); len(a.Text) != 2*len(long) || len(a.Calls[0].Arguments) < len(long) {
			t.Errorf("got %d bytes of text", len(a.Text))
		}
	}},
}
