package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/model"
	"github.com/berth-run/berth/store"
)

const named = berth.ResponseID("resp_named")

// ask requests the response of a name.
func (h *house) ask(ctx context.Context, p berth.ProjectID, body string) (*berth.Response, error) {
	h.t.Helper()
	var req berth.ResponseRequest
	if err := json.Unmarshal([]byte(body), &req); err != nil {
		h.t.Fatal(err)
	}
	return h.engine.Create(ctx, berth.Caller{Project: p, Response: named, Permissions: berth.AllPermissions(p)}, &req)
}

// A repeated request for a named response returns it as it was created, whatever its
// state, after a restart as well. The model is called once.
func TestNamedResponse(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		for _, body := range []string{`{"model":"played","input":"x"}`,
			`{"model":"played","input":"x","background":true}`} {
			h := newHouse(t, say("ok"), say("a second time"))
			first, err := h.ask(t.Context(), project, body)
			if err != nil {
				t.Fatal(err)
			}
			same := func(when string) {
				t.Helper()
				got, err := h.ask(t.Context(), project, body)
				if err != nil {
					t.Fatalf("%s: %v", when, err)
				}
				if diff := cmp.Diff(asJSON(t, first), asJSON(t, got)); diff != "" {
					t.Errorf("%s (-first +again):\n%s", when, diff)
				}
			}
			same("while it runs")
			h.final(named)
			same("after its end")
			h.stop()
			h.start()
			same("after a restart")
			if n := len(h.model.requests); n != 1 {
				t.Errorf("the model was called %d times, want once", n)
			}
			if _, err := h.ask(t.Context(), "proj_other", body); !errors.Is(err, store.ErrNotFound) {
				t.Errorf("another project, whose row cannot have that id: got %v", err)
			}
		}
	})
}

// Of concurrent requests for one name, one creates the response.
func TestNamedResponseAtOnce(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		h := newHouse(t, say("ok"), say("a second time"))
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				if r, err := h.ask(t.Context(), project, `{"model":"played","input":"x"}`); err != nil ||
					r.ID != named {
					t.Errorf("got %v, %v", r, err)
				}
			})
		}
		wg.Wait()
		h.final(named)
		if n := len(h.model.requests); n != 1 {
			t.Errorf("the model was called %d times, want once", n)
		}
	})
}

// A refused request may be repeated under the same name.
func TestNamedResponseRefused(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		h := newHouse(t, say("ok"))
		if _, err := h.ask(t.Context(), project, `{"model":"other","input":"x"}`); err == nil {
			t.Fatal("an unknown model was not refused")
		}
		if _, err := h.ask(t.Context(), project, `{"model":"played","input":"x"}`); err != nil {
			t.Fatal(err)
		}
		if got := h.final(named); got.Status != berth.StatusCompleted {
			t.Errorf("got %s", got.Status)
		}
	})
}

// The run of a named response waits some time for a disconnected client, and ends with the
// last client.
func TestNamedResponseWaitsForItsClient(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		const body = `{"model":"played","input":"x"}`
		h := newHouse(t, turn{model.Text{Text: "o"}, hang{}})
		h.stop()
		h.patience = time.Hour
		h.start()
		first, leave := context.WithCancel(t.Context())
		if _, err := h.ask(first, project, body); err != nil {
			t.Fatal(err)
		}
		h.waitFor(named, berth.EventOutputTextDelta)
		leave()
		second, leave := context.WithCancel(t.Context())
		if _, err := h.ask(second, project, body); err != nil {
			t.Fatal(err)
		}
		rec, err := h.store.GetResponse(t.Context(), project, named)
		if err != nil || rec.Body.Status != berth.StatusInProgress {
			t.Errorf("with a second client: got %v, %v, want it in progress", rec.Body.Status, err)
		}
		leave()

		h = newHouse(t, turn{hang{}})
		h.stop()
		h.patience = time.Millisecond
		h.start()
		first, leave = context.WithCancel(t.Context())
		if _, err := h.ask(first, project, body); err != nil {
			t.Fatal(err)
		}
		leave()
		if got := h.final(named); got.Status != berth.StatusCancelled {
			t.Errorf("without any client: got %s, want cancelled", got.Status)
		}
	})
}

// A response that is not stored is deleted when its run has ended and its clients have
// disconnected, without a wait.
func TestNamedResponseNotStored(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		const body = `{"model":"played","input":"x","store":false}`
		h := newHouse(t, say("secret"), say("once more"))
		h.stop()
		h.patience = time.Hour
		h.start()
		ctx, leave := context.WithCancel(t.Context())
		if _, err := h.ask(ctx, project, body); err != nil {
			t.Fatal(err)
		}
		h.events(named)
		leave()
		wantGone(t, h.store, named)
		if _, err := h.ask(t.Context(), project, body); err != nil {
			t.Errorf("it cannot be made again: %v", err)
		}
		h.events(named)
	})
}

// A named response holds its conversation exclusively.
func TestNamedResponseInConversation(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		h := newHouse(t)
		h.model.gate = make(chan struct{})
		h.newConversation(project)
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				if r, err := h.ask(t.Context(), project, says("once", "")); err != nil || r.ID != named {
					t.Errorf("got %v, %v", r, err)
				}
			})
		}
		wg.Wait()
		h.model.gate <- struct{}{}
		h.final(named)
		wantLines(t, "the conversation", h.held(), "Welcome.", "once")
	})
}
