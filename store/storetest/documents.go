package storetest

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
)

func object(kind store.Kind, parent, id string) *store.Object {
	return &store.Object{ObjectKey: store.ObjectKey{Kind: kind, Parent: parent, ID: id}, CreatedAt: 7,
		Body: json.RawMessage(`{"id":"` + id + `"}`)}
}

func objects(t *testing.T, s store.Store) {
	ctx := t.Context()
	thread := object("thread", "", "thread_1")
	if err := s.CreateObjects(ctx, mine, thread); err != nil {
		t.Fatal(err)
	}
	wantErr(t, "a key again", s.CreateObjects(ctx, mine, object("thread", "", "thread_2"), thread), store.ErrExists)
	_, err := s.GetObject(ctx, mine, store.ObjectKey{Kind: "thread", ID: "thread_2"})
	wantErr(t, "an object that was saved with it", err, store.ErrNotFound)
	wantErr(t, "a parent that is not there", s.CreateObjects(ctx, mine, object("message", "thread_2", "msg")),
		store.ErrNotFound)
	wantErr(t, "another project's parent", s.CreateObjects(ctx, theirs, object("message", "thread_1", "msg")),
		store.ErrNotFound)
	if err := s.CreateObjects(ctx, theirs, object("thread", "", "thread_1")); err != nil {
		t.Errorf("the same key in another project: %v", err)
	}

	var ids []string
	for i := range 5 {
		id := fmt.Sprintf("msg_%d", 9-i) // the order is that of creation
		ids = append(ids, id)
		if err := s.CreateObjects(ctx, mine, object("message", "thread_1", id)); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.CreateObjects(ctx, mine, object("run", "thread_1", "run_1"), object("step", "run_1", "step_1"),
		object("step", "run_1", "msg_9")); err != nil {
		t.Fatal(err)
	}
	list := func(p store.Page) ([]string, bool, error) {
		list, more, err := s.ListObjects(ctx, mine, "message", "thread_1", p)
		var out []string
		for _, o := range list {
			out = append(out, o.ID)
		}
		return out, more, err
	}
	pages(t, ids, list)
	for _, p := range []struct {
		page store.Page
		want []string
		more bool
	}{
		{store.Page{Limit: 2, Ascending: true, Before: ids[3]}, ids[1:3], true},
		{store.Page{Limit: 3, Ascending: true, Before: ids[3]}, ids[:3], false},
		{store.Page{Limit: 9, Before: ids[3]}, ids[4:], false},
		{store.Page{Limit: 9, Ascending: true, After: ids[0], Before: ids[3]}, ids[1:3], false},
	} {
		got, more, err := list(p.page)
		if err != nil || !slices.Equal(got, p.want) || more != p.more {
			t.Errorf("%+v: got %v, more %v, %v; want %v, more %v", p.page, got, more, err, p.want, p.more)
		}
	}
	if got, _, err := s.ListObjects(ctx, theirs, "message", "thread_1", store.Page{Limit: 9}); err != nil ||
		len(got) != 0 {
		t.Errorf("another project's list: %d objects, %v", len(got), err)
	}
	for key, p := range map[store.ObjectKey]berth.ProjectID{
		{Kind: "message", Parent: "thread_1", ID: "msg_9"}: theirs, {Kind: "message", ID: "msg_9"}: mine,
		{Kind: "run", Parent: "thread_1", ID: "msg_9"}: mine,
	} {
		_, err := s.GetObject(ctx, p, key)
		wantErr(t, "another's Get", err, store.ErrNotFound)
		wantErr(t, "another's Delete", s.DeleteObject(ctx, p, key), store.ErrNotFound)
		_, err = s.UpdateObject(ctx, p, key, func(*store.Object) error { return nil })
		wantErr(t, "another's Update", err, store.ErrNotFound)
	}

	if err := s.DeleteObject(ctx, mine, thread.ObjectKey); err != nil {
		t.Fatal(err)
	}
	for _, o := range []*store.Object{thread, object("message", "thread_1", "msg_9"), object("step", "run_1",
		"step_1")} {
		_, err := s.GetObject(ctx, mine, o.ObjectKey)
		wantErr(t, "a child of a deleted object", err, store.ErrNotFound)
	}
	if _, err := s.GetObject(ctx, theirs, thread.ObjectKey); err != nil {
		t.Errorf("another project's object of the same key: %v", err)
	}
}

func objectUpdates(t *testing.T, s store.Store) {
	ctx := t.Context()
	o := object("counter", "", "counter_1")
	o.Body = json.RawMessage(`0`)
	if err := s.CreateObjects(ctx, mine, o); err != nil {
		t.Fatal(err)
	}
	refused := errors.New("no")
	_, err := s.UpdateObject(ctx, mine, o.ObjectKey, func(o *store.Object) error {
		o.Body = json.RawMessage(`-1`)
		return refused
	})
	wantErr(t, "a refused change", err, refused)
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			_, err := s.UpdateObject(ctx, mine, o.ObjectKey, func(o *store.Object) error {
				var n int
				if err := json.Unmarshal(o.Body, &n); err != nil {
					return fmt.Errorf("decode: %w", err)
				}
				o.Body = json.RawMessage(fmt.Sprint(n + 1))
				o.ExpiresAt = 50
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	got, err := s.GetObject(ctx, mine, o.ObjectKey)
	o.Body, o.ExpiresAt = json.RawMessage(`20`), 50
	if err != nil {
		t.Fatal(err)
	}
	same(t, "the object", got, o)

	early := object("counter", "", "counter_0")
	early.ExpiresAt = 40
	if err := s.CreateObjects(ctx, theirs, early, object("counter", "", "for_ever")); err != nil {
		t.Fatal(err)
	}
	want := []store.ObjectRef{{Project: theirs, ObjectKey: early.ObjectKey}, {Project: mine, ObjectKey: o.ObjectKey}}
	for limit := 1; limit <= 2; limit++ {
		refs, err := s.ExpiredObjects(ctx, "counter", time.Unix(50, 0), limit)
		if err != nil {
			t.Fatal(err)
		}
		same(t, "the expired objects", refs, want[:limit])
	}
	if refs, err := s.ExpiredObjects(ctx, "counter", time.Unix(39, 0), 9); err != nil || len(refs) != 0 {
		t.Errorf("before the first expiry: %v, %v", refs, err)
	}
}

// containerObjects: objects of a container are created under it and deleted with it.
func containerObjects(t *testing.T, s store.Store) {
	ctx := t.Context()
	for i := range 2 {
		if err := s.CreateContainer(ctx, container(i)); err != nil {
			t.Fatal(err)
		}
	}
	object := func(parent, id string) *store.Object {
		return &store.Object{ObjectKey: store.ObjectKey{Kind: "note", Parent: parent, ID: id}, Body: []byte(`{}`)}
	}
	if err := s.CreateObjects(ctx, mine, object("cntr_0", "note_0"), object("note_0", "note_00"),
		object("cntr_1", "note_1")); err != nil {
		t.Fatal(err)
	}
	wantErr(t, "of another project's container", s.CreateObjects(ctx, theirs, object("cntr_0", "note_2")),
		store.ErrNotFound)
	wantErr(t, "of a container that does not exist", s.CreateObjects(ctx, mine, object("cntr_9", "note_2")),
		store.ErrNotFound)
	if err := s.DeleteContainer(ctx, mine, "cntr_0"); err != nil {
		t.Fatal(err)
	}
	for _, o := range []*store.Object{object("cntr_0", "note_0"), object("note_0", "note_00")} {
		_, err := s.GetObject(ctx, mine, o.ObjectKey)
		wantErr(t, o.ID+" of a deleted container", err, store.ErrNotFound)
	}
	if _, err := s.GetObject(ctx, mine, object("cntr_1", "note_1").ObjectKey); err != nil {
		t.Errorf("another container's: %v", err)
	}
	wantErr(t, "of a deleted container", s.CreateObjects(ctx, mine, object("cntr_0", "note_3")), store.ErrNotFound)
}

// objectsWithEvents: objects of events are saved with them or not at all.
func objectsWithEvents(t *testing.T, s store.Store) {
	ctx := t.Context()
	r := create(t, s, response(""))
	parent, lost := object("conversation", "", "conv_1"), object("item", "conv_gone", "msg_2")
	if err := s.CreateObjects(ctx, mine, parent, object("item", "conv_1", "msg_0")); err != nil {
		t.Fatal(err)
	}
	taken := object("item", "conv_1", "msg_0")
	taken.Body = json.RawMessage(`{"other":true}`)
	added := object("item", "conv_1", "msg_1")
	err := s.AppendEvents(ctx, mine, r.Body.ID, "you", []store.Event{event(1)}, nil, added)
	wantErr(t, "another owner's append", err, store.ErrConflict)
	_, err = s.GetObject(ctx, mine, added.ObjectKey)
	wantErr(t, "its object", err, store.ErrNotFound)
	if err := s.AppendEvents(ctx, mine, r.Body.ID, "me", []store.Event{event(1)}, nil, taken, lost, added); err != nil {
		t.Fatal(err)
	}
	for _, want := range []*store.Object{object("item", "conv_1", "msg_0"), added} {
		got, err := s.GetObject(ctx, mine, want.ObjectKey)
		if err != nil {
			t.Fatal(err)
		}
		same(t, "the object", got, want)
	}
	_, err = s.GetObject(ctx, mine, lost.ObjectKey)
	wantErr(t, "an object without its parent", err, store.ErrNotFound)
}

// objectsWithResponse: objects of a new response are created with it, and an object
// that exists prevents both.
func objectsWithResponse(t *testing.T, s store.Store) {
	ctx := t.Context()
	parent, claim := object("conversation", "", "conv_1"), object("turn", "conv_1", "1")
	if err := s.CreateObjects(ctx, mine, parent); err != nil {
		t.Fatal(err)
	}
	save := func(id berth.ResponseID, o *store.Object) error {
		r := response("")
		r.Body.ID = id
		return s.CreateResponse(ctx, r, []store.Event{event(0)}, store.Lease{Owner: "me", Until: far}, o)
	}
	if err := save("resp_first", claim); err != nil {
		t.Fatal(err)
	}
	got, err := s.GetObject(ctx, mine, claim.ObjectKey)
	if err != nil {
		t.Fatal(err)
	}
	same(t, "the object", got, claim)
	wantErr(t, "a key that is taken", save("resp_second", object("turn", "conv_1", "1")), store.ErrExists)
	wantErr(t, "a parent that is gone", save("resp_second", object("turn", "conv_2", "1")), store.ErrNotFound)
	_, err = s.GetResponse(ctx, mine, "resp_second")
	wantErr(t, "the response that was refused", err, store.ErrNotFound)
}
