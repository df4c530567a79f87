package threads

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/engine"
	"github.com/berth-run/berth/model"
	"github.com/berth-run/berth/store"
)

var (
	aye = []model.Delta{model.Text{Text: "Aye."}}
	ask = []model.Delta{model.Call{ID: "call_1", Name: "weather"}, model.Call{Arguments: "{}"}}
)

var rain = []ToolOutput{{ToolCallID: "call_1", Output: "rain"}}

// A server may crash after any write. The next request for the run continues it.
func TestCrashes(t *testing.T) {
	t.Run("before the response was created", func(t *testing.T) {
		h := newHouse(t, aye)
		r := h.noted()
		h.until(r, Completed)
		if got := h.said(r.Run.ThreadID); !cmp.Equal(got, []string{"Aye."}) {
			t.Errorf("got %q", got)
		}
	})
	t.Run("before the creation of the response was recorded", func(t *testing.T) {
		h := newHouse(t, aye)
		r := h.noted()
		req, err := r.Request(nil)
		check(t, err)
		_, err = h.Engine.Create(t.Context(), caller, req, engine.As(r.Legs[0].Response))
		check(t, err)
		h.until(r, Completed)
		if got := h.said(r.Run.ThreadID); !cmp.Equal(got, []string{"Aye."}) || h.model.count() != 1 {
			t.Errorf("got %q after %d questions", got, h.model.count())
		}
	})
	t.Run("before the engine got the outputs", func(t *testing.T) {
		h := newHouse(t, ask, aye)
		r := h.noted()
		h.until(r, RequiresAction)
		first, err := responseOf(t.Context(), h.Responses, caller.Project, r.Legs[0].Response)
		check(t, err)
		h.change(r, func(r *Record) { r.next(first.Body, rain, time.Now().Unix()) })
		if run := h.until(r, Completed); run.Usage.TotalTokens != 10 {
			t.Errorf("got usage %+v, want that of both legs", run.Usage)
		}
		if got := h.said(r.Run.ThreadID); !cmp.Equal(got, []string{"Aye."}) || h.model.count() != 2 {
			t.Errorf("got %q after %d questions", got, h.model.count())
		}
	})
	t.Run("before the engine cancelled the response", func(t *testing.T) {
		h := newHouse(t, []model.Delta{model.Text{Text: "Half"}, nil})
		r := h.noted()
		h.until(r, InProgress)
		h.change(r, func(r *Record) { r.CancelAt = time.Now().Unix() })
		h.until(r, Cancelled)
	})
	t.Run("before the response was created, and cancelled", func(t *testing.T) {
		h := newHouse(t, aye)
		r := h.noted()
		h.change(r, func(r *Record) { r.CancelAt = time.Now().Unix() })
		h.until(r, Cancelled)
		if h.model.count() != 0 {
			t.Error("the model was called")
		}
	})
	t.Run("between a message and the record that it was saved", func(t *testing.T) {
		h := newHouse(t, aye)
		r := h.noted()
		h.until(r, Completed)
		h.change(r, func(r *Record) { r.Saved, r.Ended, r.Run.Status = 0, false, Queued })
		h.until(r, Completed)
		if got := h.said(r.Run.ThreadID); !cmp.Equal(got, []string{"Aye."}) {
			t.Errorf("got %q", got)
		}
	})
}

// A message that a user deletes during a run is not saved again.
func TestDeletedMessageStaysAway(t *testing.T) {
	h := newHouse(t, append([]model.Delta{model.Text{Text: "Wait."}}, ask...), aye)
	r := h.noted()
	h.until(r, RequiresAction)
	messages, _, err := h.Messages(t.Context(), caller, r.Run.ThreadID, r.Run.ID, store.Page{Limit: 10})
	check(t, err)
	check(t, h.DeleteMessage(t.Context(), caller, r.Run.ThreadID, messages[0].ID))
	_, err = h.SubmitToolOutputs(t.Context(), caller, r.Run.ThreadID, r.Run.ID, rain)
	check(t, err)
	h.until(r, Completed)
	if got := h.said(r.Run.ThreadID); !cmp.Equal(got, []string{"Aye."}) {
		t.Errorf("got %q, want the second message alone", got)
	}
}

