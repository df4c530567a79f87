package storetest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/internal/ration"
	"github.com/berth-run/berth/store"
)

// wholeReads checks reads of a whole response: its state and its JSON.
func wholeReads(t *testing.T, s store.Store) {
	ctx := t.Context()
	r := create(t, s, response(""))
	id := r.Body.ID
	wantState := func(what string, want store.ResponseState) {
		t.Helper()
		if got, err := s.ResponseState(ctx, mine, id); err != nil || got != want {
			t.Errorf("%s: got %+v, %v, want %+v", what, got, err, want)
		}
	}
	wantState("while it runs", store.ResponseState{Stored: true})
	finish(t, s, r, item("out"))
	wantState("after its end", store.ResponseState{Stored: true, Final: true})
	full, err := s.GetResponse(ctx, mine, id)
	if err != nil {
		t.Fatal(err)
	}
	pieces, err := s.ReadResponse(ctx, mine, id)
	if err != nil {
		t.Fatal(err)
	}
	var body berth.Response
	if err := json.Unmarshal(bytes.Join(pieces, nil), &body); err != nil {
		t.Fatal(err)
	}
	same(t, "the JSON of a response", &body, full.Body)

	no := false
	passing := response("")
	passing.Body.Store, passing.Request.Store = no, &no
	id = create(t, s, passing).Body.ID
	wantState("not to be stored", store.ResponseState{})

	for p, id := range map[berth.ProjectID]berth.ResponseID{theirs: r.Body.ID, mine: "resp_none"} {
		_, err := s.ResponseState(ctx, p, id)
		wantErr(t, "the state of no response", err, store.ErrNotFound)
		_, err = s.ReadResponse(ctx, p, id)
		wantErr(t, "the JSON of no response", err, store.ErrNotFound)
	}
}

// eventNumbers checks that events with wrong numbers save nothing.
func eventNumbers(t *testing.T, s store.Store) {
	ctx := t.Context()
	lease := store.Lease{Owner: "me", Until: far}
	r := response("")
	wantErr(t, "first events from 1", s.CreateResponse(ctx, r, []store.Event{event(1)}, lease), store.ErrConflict)
	create(t, s, r)
	id := r.Body.ID
	wantErr(t, "a gap between events", s.AppendEvents(ctx, mine, id, "me", []store.Event{event(1), event(3)}, nil),
		store.ErrConflict)
	if err := s.AppendEvents(ctx, mine, id, "me", nil, nil); err != nil {
		t.Errorf("no events: %v", err)
	}
	if events, err := s.Events(ctx, mine, id, -1, 10); err != nil || len(events) != 1 {
		t.Errorf("got %d events, %v, want the first", len(events), err)
	}
}

// eventPages checks that a page of events ends at about PageBytes.
func eventPages(t *testing.T, s store.Store) {
	ctx := t.Context()
	r := create(t, s, response(""))
	id := r.Body.ID
	large := func(n int64, size int) store.Event {
		return store.Event{SequenceNumber: n, Type: "t", Data: json.RawMessage(`"` + strings.Repeat("x", size) + `"`)}
	}
	for n, size := range []int{1000, store.PageBytes - 2000, 3000, 3 * store.PageBytes, 10} {
		if err := s.AppendEvents(ctx, mine, id, "me", []store.Event{large(int64(n)+1, size)}, nil); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		after int64
		want  []int64
	}{{-1, []int64{0, 1, 2}}, {2, []int64{3}}, {3, []int64{4}}, {4, []int64{5}}, {5, nil}} {
		events, err := s.Events(ctx, mine, id, tt.after, 10)
		var got []int64
		for _, ev := range events {
			got = append(got, ev.SequenceNumber)
		}
		if err != nil || !slices.Equal(got, tt.want) {
			t.Errorf("events after %d: got %v, %v, want %v", tt.after, got, err, tt.want)
		}
	}
}

// sizedPages checks pages of objects with a limit on their bytes.
func sizedPages(t *testing.T, s store.Store) {
	ctx := t.Context()
	for id, size := range []int{100, 5000, 100, 100, 5000} {
		o := object("note", "", string(rune('a'+id)))
		o.Body = json.RawMessage(`"` + strings.Repeat("x", size) + `"`)
		if err := s.CreateObjects(ctx, mine, o); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		page store.Page
		want string
		more bool
	}{
		{store.Page{Limit: 9, Bytes: 1 << 20, Ascending: true}, "abcde", false},
		{store.Page{Limit: 9, Bytes: 1, Ascending: true}, "a", true},
		{store.Page{Limit: 9, Bytes: 1}, "e", true},
		{store.Page{Limit: 9, Bytes: 3000, Ascending: true, After: "b"}, "cd", true},
		{store.Page{Limit: 9, Bytes: 3000, After: "e"}, "dc", true},
		{store.Page{Limit: 1, Bytes: 3000, After: "e"}, "d", true},
		{store.Page{Limit: 9, Bytes: 3000, Before: "b"}, "dc", true},
		{store.Page{Limit: 9, Bytes: 3000, Ascending: true, Before: "e"}, "cd", true},
	} {
		list, more, err := s.ListObjects(ctx, mine, "note", "", tt.page)
		got := ""
		for _, o := range list {
			got += o.ID
		}
		if err != nil || got != tt.want || more != tt.more {
			t.Errorf("%+v: got %q, more %v, %v; want %q, more %v", tt.page, got, more, err, tt.want, tt.more)
		}
	}
}

