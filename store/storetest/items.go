package storetest

import (
	"testing"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
)

// items: an item can be found by its id, in its project, until the first response that
// has it is deleted.
func items(t *testing.T, s store.Store) {
	ctx := t.Context()
	out, second, passed := item("out"), item("second"), item("passed")
	a := create(t, s, response(""))
	in := a.Input[0]
	find := func(p berth.ProjectID, items ...berth.Item) map[string]berth.Item {
		t.Helper()
		var ids []string
		for _, it := range items {
			ids = append(ids, it.ID())
		}
		found, err := s.Items(ctx, p, append(ids, "msg_none"))
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	body := *a.Body
	body.Output = []berth.Item{out}
	if err := s.AppendEvents(ctx, mine, body.ID, "me", []store.Event{event(1)}, &body); err != nil {
		t.Fatal(err)
	}
	same(t, "while it runs", find(mine, in, out), map[string]berth.Item{in.ID(): in})
	body.Status = berth.StatusCompleted
	if err := s.AppendEvents(ctx, mine, body.ID, "me", []store.Event{event(2)}, &body); err != nil {
		t.Fatal(err)
	}
	same(t, "when it has ended", find(mine, in, out, in), map[string]berth.Item{in.ID(): in, out.ID(): out})
	same(t, "another project", find(theirs, in, out), map[string]berth.Item{})

	// The same item in a second response, with another item.
	b := response("")
	b.Input = []berth.Item{out, second}
	create(t, s, b)
	same(t, "items of two responses", find(mine, in, out, second), map[string]berth.Item{in.ID(): in, out.ID(): out,
		second.ID(): second})

	no := false
	passing := response("")
	passing.Input, passing.Body.Store, passing.Request.Store = []berth.Item{passed}, no, &no
	create(t, s, passing)
	finish(t, s, passing, item("output"))
	same(t, "a response that is not stored", find(mine, passed), map[string]berth.Item{})

	if err := s.CreateObjects(ctx, mine, object(store.KindConversation, "", "conv_1"),
		object(store.KindConversationItem, "conv_1", "msg_held"), object("message", "conv_1",
			"msg_other")); err != nil {
		t.Fatal(err)
	}
	held := berth.NewItem(map[string]string{"id": "msg_held"})
	same(t, "an item of a conversation", find(mine, held, berth.NewItem(map[string]string{"id": "msg_other"})),
		map[string]berth.Item{"msg_held": held})
	same(t, "an item of another project's conversation", find(theirs, held), map[string]berth.Item{})

	if err := s.DeleteResponse(ctx, mine, a.Body.ID); err != nil {
		t.Fatal(err)
	}
	same(t, "after the deletion", find(mine, in, out, second), map[string]berth.Item{second.ID(): second})
}
