package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/exchange"
	"github.com/berth-run/berth/internal/rule"
	"github.com/berth-run/berth/store"
)

// traces serves the traces of OpenAI's Agents SDK.
type traces struct{ objects store.Objects }

const maxTraceItems = 5000 // of one request

var (
	traceID  = rule.Matching(`^trace_[A-Za-z0-9]{1,64}$`, 70)
	spanID   = rule.Matching(`^[A-Za-z0-9_-]{1,80}$`, 80)
	nullText = orNull(rule.Text(0, 1024))

	ingestTracesBody = rule.Object(rule.Fields{"data": rule.List(rule.ByField("object", map[string]rule.Rule{
		"trace": rule.OpenObject(rule.Fields{"id": traceID, "workflow_name": nullText, "group_id": nullText,
			"metadata": orNull(rule.AnyObject)}, "id"),
		"trace.span": rule.OpenObject(rule.Fields{"id": spanID, "trace_id": traceID, "parent_id": orNull(spanID),
			"started_at": nullText, "ended_at": nullText,
			"span_data": rule.AnyObject}, "id", "trace_id", "span_data"),
	}), maxTraceItems)}, "data")
)

// orNull accepts null beside the values of a rule.
func orNull(r rule.Rule) rule.Rule {
	return func(at string, v any) error {
		if v == nil {
			return nil
		}
		return r(at, v)
	}
}

// A tracedItem is a trace or a span in a request.
type tracedItem struct {
	Object       string          `json:"object"`
	ID           string          `json:"id"`
	WorkflowName *string         `json:"workflow_name"`
	GroupID      *string         `json:"group_id"`
	Metadata     json.RawMessage `json:"metadata"`
	TraceID      string          `json:"trace_id"`
	ParentID     *string         `json:"parent_id"`
	StartedAt    *string         `json:"started_at"`
	EndedAt      *string         `json:"ended_at"`
	SpanData     json.RawMessage `json:"span_data"`
	Error        json.RawMessage `json:"error"`
}

type ingestTracesRequest struct {
	Data []tracedItem `json:"data"`
}

func traceKey(id string) store.ObjectKey { return store.ObjectKey{Kind: store.KindTrace, ID: id} }

// ingest serves POST /v1/traces/ingest, to which OpenAI's Agents SDK sends traces and their spans in
// any number of requests. A span sent again is stored once.
func (h *traces) ingest(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	var req ingestTracesRequest
	if err := x.Decode(r, ingestTracesBody, &req); err != nil {
		return err
	}
	spans := map[string][]*berth.TraceSpan{}
	for i := range req.Data {
		it := &req.Data[i]
		if it.Object == "trace" {
			if err := h.start(r, c, it.ID, it); err != nil {
				return err
			}
			continue
		}
		spans[it.TraceID] = append(spans[it.TraceID], spanOf(it))
	}
	for id, of := range spans {
		if err := h.start(r, c, id, nil); err != nil { // its own request may have been lost
			return err
		}
		if err := h.add(r, c, id, of); err != nil {
			return err
		}
	}
	x.WriteHeader(http.StatusNoContent)
	return nil
}

// start saves a trace unless it exists, or completes one that was made for its spans. it is nil if
// only its id is known.
func (h *traces) start(r *http.Request, c berth.Caller, id string, it *tracedItem) error {
	now := time.Now().Unix()
	t := berth.Trace{ID: id, Object: "trace", CreatedAt: now, ExpiresAt: now + berth.TraceLife}
	describe(&t, it)
	body, err := json.Marshal(&t)
	if err != nil {
		return fmt.Errorf("encode trace: %w", err)
	}
	err = h.objects.CreateObjects(r.Context(), c.Project, &store.Object{ObjectKey: traceKey(id), CreatedAt: now,
		ExpiresAt: t.ExpiresAt, Body: body})
	switch {
	case errors.Is(err, store.ErrExists) && it != nil:
		return h.change(r, c, id, func(t *berth.Trace) { describe(t, it) })
	case errors.Is(err, store.ErrExists):
		return nil
	}
	return err
}

// describe sets what a client sent about a trace.
func describe(t *berth.Trace, it *tracedItem) {
	if it == nil {
		return
	}
	if it.WorkflowName != nil {
		t.WorkflowName = *it.WorkflowName
	}
	t.GroupID, t.Metadata = it.GroupID, it.Metadata
	if len(t.Metadata) > berth.MaxSpanData {
		t.Metadata = nil
	}
}

// change changes a trace. A trace that has been deleted is left.
func (h *traces) change(r *http.Request, c berth.Caller, id string, change func(*berth.Trace)) error {
	_, err := h.objects.UpdateObject(r.Context(), c.Project, traceKey(id), func(o *store.Object) error {
		var t berth.Trace
		if err := json.Unmarshal(o.Body, &t); err != nil {
			return fmt.Errorf("decode trace: %w", err)
		}
		change(&t)
		var err error
		o.Body, err = json.Marshal(&t)
		return err
	})
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	return err
}

