package threads

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
)

// leg returns a response that ended at second 100 and used the given number of tokens.
func leg(status berth.Status, items ...berth.Item) *berth.Response {
	end := int64(100)
	r := &berth.Response{ID: "resp_1", CreatedAt: 90, Status: status, Output: items,
		Usage: &berth.Usage{InputTokens: 300, OutputTokens: 20, TotalTokens: 320}}
	switch status {
	case berth.StatusCompleted:
		r.CompletedAt = &end
	case berth.StatusIncomplete:
		r.IncompleteDetails = &berth.IncompleteDetails{Reason: "max_output_tokens"}
	case berth.StatusFailed:
		r.Error = &berth.ResponseError{Code: "rate_limit_exceeded", Message: "No."}
	}
	return r
}

func functionCall(status berth.Status) berth.Item {
	return berth.NewItem(berth.FunctionCall{ID: "fc_1", Type: berth.ItemFunctionCall, Status: status, CallID: "call_1",
		Name: "weather", Arguments: "{}"})
}

func message(status berth.Status) berth.Item {
	return berth.NewItem(berth.Message{ID: "msg_1", Type: berth.ItemMessage, Status: status, Role: "assistant",
		Content: []berth.Content{{Type: "output_text", Text: "Aye."}}})
}

// The state of a run follows from its responses, the actions of the client, and the clock.
func TestView(t *testing.T) {
	few, many := 256, 1000
	calls := leg(berth.StatusCompleted, functionCall(berth.StatusCompleted))
	tests := []struct {
		name   string
		leg    *berth.Response
		change func(*Record)
		now    int64
		want   string // status, and when and why it is so
	}{
		{"not made yet", nil, nil, 100, "queued"},
		{"deleted", nil, func(r *Record) { r.Legs[0].Started = true }, 100, "failed at 100: server_error"},
		{"cancelled before it was made", nil, func(r *Record) { r.CancelAt = 95 }, 100, "cancelled at 95"},
		{"queued", leg(berth.StatusQueued), nil, 100, "queued"},
		{"in progress", leg(berth.StatusInProgress), nil, 100, "in_progress"},
		{"to be cancelled", leg(berth.StatusInProgress), func(r *Record) { r.CancelAt = 95 }, 100, "cancelling"},
		{"completed", leg(berth.StatusCompleted, message(berth.StatusCompleted)), nil, 200, "completed at 100"},
		{"completed before it was cancelled", leg(berth.StatusCompleted), func(r *Record) {
			r.CancelAt = 150
		}, 200, "completed at 100"},
		{"incomplete", leg(berth.StatusIncomplete), nil, 200, "incomplete: max_completion_tokens"},
		{"failed", leg(berth.StatusFailed), nil, 200, "failed at 200: rate_limit_exceeded"},
		{"cancelled", leg(berth.StatusCancelled), nil, 200, "cancelled at 200"},
		{"waiting", calls, nil, 699, "requires_action until 700"},
		{"waited in vain", calls, nil, 700, "expired until 700"},
		{"cancelled while it waited", calls, func(r *Record) { r.CancelAt = 650 }, 800, "cancelled at 650"},
		{"prompt used up", calls, func(r *Record) {
			r.Run.MaxPromptTokens = &few
		}, 110, "incomplete: max_prompt_tokens"},
		{"prompt not used up", calls, func(r *Record) {
			r.Run.MaxPromptTokens = &many
		}, 110, "requires_action until 700"},
		{"completion used up", calls, func(r *Record) {
			n := 20
			r.Run.MaxCompletionTokens = &n
		}, 110, "incomplete: max_completion_tokens"},
		{"ended", calls, func(r *Record) { r.Ended, r.Run.Status = true, Completed }, 110, "completed"},
	}
	for _, tt := range tests {
		r := &Record{Run: Run{Status: Queued}, Legs: []Leg{{Response: "resp_1", At: 90}}}
		if tt.change != nil {
			tt.change(r)
		}
		run := r.View(tt.leg, time.Unix(tt.now, 0))
		if got := outline(&run); got != tt.want {
			t.Errorf("%s: got %s, want %s", tt.name, got, tt.want)
		}
		if (run.RequiredAction != nil) != (run.Status == RequiresAction) || !r.Ended &&
			(run.Usage == nil) != run.Status.Active() {
			t.Errorf("%s: action %v, usage %v with status %s", tt.name, run.RequiredAction, run.Usage, run.Status)
		}
	}
}

func outline(r *Run) string {
	s := string(r.Status)
	for _, at := range []*int64{r.CancelledAt, r.FailedAt, r.CompletedAt} {
		if at != nil {
			s += fmt.Sprint(" at ", *at)
		}
	}
	if r.ExpiresAt != nil {
		s += fmt.Sprint(" until ", *r.ExpiresAt)
	}
	if r.LastError != nil {
		s += ": " + r.LastError.Code
	}
	if r.IncompleteDetails != nil {
		s += ": " + r.IncompleteDetails.Reason
	}
	return s
}

