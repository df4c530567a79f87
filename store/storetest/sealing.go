package storetest

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
)

// A Disk opens stores whose content outlives them.
type Disk struct {
	// Open opens the store in a directory, which is empty the first time.
	Open func(ctx context.Context, dir string, key [32]byte) (store.Store, error)

	// CopyKeys replaces the keys of the store in directory to by those of the store in
	// directory from. Both stores are closed.
	CopyKeys func(t *testing.T, from, to string)

	// RemoveKeys removes the keys of the store in a directory. The store is closed.
	RemoveKeys func(t *testing.T, dir string)

	// Copy copies the store in a directory to a new directory, as a crash now would
	// leave it. The store may be open.
	Copy func(t *testing.T, dir string) string

	// Content returns all bytes that the database has on the disk, without its keys.
	Content func(t *testing.T, dir string) []byte
}

const canary = "canary-in-a-coal-mine "

// Sealing checks that content is sealed, and that deletion destroys it: rows in an
// older copy of the database cannot be read with today's keys.
func Sealing(t *testing.T, d Disk) {
	t.Run("Erased", d.erased)
	t.Run("OtherKeys", d.otherKeys)
	t.Run("Closed", d.closed)
}

func (d Disk) open(t *testing.T, dir string) store.Store {
	t.Helper()
	s, err := d.Open(t.Context(), dir, [32]byte{7})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// A sealedRow is a kind of row with functions that read and delete it.
type sealedRow struct {
	name         string
	read, delete func() error
}

func (d Disk) erased(t *testing.T) {
	dir := t.TempDir()
	s := d.open(t, dir)
	writeCanaries(t, s)
	if n := bytes.Count(d.Content(t, dir), []byte(strings.TrimSpace(canary))); n > 0 {
		t.Errorf("the canary is readable %d times", n)
	}
	old := d.Copy(t, dir) // still has the rows, like blocks returned to the file system
	for _, row := range rows(t.Context(), s, "1") {
		if err := errors.Join(row.read(), row.delete()); err != nil {
			t.Fatalf("%s: %v", row.name, err)
		}
		wantErr(t, row.name+" after its deletion", row.read(), store.ErrNotFound)
	}
	for _, row := range rows(t.Context(), s, "2") {
		if err := row.read(); err != nil {
			t.Errorf("%s, not deleted: %v", row.name, err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}

	whole := d.open(t, old)
	for _, row := range rows(t.Context(), whole, "1") {
		if err := row.read(); err != nil {
			t.Fatalf("%s is not in the old copy: %v; the test would prove nothing", row.name, err)
		}
	}
	if err := whole.Close(); err != nil {
		t.Fatal(err)
	}
	d.CopyKeys(t, dir, old)
	back := d.open(t, old)
	defer back.Close()
	for _, row := range rows(t.Context(), back, "1") {
		wantErr(t, row.name+" in an old copy with the keys of today", row.read(), store.ErrNotFound)
	}
	for _, row := range rows(t.Context(), back, "2") {
		if err := row.read(); err != nil {
			t.Errorf("%s, not deleted, in an old copy with today's keys: %v", row.name, err)
		}
	}
}

// writeCanaries writes the rows of rows twice, with the canary in all content.
func writeCanaries(t *testing.T, s store.Store) {
	t.Helper()
	ctx := t.Context()
	for _, n := range []string{"1", "2"} {
		content := canary
		r := &store.Response{Project: mine, Request: &berth.ResponseRequest{Model: "m", Instructions: &content},
			Input: []berth.Item{item(canary)}}
		r.Body = berth.NewResponse(berth.ResponseID("resp_"+n), 7, r.Request)
		body := *r.Body
		body.Output = []berth.Item{item(canary)}
		ev := event(1)
		ev.Data = []byte(`{"delta":"` + canary + `"}`)
		object := func(parent, id string) *store.Object {
			return &store.Object{ObjectKey: store.ObjectKey{Kind: store.KindConversationItem, Parent: parent, ID: id},
				Body: []byte(`"` + strings.Repeat(canary, 1000) + `"`)}
		}
		cid := berth.ContainerID("cntr_" + n)
		for _, err := range []error{
			s.CreateResponse(ctx, r, []store.Event{event(0)}, store.Lease{Owner: "me",
				Until: time.Now().Add(time.Hour)}),
			s.AppendEvents(ctx, mine, r.Body.ID, "me", []store.Event{ev}, &body),
			s.CreateFile(ctx, mine, &berth.File{ID: berth.FileID("file-" + n), Filename: canary}, []byte(canary)),
			s.CreateContainer(ctx, &store.Container{Project: mine, Body: &berth.Container{ID: cid, Name: canary}},
				object(string(cid), "log_"+n)),
			s.PutContainerFile(ctx, mine, &berth.ContainerFile{ID: "cfile_1", ContainerID: cid, Path: "/" + canary}),
			s.CreateObjects(ctx, mine, object("", "conv_"+n), object("conv_"+n, "msg_"+n), object("msg_"+n, "part_"+n)),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
		_, err1 := s.UpdateObject(ctx, mine, object("", "conv_"+n).ObjectKey, func(o *store.Object) error {
			o.Body = []byte(`"` + canary + `, changed"`)
			return nil
		})
		_, err2 := s.UpdateContainer(ctx, mine, cid, func(c *berth.Container) error { c.Name += canary; return nil })
		if err := errors.Join(err1, err2); err != nil {
			t.Fatal(err)
		}
	}
}

// rows returns the rows of writeCanaries with a number. Children are read and deleted
// with their parent.
func rows(ctx context.Context, s store.Store, n string) []sealedRow {
	id, cid, fid := berth.ResponseID("resp_"+n), berth.ContainerID("cntr_"+n), berth.FileID("file-"+n)
	key := func(parent, id string) store.ObjectKey {
		return store.ObjectKey{Kind: store.KindConversationItem, Parent: parent, ID: id}
	}
	object := func(key store.ObjectKey) func() error {
		return func() error { _, err := s.GetObject(ctx, mine, key); return err }
	}
	return []sealedRow{
		{"a response", func() error {
			_, err := s.GetResponse(ctx, mine, id)
			return err
		}, func() error { return s.DeleteResponse(ctx, mine, id) }},
		{"the key of a file", func() error {
			_, _, err := s.GetFile(ctx, mine, fid)
			return err
		}, func() error { return s.DeleteFile(ctx, mine, fid) }},
		{"a container and its file", func() error {
			_, err1 := s.GetContainer(ctx, mine, cid)
			_, err2 := s.GetContainerFile(ctx, mine, cid, "cfile_1")
			return errors.Join(err1, err2, object(key(string(cid), "log_"+n))())
		}, func() error { return s.DeleteContainer(ctx, mine, cid) }},
		{"an object and its descendants", func() error {
			return errors.Join(object(key("", "conv_"+n))(), object(key("conv_"+n, "msg_"+n))(),
				object(key("msg_"+n, "part_"+n))())
		}, func() error { return s.DeleteObject(ctx, mine, key("", "conv_"+n)) }},
	}
}

// otherKeys checks that Open refuses a store without the keys that it was written
// with, instead of starting empty.
func (d Disk) otherKeys(t *testing.T) {
	dir := t.TempDir()
	s := d.open(t, dir)
	create(t, s, response(""))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if s, err := d.Open(t.Context(), dir, [32]byte{1}); err == nil || !strings.Contains(err.Error(), "other keys") {
		t.Errorf("with another key of the server: got %v, %v", s, err)
	}
	d.RemoveKeys(t, dir)
	if s, err := d.Open(t.Context(), dir, [32]byte{7}); err == nil || !strings.Contains(err.Error(), "other keys") {
		t.Errorf("without its keys: got %v, %v", s, err)
	}
}

// closed checks that a closed store refuses writes and deletions.
func (d Disk) closed(t *testing.T) {
	s := d.open(t, t.TempDir())
	r := create(t, s, response(""))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	wantErr(t, "a write after Close", s.CreateFile(t.Context(), mine, &berth.File{ID: "file-1"}, nil), store.ErrClosed)
	wantErr(t, "a deletion after Close", s.DeleteResponse(t.Context(), mine, r.Body.ID), store.ErrClosed)
}