// add saves spans of a trace, as many as it may have.
func (h *traces) add(r *http.Request, c berth.Caller, id string, spans []*berth.TraceSpan) error {
	o, err := h.objects.GetObject(r.Context(), c.Project, traceKey(id))
	if errors.Is(err, store.ErrNotFound) {
		return nil // it has been deleted
	}
	if err != nil {
		return err
	}
	var t berth.Trace
	if err := json.Unmarshal(o.Body, &t); err != nil {
		return fmt.Errorf("decode trace: %w", err)
	}
	room := max(0, berth.MaxTraceSpans-t.Spans)
	dropped := max(0, len(spans)-room)
	added, err := h.save(r, c, id, spans[:len(spans)-dropped])
	if err != nil {
		return err
	}
	return h.change(r, c, id, func(t *berth.Trace) {
		t.Dropped += dropped
		for _, s := range added {
			count(t, s)
		}
	})
}

// save saves spans and returns those that were not saved before.
func (h *traces) save(r *http.Request, c berth.Caller, id string, spans []*berth.TraceSpan) (added []*berth.TraceSpan,
	err error) {
	objects := make([]*store.Object, len(spans))
	for i, s := range spans {
		body, err := json.Marshal(s)
		if err != nil {
			return nil, fmt.Errorf("encode span: %w", err)
		}
		objects[i] = &store.Object{ObjectKey: store.ObjectKey{Kind: store.KindTraceSpan, Parent: id, ID: s.ID},
			CreatedAt: time.Now().Unix(), Body: body}
	}
	err = h.objects.CreateObjects(r.Context(), c.Project, objects...)
	if !errors.Is(err, store.ErrExists) {
		return spans, ignoreGone(err)
	}
	for i, o := range objects {
		switch err := h.objects.CreateObjects(r.Context(), c.Project, o); {
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

// spanOf returns a span as it is stored.
func spanOf(it *tracedItem) *berth.TraceSpan {
	s := &berth.TraceSpan{ID: it.ID, Object: "trace.span", TraceID: it.TraceID, ParentID: it.ParentID,
		StartedAt: it.StartedAt, EndedAt: it.EndedAt, SpanData: it.SpanData}
	if string(it.Error) != "null" {
		s.Error = it.Error
	}
	for _, at := range []**string{&s.StartedAt, &s.EndedAt} {
		if _, ok := milliseconds(*at); !ok {
			*at = nil // it cannot be placed
		}
	}
	if len(s.SpanData)+len(s.Error) <= berth.MaxSpanData {
		return s
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
	return s
}

// list serves GET /v1/traces, the newest first.
func (h *traces) list(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	q := exchange.NewQuery(r)
	page := q.Page(20, 100)
	if err := q.End(); err != nil {
		return err
	}
	return listObjects(h.objects, x, r, c, store.ObjectKey{Kind: store.KindTrace}, page, func(t *berth.Trace) string {
		return t.ID
	})
}

// get serves GET /v1/traces/{trace}.
func (h *traces) get(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	o, err := h.objects.GetObject(r.Context(), c.Project, traceKey(r.PathValue("trace")))
	if err != nil {
		return traceError(r, err)
	}
	var t berth.Trace
	if err := json.Unmarshal(o.Body, &t); err != nil {
		return fmt.Errorf("decode trace: %w", err)
	}
	return x.JSON(http.StatusOK, &t)
}

// listSpans serves GET /v1/traces/{trace}/spans, in the order in which they were sent by default.
func (h *traces) listSpans(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	trace := r.PathValue("trace")
	q := exchange.NewQuery(r)
	page := q.PageAscending()
	if err := q.End(); err != nil {
		return err
	}
	if _, err := h.objects.GetObject(r.Context(), c.Project, traceKey(trace)); err != nil {
		return traceError(r, err)
	}
	return listObjects(h.objects, x, r, c, store.ObjectKey{Kind: store.KindTraceSpan, Parent: trace}, page,
		func(s *berth.TraceSpan) string {
			return s.ID
		})
}

// delete serves DELETE /v1/traces/{trace}: it deletes the trace with its spans.
func (h *traces) delete(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	id := r.PathValue("trace")
	if err := h.objects.DeleteObject(r.Context(), c.Project, traceKey(id)); err != nil {
		return traceError(r, err)
	}
	return x.JSON(http.StatusOK, exchange.Deleted(id, "trace.deleted"))
}

func traceError(r *http.Request, err error) error {
	if errors.Is(err, store.ErrNotFound) {
		return berth.NotFound("Trace", rule.Clip(r.PathValue("trace")))
	}
	return err
}

// listObjects answers with a page of the objects of a kind.
func listObjects[T any](objects store.Objects, x *exchange.Exchange, r *http.Request, c berth.Caller,
	of store.ObjectKey, page store.Page, id func(*T) string) error {
	found, more, err := objects.ListObjects(r.Context(), c.Project, of.Kind, of.Parent, page)
	if err != nil {
		return exchange.ListError(err, page)
	}
	data := make([]*T, len(found))
	for i, o := range found {
		data[i] = new(T)
		if err := json.Unmarshal(o.Body, data[i]); err != nil {
			return fmt.Errorf("decode %s: %w", of.Kind, err)
		}
	}
	return x.JSON(http.StatusOK, exchange.ListOf(data, more, id))
}
