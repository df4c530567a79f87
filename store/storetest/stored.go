package storetest

import (
	"encoding/hex"
	"encoding/json"
	"math/rand/v2"
	"testing"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
)

// storedBytes: everything that a project stores is counted for that project only, and
// deletion subtracts it.
func storedBytes(t *testing.T, s store.Store) {
	ctx := t.Context()
	sum := func() int64 {
		t.Helper()
		n, err := s.StoredBytes(ctx, mine)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	const size = 10_000
	noise := make([]byte, size/2)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(noise)
	text := hex.EncodeToString(noise) // a database may compress what repeats
	grows := func(what string, do func() error) {
		t.Helper()
		before := sum()
		if err := do(); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if got := sum() - before; got < size/2 || got > 4*size {
			t.Errorf("%s of %d bytes counts as %d", what, size, got)
		}
	}
	if n := sum(); n != 0 {
		t.Errorf("a new project stores %d bytes", n)
	}
	r := response("")
	r.Input = []berth.Item{item(text)}
	grows("an input", func() error {
		return s.CreateResponse(ctx, r, []store.Event{event(0)}, store.Lease{Owner: "me", Until: far})
	})
	long := event(1)
	long.Data = json.RawMessage(`{"text":"` + text + `"}`)
	grows("an event", func() error { return s.AppendEvents(ctx, mine, r.Body.ID, "me", []store.Event{long}, nil) })
	body := *r.Body
	body.Status, body.Output = berth.StatusCompleted, []berth.Item{item(text)}
	grows("an output", func() error {
		return s.AppendEvents(ctx, mine, r.Body.ID, "me", []store.Event{event(2)}, &body)
	})

	large := func(kind store.Kind, parent, id string) *store.Object {
		o := object(kind, parent, id)
		o.Body = json.RawMessage(`"` + text + `"`)
		return o
	}
	grows("an object", func() error { return s.CreateObjects(ctx, mine, large("thread", "", "thread_1")) })
	grows("an object of an object", func() error {
		return s.CreateObjects(ctx, mine, large("message", "thread_1", "msg_1"))
	})
	small := object("thread", "", "thread_2")
	if err := s.CreateObjects(ctx, mine, small); err != nil {
		t.Fatal(err)
	}
	grows("a change of an object", func() error {
		_, err := s.UpdateObject(ctx, mine, small.ObjectKey, func(o *store.Object) error {
			o.Body = json.RawMessage(`"` + text + `"`)
			return nil
		})
		return err
	})
	before := sum()
	if err := s.CreateObjects(ctx, mine, large("thread", "", "thread_3"), large("thread", "", "thread_1")); err == nil {
		t.Error("an object was created twice")
	}
	if got := sum(); got != before {
		t.Errorf("an object that was not saved counts as %d", got-before)
	}
	c := &berth.Container{ID: berth.ContainerID(berth.NewID(berth.PrefixContainer)), Name: text,
		Status: berth.ContainerExpired}
	grows("a container", func() error { return s.CreateContainer(ctx, &store.Container{Project: mine, Body: c}) })
	cfile := &berth.ContainerFile{ID: "cfile_1", ContainerID: c.ID, Path: "/" + text, Source: "user"}
	grows("a file in a container", func() error { return s.PutContainerFile(ctx, mine, cfile) })
	grows("an object of a container", func() error {
		return s.CreateObjects(ctx, mine, large("log", string(c.ID), "log_1"))
	})
	f := &berth.File{ID: berth.FileID(berth.NewID(berth.PrefixFile)), Filename: text}
	grows("a file", func() error { return s.CreateFile(ctx, mine, f, []byte("key")) })

	if n, err := s.StoredBytes(ctx, theirs); n != 0 || err != nil {
		t.Errorf("another project stores %d bytes, %v", n, err)
	}
	for what, do := range map[string]func() error{
		"response":  func() error { return s.DeleteResponse(ctx, mine, r.Body.ID) },
		"object":    func() error { return s.DeleteObject(ctx, mine, store.ObjectKey{Kind: "thread", ID: "thread_1"}) },
		"other":     func() error { return s.DeleteObject(ctx, mine, small.ObjectKey) },
		"container": func() error { return s.DeleteContainer(ctx, mine, c.ID) },
		"file":      func() error { return s.DeleteFile(ctx, mine, f.ID) },
	} {
		if err := do(); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	if n := sum(); n != 0 {
		t.Errorf("after all deletions %d bytes remain counted", n)
	}
}
