package engine_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/model"
	"github.com/berth-run/berth/store"
)

// A ledger is a quota that records its calls.
type ledger struct {
	mu     sync.Mutex
	lines  []string
	refuse error
}

func (l *ledger) write(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, fmt.Sprintf(format, args...))
}

func (l *ledger) Begin(_ context.Context, c berth.Caller, tokens int) (func(int), error) {
	p := c.Project
	l.write("begin %s %d", p, tokens)
	return func(used int) { l.write("end %d", used) }, l.refuse
}

func (l *ledger) Full(context.Context, berth.ProjectID) error { return nil }

func (l *ledger) Resume(p berth.ProjectID) func(int) {
	l.write("resume %s", p)
	return func(used int) { l.write("end %d", used) }
}

func (l *ledger) want(t *testing.T, want ...string) {
	t.Helper()
	synctest.Wait() // the quota learns of an end after the client
	l.mu.Lock()
	defer l.mu.Unlock()
	if diff := cmp.Diff(want, l.lines); diff != "" {
		t.Fatalf("the ledger (-want +got):\n%s", diff)
	}
}

// Tokens are reserved before any work, and corrected when the response ends in any way.
func TestQuota(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		l := &ledger{}
		h := newHouse(t, say("ok"), turn{model.Text{Text: "half"}, hang{}}, say("whole"))
		h.stop()
		h.quota = l
		h.start()
		h.final(h.create(`{"model":"played","input":"x","instructions":"four and four","max_output_tokens":100}`).ID)
		// 100 of max_output_tokens, and a quarter of 95 bytes.
		l.want(t, "begin proj_test 122", "end 15")

		l.lines = nil
		if _, err := h.tryCreate(t.Context(), `{"model":"other","input":"x"}`); err == nil {
			t.Fatal("an unknown model was not refused")
		}
		l.want(t, "begin proj_test 19", "end 0")

		l.lines = nil
		r := h.create(`{"model":"played","input":"x"}`)
		h.waitFor(r.ID, berth.EventOutputTextDelta)
		h.stop()
		l.want(t, "begin proj_test 19", "end 0")
		l.lines = nil
		h.start()
		if err := h.engine.Recover(t.Context()); err != nil {
			t.Fatal(err)
		}
		h.final(r.ID)
		l.want(t, "resume proj_test", "end 15")

		l.refuse = berth.Errorf(berth.CodeRateLimited, "no more")
		asked := len(h.model.requests)
		if _, err := h.tryCreate(t.Context(), `{"model":"played","input":"x"}`); berth.ErrorCode(
			err) != berth.CodeRateLimited {
			t.Errorf("got %v, want the error of the quota", err)
		}
		if len(h.model.requests) != asked {
			t.Error("the model was called")
		}
	})
}

// A response counts for the key that created it.
func TestUsage(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		h := newHouse(t, say("ok"))
		who := caller
		who.Key = "key_1"
		r, err := h.engine.Create(t.Context(), who, &berth.ResponseRequest{Model: "played",
			Input: berth.Input{berth.NewItem(berth.Message{Type: "message", Role: "user"})}})
		if err != nil {
			t.Fatal(err)
		}
		h.final(r.ID)
		used, err := h.store.Usage(t.Context(), store.UsageQuery{Project: project, Kind: store.UsageResponse,
			From: time.Unix(0, 0), To: time.Now().Add(time.Hour), Width: 1 << 26 * time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		want := []*store.Usage{{Project: project, Kind: store.UsageResponse, Key: "key_1", Name: "played", Count: 1,
			InputTokens: 10, OutputTokens: 5}}
		if diff := cmp.Diff(want, used); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

// A turn whose upstream reports no usage counts an estimate.
func TestUnreportedUsage(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		words := strings.Repeat("tide ", 100)
		h := newHouse(t, turn{model.Text{Text: words}, noUsage{}})
		r := h.final(h.create(`{"model":"played","input":"` + words + `"}`).ID)
		u := r.Usage
		if u == nil || u.InputTokens < 90 || u.InputTokens > 150 || u.OutputTokens < len(words)/4 ||
			u.OutputTokens > len(words)/3 || u.TotalTokens != u.InputTokens+u.OutputTokens {
			t.Errorf("the usage is %+v", u)
		}
	})
}
