package modeltest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/model"
)

// waitLimit bounds the wait for something that takes milliseconds on an idle machine.
const waitLimit = 30 * time.Second

// failures are the cases about errors.
var failures = []conversation{
	{name: "statuses", run: statuses},
	{name: "a provider does not retry", run: func(t *testing.T, h Harness) {
		p, double := h.Open(t, Always(Turn{Refusal: &Refusal{Status: 500, Message: "no"}}))
		if _, err := Collect(t, p, newRequest("hi")); err == nil || len(double.Requests()) != 1 {
			t.Errorf("got %v after %d requests, want an error after 1", err, len(double.Requests()))
		}
	}},
	{name: "Retry-After", run: func(t *testing.T, h Harness) {
		for _, status := range []int{429, 503} {
			p, _ := h.Open(t,
				Always(Turn{Refusal: &Refusal{Status: status, Message: "slow down",
					Header: http.Header{"Retry-After": {"7"}}}}))
			_, err := Collect(t, p, newRequest("hi"))
			if d, ok := model.RetryAfter(err); !ok || d != 7*time.Second {
				t.Errorf("%d: got %v, %v, want 7s", status, d, ok)
			}
		}
	}},
	{name: "the connection breaks", run: breaking(Cut{})},
	{name: "the answer ends without a finish reason", run: breaking()},
	{name: "a malformed event", run: breaking(Malformed{})},
	{name: "an event with fields of wrong types", run: breaking(Mistyped{}, stop)},
	{name: "only an event with fields of wrong types", run: func(t *testing.T, h Harness) {
		p, _ := h.Open(t, Always(Reply(Mistyped{}, stop)))
		_, err := Collect(t, p, newRequest("hi"))
		wantError(t, err, berth.CodeUpstream)
	}},
	{name: "an empty answer", run: func(t *testing.T, h Harness) {
		p, _ := h.Open(t, Always(Reply(model.Finish{Reason: model.FinishStop})))
		a, err := Collect(t, p, newRequest("hi"))
		if err == nil && a.Finish.Usage.OutputTokens > 0 {
			t.Skip("the vendor counts tokens before any output")
		}
		wantError(t, err, berth.CodeUpstream)
		if !strings.Contains(err.Error(), "empty answer") {
			t.Errorf("got %v", err)
		}
	}},
	{name: "an error in the middle", run: breaking(Fault{Message: "the GPU fell off"})},
	{name: "no server listens", run: func(t *testing.T, h Harness) {
		_, err := Collect(t, h.At(t, "http://127.0.0.1:1", 0), newRequest("hi"))
		wantError(t, err, berth.CodeUpstream)
		if !errors.Is(err, model.ErrUnreachable) {
			t.Errorf("got %v, want model.ErrUnreachable in its chain", err)
		}
	}},
	{name: "the caller gives up", run: func(t *testing.T, h Harness) {
		p, double := h.Open(t, Always(Reply(model.Text{Text: "a"}, Wait(nil))))
		cause := errors.New("enough")
		ctx, cancel := context.WithCancelCause(t.Context())
		defer cancel(nil)
		var got error
		for _, err := range p.Stream(ctx, newRequest("hi")) {
			if got = err; err == nil {
				cancel(cause)
			}
		}
		if !errors.Is(got, cause) {
			t.Errorf("got error %v, want %v", got, cause)
		}
		wantLeft(t, double.Left)
	}},
	{name: "the caller gives up before the answer starts", run: func(t *testing.T, h Harness) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		p, double := h.Open(t, func(int, *Request) Turn { cancel(); return Reply(Wait(nil)) })
		var got error
		for _, err := range p.Stream(ctx, newRequest("hi")) {
			got = err
		}
		if !errors.Is(got, context.Canceled) {
			t.Errorf("got error %v, want %v", got, context.Canceled)
		}
		wantLeft(t, double.Left)
	}},
	{name: "the caller stops listening", run: func(t *testing.T, h Harness) {
		p, double := h.Open(t, Always(Reply(model.Text{Text: "a"}, Wait(nil))))
		for range p.Stream(t.Context(), newRequest("hi")) {
			break
		}
		wantLeft(t, double.Left)
	}},
	{name: "secrets stay secret", run: func(t *testing.T, h Harness) {
		turns := []Turn{Reply(model.Text{Text: "a"}, Fault{Message: "bad key " + Key}),
			{Refusal: &Refusal{Status: 500, Body: "<html>" + Key}}}
		for _, status := range []int{400, 401, 403, 404, 422, 429, 500} {
			turns = append(turns, Turn{Refusal: &Refusal{Status: status, Message: "Incorrect API key provided: " +
				Key}})
		}
		p, _ := h.Open(t, Play(turns...))
		for range turns {
			_, err := Collect(t, p, newRequest("hi"))
			if err == nil || strings.Contains(fmt.Sprintf("%v %+v %#v", err, err, err), Key) || shown(err, Key) {
				t.Errorf("the key is in the error: %v", err)
			}
		}
	}},
	{name: "twenty concurrent turns", run: func(t *testing.T, h Harness) {
		p, _ := h.Open(t, func(_ int, got *Request) Turn {
			return Reply(model.Text{Text: got.Messages[0].Text}, model.Text{Text: "!"}, stop)
		})
		var all sync.WaitGroup
		for i := range 20 {
			all.Go(func() {
				text := ""
				for d, err := range p.Stream(t.Context(), newRequest(fmt.Sprint(i))) {
					if err != nil {
						t.Error(err)
						return
					}
					if d, ok := d.(model.Text); ok {
						text += d.Text
					}
				}
				if want := fmt.Sprint(i, "!"); text != want {
					t.Errorf("got %q, want %q", text, want)
				}
			})
		}
		all.Wait()
	}},
}

