package batch_test

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/batch"
)

// messageRequests are requests for two models, of which one fails.
func messageRequests() []batch.MessageRequest {
	params := func(name string) json.RawMessage { return json.RawMessage(`{"model":"` + name + `","max_tokens":9}`) }
	return []batch.MessageRequest{{CustomID: "a", Params: params("one")}, {CustomID: "b", Params: params("two")},
		{CustomID: "c-bad", Params: params("one")}}
}

// statuses returns the status of each result of a batch of messages.
func (h *house) statuses(m *batch.Messages, id berth.BatchID) map[string]int {
	h.t.Helper()
	b, err := m.Get(h.t.Context(), mine, id)
	check(h.t, err)
	all := map[string]int{}
	for r, err := range m.Results(h.t.Context(), mine, b) {
		check(h.t, err)
		all[r.CustomID] = r.Status
	}
	return all
}

// A batch of messages continues after the death of the process. A result that was stored is not made again.
func TestMessagesSurviveDeath(t *testing.T) {
	h := newHouse(t)
	begun := make(chan bool)
	s, stop := h.start(func(ctx context.Context, c berth.Caller, it batch.Execution) batch.Answer {
		if it.CustomID != "b" {
			return h.execute(ctx, c, it)
		}
		close(begun)
		<-ctx.Done()
		return batch.Answer{}
	})
	b, err := s.Messages().Create(t.Context(), berth.Caller{Project: mine}, messageRequests(), 0)
	check(t, err)
	if b.RequestCounts.Total != 3 || b.Endpoint != batch.EndpointMessages {
		t.Errorf("got %+v", b)
	}
	<-begun
	stop()
	s, stop = h.start(h.execute)
	defer stop()
	h.until(s, b.ID, berth.BatchCompleted)
	if diff := cmp.Diff(map[string]int{"a": 200, "b": 200, "c-bad": 400}, h.statuses(s.Messages(), b.ID)); diff != "" {
		t.Errorf("results (-want +got):\n%s", diff)
	}
}

// Lists and ids are those of batches of messages only. A deleted batch leaves nothing.
func TestMessagesList(t *testing.T) {
	h := newHouse(t)
	s, stop := h.start(h.execute)
	defer stop()
	other := h.create(s, h.input("x"))
	m := s.Messages()
	b, err := m.Create(t.Context(), berth.Caller{Project: mine}, messageRequests(), 0)
	check(t, err)
	h.until(s, other.ID, berth.BatchCompleted)
	h.until(s, b.ID, berth.BatchCompleted)
	list, more, err := m.List(t.Context(), mine, berth.Page{Limit: 1})
	if err != nil || more || len(list) != 1 || list[0].ID != b.ID {
		t.Errorf("got %v, more %v, %v", list, more, err)
	}
	if _, err := m.Get(t.Context(), mine, other.ID); berth.ErrorCode(err) != berth.CodeNotFound {
		t.Errorf("another batch: got %v", err)
	}
	check(t, m.Delete(t.Context(), mine, b.ID))
	if _, err := m.Get(t.Context(), mine, b.ID); berth.ErrorCode(err) != berth.CodeNotFound {
		t.Errorf("after the deletion: got %v", err)
	}
	for _, id := range []berth.FileID{b.InputFileID, *list[0].OutputFileID, *list[0].ErrorFileID} {
		if _, err := h.files.Get(t.Context(), mine, id); berth.ErrorCode(err) != berth.CodeNotFound {
			t.Errorf("file %s after the deletion: got %v", id, err)
		}
	}
	h.leftovers(b.ID)
}

// The requests of a cancelled batch that have no result are counted apart from those that failed.
func TestMessagesCancel(t *testing.T) {
	h := newHouse(t)
	begun := make(chan bool, 3)
	s, stop := h.start(func(ctx context.Context, c berth.Caller, it batch.Execution) batch.Answer {
		begun <- true
		<-ctx.Done()
		return batch.Answer{}
	})
	defer stop()
	m := s.Messages()
	b, err := m.Create(t.Context(), berth.Caller{Project: mine}, messageRequests(), 0)
	check(t, err)
	<-begun
	if err := m.Delete(t.Context(), mine, b.ID); berth.ErrorCode(err) != berth.CodeInvalid {
		t.Errorf("deleting a batch that runs: got %v", err)
	}
	_, err = m.Cancel(t.Context(), mine, b.ID)
	check(t, err)
	h.until(s, b.ID, berth.BatchCancelled)
	if b, err = m.Get(t.Context(), mine, b.ID); err != nil || b.Left != 3 {
		t.Errorf("got %+v, %v", b, err)
	}
	if diff := cmp.Diff(map[string]int{"a": 0, "b": 0, "c-bad": 0}, h.statuses(m, b.ID)); diff != "" {
		t.Errorf("results (-want +got):\n%s", diff)
	}
}
