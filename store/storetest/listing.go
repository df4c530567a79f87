package storetest

import (
	"fmt"
	"slices"
	"testing"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
)

// listResponses: stored responses are listed in the order of their ids, by status and model, and
// a page names the next.
func listResponses(t *testing.T, s store.Store) {
	ctx := t.Context()
	for i, r := range []struct {
		model   string
		status  berth.Status
		store   bool
		project berth.ProjectID
		deleted bool
	}{{"a", berth.StatusCompleted, true, mine, false}, {"b", berth.StatusFailed, true, mine, false},
		{"a", berth.StatusCompleted, false, mine, false},
		{"a", berth.StatusCompleted, true, theirs, false}, {"a", berth.StatusInProgress, true, mine, false},
		{"a", berth.StatusCompleted, true, mine, true},
		{"a", berth.StatusCompleted, true, mine, false}} {
		one := response("")
		one.Project, one.Key = r.project, berth.KeyID(fmt.Sprintf("key_%d", i%2))
		one.Body.ID, one.Body.Model, one.Body.Store = berth.ResponseID(fmt.Sprintf("resp_list_%d", i)), r.model, r.store
		create(t, s, one)
		body := *one.Body
		body.Status = r.status
		if r.status.Final() {
			if err := s.AppendEvents(ctx, r.project, body.ID, "me", []store.Event{event(1)}, &body); err != nil {
				t.Fatal(err)
			}
		}
		if r.deleted {
			if err := s.DeleteResponse(ctx, r.project, body.ID); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, tt := range []struct {
		q    store.ResponseQuery
		want string
		next berth.ResponseID
	}{
		{store.ResponseQuery{Limit: 10}, "6410", ""},
		{store.ResponseQuery{Limit: 10, Ascending: true}, "0146", ""},
		{store.ResponseQuery{Limit: 2}, "64", "resp_list_4"},
		{store.ResponseQuery{Limit: 2, After: "resp_list_4"}, "10", ""},
		{store.ResponseQuery{Limit: 1, After: "resp_list_1", Ascending: true}, "4", "resp_list_4"},
		{store.ResponseQuery{Limit: 10, Model: "a"}, "640", ""},
		{store.ResponseQuery{Limit: 10, Key: "key_0"}, "640", ""},
		{store.ResponseQuery{Limit: 10, Key: "key_1", Model: "a"}, "", ""},
		{store.ResponseQuery{Limit: 10, Status: berth.StatusCompleted}, "60", ""},
		{store.ResponseQuery{Limit: 10, Status: berth.StatusInProgress}, "4", ""},
		{store.ResponseQuery{Limit: 10, Status: berth.StatusFailed, Model: "a"}, "", ""},
	} {
		list, next, err := s.ListResponses(ctx, mine, tt.q)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, r := range list {
			got += string(r.ID[len(r.ID)-1])
			if r.Output != nil || r.Instructions != nil || r.Tools != nil || r.Key == "" ||
				r.CreatedAt == 0 && r.Object == "" {
				t.Errorf("got %+v, want a summary", r)
			}
		}
		if got != tt.want || next != tt.next {
			t.Errorf("%+v: got %q and next %q, want %q and %q", tt.q, got, next, tt.want, tt.next)
		}
	}
	for _, after := range []berth.ResponseID{"resp_none", "resp_list_3", "resp_list_5"} {
		_, _, err := s.ListResponses(ctx, mine, store.ResponseQuery{Limit: 1, After: after})
		wantErr(t, "after "+string(after), err, store.ErrNotFound)
	}
	if list, _, err := s.ListResponses(ctx, theirs, store.ResponseQuery{Limit: 10}); err != nil ||
		!slices.EqualFunc(list, []string{"resp_list_3"}, func(r *store.Listed, id string) bool {
			return string(r.ID) == id
		}) {
		t.Errorf("of another project: got %v, %v", list, err)
	}
}
