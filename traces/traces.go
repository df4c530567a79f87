// Package traces stores what clients' agents did: traces, each with its spans.
package traces

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/internal/rule"
	"github.com/berth-run/berth/store"
)

// A Store stores traces. It is safe for concurrent use.
type Store struct{ objects store.Objects }

// New returns a store of traces.
func New(objects store.Objects) *Store { return &Store{objects} }

func keyOf(id string) store.ObjectKey { return store.ObjectKey{Kind: store.KindTrace, ID: id} }

// clientError returns the client's error for a trace that does not exist.
func clientError(id string, err error) error {
	if errors.Is(err, store.ErrNotFound) {
		return berth.NotFound("Trace", rule.Clip(id))
	}
	return err
}

// Start stores a trace unless it exists. describe sets what a client said about it, of a new or an old one; nil if the
// client said nothing.
func (s *Store) Start(ctx context.Context, p berth.ProjectID, id string, describe func(*berth.Trace)) error {
	now := time.Now().Unix()
	t := berth.Trace{ID: id, Object: "trace", CreatedAt: now, ExpiresAt: now + berth.TraceLife}
	if describe != nil {
		describe(&t)
	}
	body, err := json.Marshal(&t)
	if err != nil {
		return fmt.Errorf("encode trace: %w", err)
	}
	err = s.objects.CreateObjects(ctx, p, &store.Object{ObjectKey: keyOf(id), CreatedAt: now, ExpiresAt: t.ExpiresAt,
		Body: body})
	switch {
	case errors.Is(err, store.ErrExists) && describe != nil:
		return s.change(ctx, p, id, describe)
	case errors.Is(err, store.ErrExists):
		return nil
	}
	return err
}

// change changes a trace. A trace that has been deleted is left.
func (s *Store) change(ctx context.Context, p berth.ProjectID, id string, change func(*berth.Trace)) error {
	_, err := s.objects.UpdateObject(ctx, p, keyOf(id), func(o *store.Object) error {
		var t berth.Trace
		if err := json.Unmarshal(o.Body, &t); err != nil {
			return fmt.Errorf("decode trace: %w", err)
		}
		change(&t)
		var err error
		o.Body, err = json.Marshal(&t)
		return err
	})
	return ignoreGone(err)
}

// Add stores spans of a trace, as many as it may have. A span that is added again is stored once. Spans of a trace that
// was deleted are dropped.
func (s *Store) Add(ctx context.Context, p berth.ProjectID, id string, spans []*berth.TraceSpan) error {
	o, err := s.objects.GetObject(ctx, p, keyOf(id))
	if err != nil {
		return ignoreGone(err)
	}
	var t berth.Trace
	if err := json.Unmarshal(o.Body, &t); err != nil {
		return fmt.Errorf("decode trace: %w", err)
	}
	room := max(0, berth.MaxTraceSpans-t.Spans)
	dropped := max(0, len(spans)-room)
	added, err := s.save(ctx, p, id, spans[:len(spans)-dropped])
	if err != nil {
		return err
	}
	return s.change(ctx, p, id, func(t *berth.Trace) {
		t.Dropped += dropped
		for _, span := range added {
			count(t, span)
		}
	})
}

// save saves spans and returns those that were not saved before.
func (s *Store) save(ctx context.Context, p berth.ProjectID, id string,
	spans []*berth.TraceSpan) (added []*berth.TraceSpan, err error) {
	objects := make([]*store.Object, len(spans))
	for i, span := range spans {
		bound(span)
		body, err := json.Marshal(span)
		if err != nil {
			return nil, fmt.Errorf("encode span: %w", err)
		}
		objects[i] = &store.Object{ObjectKey: store.ObjectKey{Kind: store.KindTraceSpan, Parent: id, ID: span.ID},
			CreatedAt: time.Now().Unix(), Body: body}
	}
	err = s.objects.CreateObjects(ctx, p, objects...)
	if !errors.Is(err, store.ErrExists) {
		return spans, ignoreGone(err)
	}
	for i, o := range objects {
		switch err := s.objects.CreateObjects(ctx, p, o); {
		case err == nil:
			added = append(added, spans[i])
		case !errors.Is(err, store.ErrExists):
			return added, ignoreGone(err)
		}
	}
	return added, nil
}