// The end of a step follows from its response and its run.
func TestSteps(t *testing.T) {
	broken, whole := message(berth.StatusIncomplete), message(berth.StatusCompleted)
	call := functionCall(berth.StatusCompleted)
	for _, tt := range []struct {
		name string
		leg  *berth.Response
		now  int64
		want []string
	}{
		{"in progress", leg(berth.StatusInProgress, message(berth.StatusInProgress)), 95,
			[]string{"message_creation in_progress"}},
		{"complete", leg(berth.StatusCompleted, whole), 200, []string{"message_creation completed"}},
		{"interrupted and repeated", leg(berth.StatusCompleted, broken, whole), 200,
			[]string{"message_creation completed"}},
		{"interrupted, not repeated yet", leg(berth.StatusInProgress, broken), 95, nil},
		{"broken off twice", leg(berth.StatusFailed, broken, broken), 200, []string{"message_creation failed"}},
		{"cut", leg(berth.StatusIncomplete, broken), 200, []string{"message_creation completed"}},
		{"cancelled", leg(berth.StatusCancelled, broken), 200, []string{"message_creation cancelled"}},
		{"waiting", leg(berth.StatusCompleted, whole, call, call), 200,
			[]string{"message_creation completed", "tool_calls in_progress"}},
		{"expired", leg(berth.StatusCompleted, call), 900, []string{"tool_calls expired"}},
		{"a call cut", leg(berth.StatusIncomplete, functionCall(berth.StatusIncomplete)), 200,
			[]string{"tool_calls cancelled"}},
		{"calls of a failed turn", leg(berth.StatusFailed, call, functionCall(berth.StatusIncomplete)), 200,
			[]string{"tool_calls failed"}},
		{"apart", leg(berth.StatusCompleted, call, whole, call), 200,
			[]string{"tool_calls in_progress", "message_creation completed", "tool_calls in_progress"}},
	} {
		r := &Record{Run: Run{Status: Queued}, Legs: []Leg{{Response: "resp_1", At: 90, Started: true}}}
		run := r.View(tt.leg, time.Unix(tt.now, 0))
		var got []string
		ids := map[string]bool{}
		for _, s := range r.Steps(&run, []*store.Response{{Body: tt.leg}}) {
			got = append(got, s.Type+" "+string(s.Status))
			ids[s.ID] = true
			ended := 0
			for _, at := range []*int64{s.CancelledAt, s.CompletedAt, s.ExpiredAt, s.FailedAt} {
				if at != nil {
					ended++
				}
			}
			if s.Status == InProgress && (ended != 0 || s.Usage != nil) || s.Status != InProgress &&
				(ended != 1 || s.Usage == nil) {
				t.Errorf("%s: %+v", tt.name, s)
			}
		}
		if diff := cmp.Diff(tt.want, got); diff != "" || len(ids) != len(got) {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}

func TestStartedAt(t *testing.T) {
	at := time.Now().Unix()
	end := at + 60
	for id, want := range map[string]int64{
		berth.NewID("msg_"): at, "msg_1": at - 5, "": at - 5, "msg": at - 5,
		"msg_68dcd0f9a3a48190b8b7e1a1f0d8a9c50f1e2d3c4b5a6978": at - 5, // another house's
		"msg_zzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzz": at - 5,
	} {
		r := &berth.Response{CreatedAt: at - 5, CompletedAt: &end,
			Output: []berth.Item{berth.NewItem(berth.Message{ID: id, Type: berth.ItemMessage})}}
		if got := startedAt(r, 0); got < want || got > want+1 {
			t.Errorf("%q: got %d, want %d", id, got, want)
		}
	}
}

// Pages of steps equal those that the store would return.
func TestPageOfSteps(t *testing.T) {
	h := newHouse(t, aye)
	var steps []Step
	for i := range 5 {
		id := fmt.Sprintf("step_%d", i)
		steps = append(steps, Step{ID: id})
		o, err := objectOf("step", "", id, 1, Step{ID: id})
		check(t, err)
		check(t, h.Objects.CreateObjects(t.Context(), caller.Project, o))
	}
	places := []string{"", "step_0", "step_2", "step_4", "step_9"}
	for _, ascending := range []bool{true, false} {
		for limit := 1; limit <= 6; limit++ {
			for _, after := range places {
				for _, before := range places {
					page := store.Page{Limit: limit, After: after, Before: before, Ascending: ascending}
					want, wantMore, wantErr := list[Step](t.Context(), h.Service.Objects, caller.Project, "step", "",
						page)
					got, more, err := PageOfSteps(steps, page)
					if (err == nil) != (wantErr == nil) || more != wantMore || len(got) != len(want) {
						t.Fatalf("%+v: got %v, %v, %v, want %v, %v, %v", page, got, more, err, want, wantMore, wantErr)
					}
					for i := range got {
						if got[i].ID != want[i].ID {
							t.Fatalf("%+v: got %v, want %v", page, got, want)
						}
					}
				}
			}
		}
	}
}

// A decoded message survives an encoding and decoding unchanged.
func FuzzContents(f *testing.F) {
	for _, s := range []string{`"hi"`, `[{"type":"text","text":"hi"}]`,
		`[{"type":"image_file","image_file":{"file_id":"file-1"}}]`,
		`[{"type":"text","text":{"value":"x","annotations":[]}}]`, `null`, `[null]`, `{}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var c Contents
		if json.Unmarshal(b, &c) != nil {
			return
		}
		m := newMessage("thread_1", &MessageRequest{Role: "user", Content: c}, 1)
		raw, err := json.Marshal(m)
		check(t, err)
		var again Message
		check(t, json.Unmarshal(raw, &again))
		rawAgain, err := json.Marshal(again)
		check(t, err)
		if diff := cmp.Diff(string(raw), string(rawAgain)); diff != "" {
			t.Errorf("(-once +twice):\n%s", diff)
		}
		m.item()
	})
}
