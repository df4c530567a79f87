package engine_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/engine"
)

// within creates a response that is not stored, for a client with a memory, and
// follows it to its end and until it is gone from the store.
func (h *house) within(m *engine.Memory, body string, options ...engine.Option) (*berth.Response, error) {
	h.t.Helper()
	ctx, leave := context.WithCancel(h.t.Context())
	defer leave()
	created, err := h.tryCreate(ctx, body, append(options, engine.Within(m))...)
	if err != nil {
		return nil, err
	}
	r := h.final(created.ID)
	leave()
	wantGone(h.t, h.store, r.ID)
	return r, nil
}

func continuing(id berth.ResponseID, input, more string) string {
	return `{"model":"played","store":false,"input":"` + input + `","previous_response_id":"` + string(id) + `"` +
		more + `}`
}

func wantWire(t *testing.T, err error, code, param string) {
	t.Helper()
	e, ok := errors.AsType[*berth.Error](err)
	if !ok || e.Wire != code || e.Param != param {
		t.Errorf("got error %v, want code %q at %q", err, code, param)
	}
}

func TestMemory(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		h := newHouse(t, say("one"), say("two"), say("three"))
		m := engine.NewMemory(1 << 20)
		first, err := h.within(m, `{"model":"played","input":"first","store":false}`)
		if err != nil {
			t.Fatal(err)
		}
		second, err := h.within(m, continuing(first.ID, "second", ""))
		if err != nil {
			t.Fatal(err)
		}
		if got, want := outline(t, h.model.requests[1].Items), []string{"message  first", "message completed one",
			"message  second"}; !slices.Equal(got, want) {
			t.Errorf("the model received %q, want %q", got, want)
		}

		// Only the connection with the memory can continue it, and only without storing.
		_, err = h.within(engine.NewMemory(1<<20), continuing(second.ID, "x", ""))
		wantWire(t, err, "previous_response_not_found", "previous_response_id")
		_, err = h.within(nil, continuing(second.ID, "x", ""))
		wantWire(t, err, "previous_response_not_found", "previous_response_id")
		_, err = h.within(m, strings.Replace(continuing(second.ID, "x", ""), `"store":false,`, "", 1))
		wantWire(t, err, "", "store")
		m.Forget("proj_other", second.ID)
		if _, err = h.within(m, continuing(second.ID, "third", "")); err != nil {
			t.Errorf("after another project's id was forgotten: %v", err)
		}
		m.Forget(project, second.ID)
		_, err = h.within(m, continuing(second.ID, "x", ""))
		wantWire(t, err, "previous_response_not_found", "previous_response_id")
	})
}

func TestMemoryOfAFailure(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		h := newHouse(t, turn{errors.New("broken")})
		m := engine.NewMemory(1 << 20)
		failed, err := h.within(m, `{"model":"played","input":"first","store":false}`)
		if err != nil {
			t.Fatal(err)
		}
		if failed.Status != berth.StatusFailed {
			t.Fatalf("got status %s, want failed", failed.Status)
		}
		_, err = h.within(m, continuing(failed.ID, "x", ""))
		wantWire(t, err, "previous_response_not_found", "previous_response_id")
	})
}

func TestMemoryIsBounded(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		h := newHouse(t, say("one"), say("two"))
		m := engine.NewMemory(1000)
		large, err := h.within(m, `{"model":"played","input":"`+strings.Repeat("x", 1000)+`","store":false}`)
		if err != nil {
			t.Fatal(err)
		}
		_, err = h.within(m, continuing(large.ID, "x", ""))
		wantWire(t, err, "previous_response_not_found", "previous_response_id")
		small, err := h.within(m, `{"model":"played","input":"x","store":false}`)
		if err != nil {
			t.Fatal(err)
		}
		if _, err = h.within(m, continuing(small.ID, "y", ""), engine.Prepared()); err != nil {
			t.Errorf("continuing what fits: %v", err)
		}
	})
}

// A prepared response ends without a call of the model. It can be continued with its input
// and its container.
func TestPrepared(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		h := newHouse(t, say("one"))
		const shell = `,"tools":[{"type":"shell","environment":{"type":"container_auto"}}]`
		m := engine.NewMemory(1 << 20)
		ready, err := h.within(m, `{"model":"played","input":"first","store":false`+shell+`}`, engine.Prepared())
		if err != nil {
			t.Fatal(err)
		}
		if ready.Status != berth.StatusCompleted || len(ready.Output) != 0 || ready.Usage == nil ||
			ready.Usage.TotalTokens != 0 || len(h.model.requests) != 0 {
			t.Errorf("got %s with %d items, usage %v, %d questions, want completed with none", ready.Status,
				len(ready.Output), ready.Usage, len(h.model.requests))
		}
		next, err := h.within(m, continuing(ready.ID, "second", shell))
		if err != nil {
			t.Fatal(err)
		}
		if got, want := outline(t, h.model.requests[0].Items), []string{"message  first",
			"message  second"}; !slices.Equal(got, want) {
			t.Errorf("the model received %q, want %q", got, want)
		}
		if got, want := asJSON(t, next.Tools), asJSON(t, ready.Tools); got != want {
			t.Errorf("got tools %s, want those prepared: %s", got, want)
		}
		stored, err := h.tryCreate(t.Context(), `{"model":"played","input":"kept"}`, engine.Prepared())
		if err != nil {
			t.Fatal(err)
		}
		if got := types(h.events(stored.ID)); !slices.Equal(got, []string{"response.created", "response.in_progress",
			"response.completed"}) {
			t.Errorf("got events %q", got)
		}
	})
}

// A prepared response adds its items to its conversation immediately and releases it.
func TestPreparedInAConversation(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		h := newHouse(t, say("one"))
		h.newConversation(project)
		if _, err := h.tryCreate(t.Context(), says("first", ""), engine.Prepared()); err != nil {
			t.Fatal(err)
		}
		wantLines(t, "the conversation", h.held(), "Welcome.", "first")
		h.final(h.create(says("second", "")).ID)
		wantLines(t, "the conversation", h.held(), "Welcome.", "first", "second", "one")
	})
}
