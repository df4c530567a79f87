package api_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-run/berth/internal/sse"
	"github.com/berth-run/berth/model"
	"github.com/berth-run/berth/model/modeltest"
)

// sendOnce sends a POST with an Idempotency-Key.
func (h *house) sendOnce(ctx context.Context, key, path, body string) *http.Response {
	h.t.Helper()
	req, err := http.NewRequestWithContext(ctx, "POST", h.url+path, strings.NewReader(body))
	check(h.t, err)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Idempotency-Key", key)
	resp, err := http.DefaultClient.Do(req)
	check(h.t, err)
	h.t.Cleanup(func() { resp.Body.Close() })
	return resp
}

func (h *house) once(key, path, body string) string {
	h.t.Helper()
	raw, err := io.ReadAll(h.sendOnce(h.t.Context(), key, path, body).Body)
	check(h.t, err)
	return string(raw)
}

// A response is created once, and a repeated request gets the same answer.
func TestIdempotentResponses(t *testing.T) {
	t.Parallel()
	for name, body := range map[string]string{
		"foreground": `{"model":"scripted","input":"hello"}`,
		"background": `{"model":"scripted","input":"hello","background":true}`,
		"stream":     `{"model":"scripted","input":"hello","stream":true,"stream_options":{"include_obfuscation":false}}`,
	} {
		h := newHouse(t, nil)
		first := h.once("k", "/v1/responses", body)
		for range 2 {
			if diff := cmp.Diff(first, h.once("k", "/v1/responses", body)); diff != "" {
				t.Errorf("%s (-first +again):\n%s", name, diff)
			}
		}
		if got := h.once("k", "/v1/responses", strings.Replace(body, "hello", "hullo", 1)); !strings.Contains(got,
			"idempotency_key_reuse") {
			t.Errorf("%s: another body: got %s", name, got)
		}
		if h.once("l", "/v1/responses", body) == first {
			t.Errorf("%s: another key got the first answer", name)
		}
	}
}

// A response that is not stored is created again for a repeated request.
func TestIdempotentResponsesNotStored(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	const body = `{"model":"scripted","input":"hello","store":false}`
	for range 2 {
		if got := h.once("k", "/v1/responses", body); !strings.Contains(got, `"status":"completed"`) &&
			!strings.Contains(got, "Send the request again in a moment") {
			t.Errorf("got %s", got)
		}
	}
}

// A client that lost its stream and repeats the request gets the same response from the
// start. Its run has continued.
func TestIdempotentStreamThatWasLost(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	const body = `{"model":"vendor/fed","input":"x","stream":true}`
	ctx, leave := context.WithCancel(t.Context())
	r := sse.NewReader(h.sendOnce(ctx, "k", "/v1/responses", body).Body, 0)
	id := h.until(r, "response.created").at("response", "id")
	h.fed.words <- "one"
	h.until(r, "response.output_text.delta")
	leave()
	h.fed.words <- "two"
	r = sse.NewReader(h.sendOnce(t.Context(), "k", "/v1/responses", body).Body, 0)
	if again := h.until(r, "response.created").at("response", "id"); again != id {
		t.Errorf("got response %v, want %v", again, id)
	}
	h.fed.words <- "three"
	h.fed.words <- ""
	if got := h.until(r, "response.output_text.done").at("text"); got != "onetwothree" {
		t.Errorf("got %q, want all of it", got)
	}
	h.until(r, "response.completed")
}

func TestIdempotentContainers(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	var wg sync.WaitGroup
	answers := make([]string, 4)
	for i := range answers {
		wg.Go(func() { answers[i] = h.once("k", "/v1/containers", `{"name":"one"}`) })
	}
	wg.Wait()
	for _, a := range answers[1:] {
		if diff := cmp.Diff(answers[0], a); diff != "" {
			t.Errorf("answers differ:\n%s", diff)
		}
	}
	if n := len(h.call(200, "GET", "/v1/containers", nil).at("data").([]any)); n != 1 {
		t.Errorf("got %d containers, want 1", n)
	}
}

// After a failure that a retry may fix, a repeated request gets a new response.
func TestIdempotencyOfFailedResponses(t *testing.T) {
	t.Parallel()
	rule, _ := chatRule(t, 0, func(n int, _ *modeltest.Request) modeltest.Turn {
		if n == 0 {
			return modeltest.Turn{Refusal: &modeltest.Refusal{Status: http.StatusUnauthorized, Message: "no"}}
		}
		return modeltest.Reply(model.Text{Text: "fine now"}, model.Finish{Reason: model.FinishStop})
	})
	h := newHouse(t, nil, rule)
	const body = `{"model":"chat","input":"x"}`
	if got := h.once("k", "/v1/responses", body); !strings.Contains(got, "server_error") {
		t.Fatalf("got %s, want a failure", got)
	}
	second := h.once("k", "/v1/responses", body)
	if !strings.Contains(second, "fine now") {
		t.Errorf("got %s, want a response", second)
	}
	if diff := cmp.Diff(second, h.once("k", "/v1/responses", body)); diff != "" {
		t.Errorf("(-second +third):\n%s", diff)
	}
}
