package e2e

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/responses"
)

// TestEndlessUpstream asks an upstream whose answer has no end. It ends as incomplete,
// or immediately when it is cancelled, and the upstream's connection is closed.
func TestEndlessUpstream(t *testing.T) {
	asked, left := make(chan struct{}, 2), make(chan struct{}, 2)
	chunk := fmt.Sprintf(
		`data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"endless","choices":[{"index":0,"delta":{"content":%q}}]}`+"\n\n",
		strings.Repeat("word ", 200))
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- struct{}{}
		w.Header().Set("Content-Type", "text/event-stream")
		for r.Context().Err() == nil {
			if _, err := w.Write([]byte(chunk)); err != nil {
				break
			}
		}
		left <- struct{}{}
	}))
	t.Cleanup(upstream.Close)
	s := newServerWith(t, "responses: {max_output: 1m}\n", "OPENAI_BASE_URL="+upstream.URL, "OPENAI_API_KEY=none")
	c := s.client()
	r, err := c.Responses.New(t.Context(), responses.ResponseNewParams{Model: "endless",
		Input: responses.ResponseNewParamsInputUnion{OfString: openai.String("x")}})
	if err != nil {
		t.Fatal(err)
	}
	if n := len(r.OutputText()); r.Status != "incomplete" || r.IncompleteDetails.Reason != "max_output_tokens" ||
		n < 900<<10 || n > 1<<20 {
		t.Errorf("got %s %q with %d bytes", r.Status, r.IncompleteDetails.Reason, n)
	}
	receive(t, asked, "the upstream is asked")
	receive(t, left, "the upstream's connection is closed")
	bg, err := c.Responses.New(t.Context(), responses.ResponseNewParams{Model: "endless", Background: openai.Bool(true),
		Input: responses.ResponseNewParamsInputUnion{OfString: openai.String("x")}})
	if err != nil {
		t.Fatal(err)
	}
	receive(t, asked, "the upstream is asked again") // a response that is cancelled before has no connection to close
	if got, err := c.Responses.Cancel(t.Context(), bg.ID); err != nil || got.Status != "cancelled" &&
		got.Status != "incomplete" {
		t.Errorf("cancel: got %v, %v", got, err)
	}
	receive(t, left, "the upstream's connection is closed")
}