// statuses checks the error for each status of a vendor.
func statuses(t *testing.T, h Harness) {
	tests := []struct {
		refusal Refusal
		code    berth.Code
		message string // in the message for the client
	}{
		{Refusal{Status: 400, Message: "too hot"}, berth.CodeInvalid, "too hot"},
		{Refusal{Status: 401, Message: "who?"}, berth.CodeUnavailable, "401"},
		{Refusal{Status: 403, Message: "no"}, berth.CodeUnavailable, "403"},
		{Refusal{Status: 404, Code: "model_not_found", Message: "The model `double-1` does not exist"},
			berth.CodeNotFound, "double-1"},
		{Refusal{Status: 404, Message: "Not Found"}, berth.CodeUnavailable, "404"},
		{Refusal{Status: 408, Message: "late"}, berth.CodeUpstream, "408"},
		{Refusal{Status: 413, Message: "too long"}, berth.CodeInvalid, "too long"},
		{Refusal{Status: 429, Message: "slow down"}, berth.CodeRateLimited, "slow down"},
		{Refusal{Status: 500, Message: "a trace"}, berth.CodeUpstream, "500"},
		{Refusal{Status: 502, Body: "<html>bad gateway</html>"}, berth.CodeUpstream, "502"},
		{Refusal{Status: 503, Message: "busy"}, berth.CodeUpstream, "503"},
	}
	for _, tt := range tests {
		p, _ := h.Open(t, Always(Turn{Refusal: &tt.refusal}))
		_, err := Collect(t, p, newRequest("hi"))
		e, ok := errors.AsType[*berth.Error](err)
		if !ok || e.Code != tt.code || !strings.Contains(e.Message, tt.message) {
			t.Errorf("%d: got %v, want code %s and %q", tt.refusal.Status, err, tt.code, tt.message)
		}
	}
}

// breaking is a case about an answer that fails after its first output.
func breaking(steps ...Step) func(*testing.T, Harness) {
	return func(t *testing.T, h Harness) {
		for _, first := range []Step{model.Text{Text: "a"}, model.Call{ID: "c", Name: "now", Arguments: "{"}} {
			if _, isCall := first.(model.Call); isCall && h.lacks(Broken) {
				continue
			}
			p, _ := h.Open(t, Always(Turn{Steps: append([]Step{first}, steps...)}))
			a, err := Collect(t, p, withTools("hi"))
			wantError(t, err, berth.CodeUpstream)
			if a.Text != "a" && (len(a.Calls) != 1 || a.Calls[0].Arguments != "{") {
				t.Errorf("before the error: got %+v, want %+v", a, first)
			}
		}
	}
}

// UntilReceived repeats a request with longer timeouts until the vendor received one. On
// a busy machine a short timeout may expire before that.
func UntilReceived(timeout time.Duration, received func() int, request func(timeout time.Duration)) {
	for ; received() == 0; timeout *= 2 {
		request(timeout)
	}
}

func wantLeft(t *testing.T, left <-chan struct{}) {
	t.Helper()
	select {
	case <-left:
	case <-time.After(waitLimit):
		t.Errorf("the connection is still open after %v", waitLimit)
	}
}

// shown reports whether the text of any error in err's chain contains the secret.
func shown(err error, secret string) bool {
	for ; err != nil; err = errors.Unwrap(err) {
		if e, ok := err.(*berth.Error); ok && strings.Contains(e.Message+e.Param+e.Wire, secret) {
			return true
		}
		if strings.Contains(err.Error(), secret) {
			return true
		}
	}
	return false
}