// ignoreGone ignores that a trace was deleted while its spans are saved.
func ignoreGone(err error) error {
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	return err
}

// count adds a span to the sums of its trace.
func count(t *berth.Trace, s *berth.TraceSpan) {
	t.Spans++
	if len(s.Error) > 0 {
		t.Errors++
	}
	if ms, ok := milliseconds(s.StartedAt); ok && (t.StartedAtMS == nil || ms < *t.StartedAtMS) {
		t.StartedAtMS = &ms
	}
	if ms, ok := milliseconds(s.EndedAt); ok && (t.EndedAtMS == nil || ms > *t.EndedAtMS) {
		t.EndedAtMS = &ms
	}
}

// milliseconds returns a time in Unix milliseconds. One far from today is a mistake.
func milliseconds(text *string) (ms int64, ok bool) {
	if text == nil {
		return 0, false
	}
	at, err := time.Parse(time.RFC3339Nano, *text)
	return at.UnixMilli(), err == nil && at.Year() >= 1970 && at.Year() < 2200
}

// bound removes times that cannot be placed from a span, and most of data that is too large.
func bound(s *berth.TraceSpan) {
	for _, at := range []**string{&s.StartedAt, &s.EndedAt} {
		if _, ok := milliseconds(*at); !ok {
			*at = nil
		}
	}
	if len(s.SpanData)+len(s.Error) <= berth.MaxSpanData {
		return
	}
	s.Truncated = true
	var all map[string]json.RawMessage
	few := map[string]json.RawMessage{}
	if json.Unmarshal(s.SpanData, &all) == nil {
		for _, name := range []string{"type", "name", "model", "response_id", "usage"} {
			if v, ok := all[name]; ok && len(v) <= 4<<10 {
				few[name] = v
			}
		}
	}
	s.SpanData, _ = json.Marshal(few) // it was JSON
	if len(s.Error) > 4<<10 {
		s.Error = json.RawMessage(`{"message":` + strconv.Quote("The error was too large.") + `}`)
	}
}

// List returns a page of traces, and whether there are more.
func (s *Store) List(ctx context.Context, p berth.ProjectID, page berth.Page) ([]*berth.Trace, bool, error) {
	return list[berth.Trace](ctx, s, p, store.ObjectKey{Kind: store.KindTrace}, page)
}

// Get returns a trace.
func (s *Store) Get(ctx context.Context, p berth.ProjectID, id string) (*berth.Trace, error) {
	o, err := s.objects.GetObject(ctx, p, keyOf(id))
	if err != nil {
		return nil, clientError(id, err)
	}
	var t berth.Trace
	if err := json.Unmarshal(o.Body, &t); err != nil {
		return nil, fmt.Errorf("decode trace: %w", err)
	}
	return &t, nil
}

// Spans returns a page of the spans of a trace, which must exist, and whether there are more.
func (s *Store) Spans(ctx context.Context, p berth.ProjectID, id string,
	page berth.Page) ([]*berth.TraceSpan, bool, error) {
	return list[berth.TraceSpan](ctx, s, p, store.ObjectKey{Kind: store.KindTraceSpan, Parent: id}, page)
}

func list[T any](ctx context.Context, s *Store, p berth.ProjectID, of store.ObjectKey, page berth.Page) ([]*T, bool,
	error) {
	objects, more, err := s.objects.ListObjects(ctx, p, of.Kind, of.Parent, page)
	if err != nil {
		return nil, false, fmt.Errorf("list %s: %w", of.Kind, err)
	}
	all := make([]*T, len(objects))
	for i, o := range objects {
		all[i] = new(T)
		if err := json.Unmarshal(o.Body, all[i]); err != nil {
			return nil, false, fmt.Errorf("decode %s: %w", of.Kind, err)
		}
	}
	return all, more, nil
}

// Delete deletes a trace with its spans.
func (s *Store) Delete(ctx context.Context, p berth.ProjectID, id string) error {
	return clientError(id, s.objects.DeleteObject(ctx, p, keyOf(id)))
}