// A request that the engine refuses temporarily can be repeated; a permanent refusal ends the
// run.
func TestEngineRefuses(t *testing.T) {
	busy, gone := berth.Errorf(berth.CodeRateLimited, "Too many."), berth.Errorf(berth.CodeNotFound, "No such model.")
	t.Run("a new run", func(t *testing.T) {
		h := newHouse(t, aye)
		thread, a := h.thread(), h.assistant()
		for _, err := range []*berth.Error{busy, gone} {
			h.model.fail(err)
			if _, got := h.CreateRun(t.Context(), caller, thread, &RunRequest{AssistantID: a.ID}); berth.ErrorCode(
				got) != err.Code {
				t.Errorf("got %v, want %v", got, err)
			}
			if runs, _, err := h.Runs(t.Context(), caller, thread, store.Page{Limit: 10}); err != nil ||
				len(runs) != 0 {
				t.Errorf("got runs %v, %v, want none", runs, err)
			}
			if _, _, got := h.CreateThreadAndRun(t.Context(), caller, &RunRequest{AssistantID: a.ID}); berth.ErrorCode(
				got) != err.Code {
				t.Errorf("with a thread: got %v, want %v", got, err)
			}
		}
		h.model.fail(nil)
		r, err := h.CreateRun(t.Context(), caller, thread, &RunRequest{AssistantID: a.ID})
		check(t, err)
		h.until(r, Completed)
	})
	t.Run("outputs", func(t *testing.T) {
		h := newHouse(t, ask, ask, aye)
		r := h.noted()
		h.until(r, RequiresAction)
		h.model.fail(busy)
		if _, err := h.SubmitToolOutputs(t.Context(), caller, r.Run.ThreadID, r.Run.ID,
			rain); berth.ErrorCode(err) != busy.Code {
			t.Errorf("got %v, want %v", err, busy)
		}
		h.until(r, RequiresAction)
		h.model.fail(nil)
		_, err := h.SubmitToolOutputs(t.Context(), caller, r.Run.ThreadID, r.Run.ID, rain)
		check(t, err)
		h.until(r, RequiresAction)
		h.model.fail(gone)
		ended, err := h.SubmitToolOutputs(t.Context(), caller, r.Run.ThreadID, r.Run.ID, rain)
		check(t, err)
		if ended.Run.Status != Failed || ended.Run.LastError.Message != gone.Message ||
			ended.Run.Usage.TotalTokens != 10 {
			t.Errorf("got %+v, want it failed", ended.Run)
		}
	})
	t.Run("after a crash", func(t *testing.T) {
		h := newHouse(t, aye)
		r := h.noted()
		h.model.fail(busy)
		h.until(r, Queued)
		h.model.fail(nil)
		h.until(r, Completed)
		r = h.noted()
		h.model.fail(gone)
		if run := h.until(r, Failed); run.LastError.Code != "invalid_prompt" {
			t.Errorf("got %+v", run.LastError)
		}
	})
}

// A stream ends with the end of its own leg, even if another request has continued the run.
func TestStreamOfAnEarlierLeg(t *testing.T) {
	h := newHouse(t, ask, aye)
	r := h.noted()
	h.until(r, RequiresAction)
	earlier := *r
	_, err := h.SubmitToolOutputs(t.Context(), caller, r.Run.ThreadID, r.Run.ID, rain)
	check(t, err)
	h.until(r, Completed)
	var last Event
	for ev, err := range h.Follow(t.Context(), caller, &earlier, nil, true) {
		check(t, err)
		last = ev
	}
	if last.Name != "thread.run.requires_action" {
		t.Errorf("the stream ends with %s", last.Name)
	}
}
