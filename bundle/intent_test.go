package bundle

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
)

var errDead = errors.New("the process is dead")

// Parts of a carrier that makes things, and dies before it could remove any.
type (
	deadObjects   struct{ store.Objects }
	deadResponses struct {
		store.Responses
		made []berth.ResponseID
	}
)

func (deadObjects) DeleteObject(context.Context, berth.ProjectID, store.ObjectKey) error {
	return errDead
}

func (r *deadResponses) CreateResponse(ctx context.Context, rec *store.Response, events []store.Event,
	lease store.Lease, objects ...*store.Object) error {
	r.made = append(r.made, rec.Body.ID)
	return r.Responses.CreateResponse(ctx, rec, events, lease, objects...)
}

func (*deadResponses) DeleteResponse(context.Context, berth.ProjectID, berth.ResponseID) error {
	return errDead
}

// TestRecover interrupts an import that has created everything and not reported it. The
// next process removes all of it, and nothing else.
func TestRecover(t *testing.T) {
	const mine = berth.ProjectID("proj_mine")
	c := newCarrier(t)
	second := as(goodDocument, "1111111111")
	bundle := packed(t, func(*Manifest) {}, goodDocument, second, "content")
	by := berth.Caller{Project: mine}
	kept, err := c.Import(t.Context(), by, bytes.NewReader(bundle))
	if err != nil {
		t.Fatal(err)
	}
	dead := &deadResponses{Responses: c.opts.Responses}
	opts := c.opts
	opts.Objects, opts.Responses = deadObjects{opts.Objects}, dead
	if _, err := New(opts).Import(t.Context(), by, bytes.NewReader(bundle)); !errors.Is(err, errDead) {
		t.Fatalf("got %v, want %v", err, errDead)
	}
	if len(dead.made) != 2 {
		t.Fatalf("%d responses were made, want 2", len(dead.made))
	}
	for range 2 { // and again, when there is nothing to do
		if err := c.Recover(t.Context(), slog.New(slog.DiscardHandler)); err != nil {
			t.Fatal(err)
		}
	}
	for _, id := range dead.made {
		if _, err := c.opts.Responses.GetResponse(t.Context(), mine, id); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("%s: got %v, want that it is gone", id, err)
		}
	}
	if _, err := c.opts.Responses.GetResponse(t.Context(), mine, kept.ResponseID); err != nil {
		t.Errorf("what was imported before: %v", err)
	}
	files, _, err := c.opts.Files.List(t.Context(), mine, "", store.Page{Limit: 10})
	if err != nil || len(files) != 1 {
		t.Errorf("got %d files, %v, want that which was imported before", len(files), err)
	}
	if refs, err := c.opts.Objects.ExpiredObjects(t.Context(), kindImport, time.Now().Add(time.Hour), 10); err != nil ||
		len(refs) != 0 {
		t.Errorf("records of imports: got %v, %v, want none", refs, err)
	}
}