// expiry checks which files and objects have expired, and their order.
func expiry(t *testing.T, s store.Store) {
	ctx := t.Context()
	for i, at := range []int64{30, 10, 0, 20, 20} { // 0 is never
		f := &berth.File{ID: berth.FileID("file-" + string(rune('a'+i))), Object: "file", Purpose: "user_data"}
		o := object("note", "", string(rune('a'+i)))
		if o.ExpiresAt = at; at != 0 {
			f.ExpiresAt = &at
		}
		p := mine
		if i == 3 {
			p = theirs
		}
		if err := errors.Join(s.CreateFile(ctx, p, f, nil), s.CreateObjects(ctx, p, o)); err != nil {
			t.Fatal(err)
		}
		if got, err := s.GetObject(ctx, p, o.ObjectKey); err != nil || got.ExpiresAt != at {
			t.Errorf("an object that expires at %d: got %+v, %v", at, got, err)
		}
	}
	for _, tt := range []struct {
		now   int64
		limit int
		want  []string
	}{{9, 9, nil}, {10, 9, []string{"mine b"}}, {29, 9, []string{"mine b", "theirs d", "mine e"}},
		{29, 2, []string{"mine b", "theirs d"}}, {99, 9, []string{"mine b", "theirs d", "mine e", "mine a"}}} {
		files, err1 := s.ExpiredFiles(ctx, time.Unix(tt.now, 0), tt.limit)
		objects, err2 := s.ExpiredObjects(ctx, "note", time.Unix(tt.now, 0), tt.limit)
		if err := errors.Join(err1, err2); err != nil {
			t.Fatal(err)
		}
		var gotFiles, gotObjects []string
		for _, f := range files {
			gotFiles = append(gotFiles, strings.TrimPrefix(string(f.Project), "proj_")+" "+
				strings.TrimPrefix(string(f.File), "file-"))
		}
		for _, o := range objects {
			if o.Kind != "note" || o.Parent != "" {
				t.Errorf("got the object %+v", o)
			}
			gotObjects = append(gotObjects, strings.TrimPrefix(string(o.Project), "proj_")+" "+o.ID)
		}
		if !slices.Equal(gotFiles, tt.want) || !slices.Equal(gotObjects, tt.want) {
			t.Errorf("%d expired by %d: got files %v and objects %v, want %v", tt.limit, tt.now, gotFiles, gotObjects,
				tt.want)
		}
	}
	if got, err := s.ExpiredObjects(ctx, "other", time.Unix(99, 0), 9); err != nil || len(got) != 0 {
		t.Errorf("expired objects of another kind: got %v, %v", got, err)
	}
	o, err := s.UpdateObject(ctx, mine, store.ObjectKey{Kind: "note", ID: "b"}, func(o *store.Object) error {
		o.ExpiresAt = 0
		return nil
	})
	if err != nil || o.ExpiresAt != 0 {
		t.Fatalf("an update that removes the expiry: got %+v, %v", o, err)
	}
	if got, err := s.ExpiredObjects(ctx, "note", time.Unix(10, 0), 9); err != nil || len(got) != 0 {
		t.Errorf("after the expiry was removed: got %v, %v", got, err)
	}
}

// rations checks that large content is read only if there is memory for it.
func rations(t *testing.T, s store.Store) {
	const size = 300 << 10
	r := response("")
	r.Input = []berth.Item{item(strings.Repeat("in ", size/3))}
	create(t, s, r)
	finish(t, s, r, item(strings.Repeat("out ", size/4)))
	id := r.Body.ID
	if err := s.CreateObjects(t.Context(), mine, object("note", "", "a")); err != nil {
		t.Fatal(err)
	}
	note := store.ObjectKey{Kind: "note", ID: "a"}
	if _, err := s.UpdateObject(t.Context(), mine, note, func(o *store.Object) error {
		o.Body = json.RawMessage(`"` + strings.Repeat("x", size) + `"`)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	for what, read := range map[string]func(context.Context) (any, error){
		"GetResponse":  func(ctx context.Context) (any, error) { return s.GetResponse(ctx, mine, id) },
		"ReadResponse": func(ctx context.Context) (any, error) { return s.ReadResponse(ctx, mine, id) },
		"Chain":        func(ctx context.Context) (any, error) { return s.Chain(ctx, mine, id) },
		"GetObject":    func(ctx context.Context) (any, error) { return s.GetObject(ctx, mine, note) },
		"ListObjects": func(ctx context.Context) (any, error) {
			list, _, err := s.ListObjects(ctx, mine, "note", "", store.Page{Limit: 9})
			return list, err
		},
	} {
		want, err := read(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		account := ration.New(ration.Options{Total: 1 << 30}).Open("x")
		got, err := read(ration.With(t.Context(), account))
		if err != nil {
			t.Errorf("%s with enough memory: %v", what, err)
		}
		same(t, what, got, want)
		if n := account.Needs(); n < size {
			t.Errorf("%s reserved %d bytes for %d", what, n, size)
		}
		account.Close()
		full := ration.New(ration.Options{Total: 2, Waiting: -1}).Open("x") // nobody may wait
		_, err = read(ration.With(t.Context(), full))
		if e, ok := errors.AsType[*berth.Error](err); !ok || e.Code != berth.CodeUnavailable {
			t.Errorf("%s without memory: got %v, want that the server is overloaded", what, err)
		}
		full.Close()
	}
}
