package api

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/exchange"
	"github.com/berth-run/berth/enduser"
	"github.com/berth-run/berth/internal/rule"
	"github.com/berth-run/berth/traces"
)

// storedTraces serves the traces of OpenAI's Agents SDK.
type storedTraces struct {
	store *traces.Store
	users *endUsers
}

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

// ingest serves POST /v1/traces/ingest, to which OpenAI's Agents SDK sends traces and their spans in
// any number of requests. A span sent again is stored once.
func (h *storedTraces) ingest(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	var req ingestTracesRequest
	if err := x.Decode(r, ingestTracesBody, &req); err != nil {
		return err
	}
	spans := map[string][]*berth.TraceSpan{}
	for i := range req.Data {
		it := &req.Data[i]
		if it.Object == "trace" {
			if err := h.store.Start(r.Context(), c.Project, it.ID, it.describe); err != nil {
				return err
			}
			continue
		}
		spans[it.TraceID] = append(spans[it.TraceID], spanOf(it))
	}
	for id, of := range spans {
		if err := h.store.Start(r.Context(), c.Project, id, nil); err != nil { // its own request may have been lost
			return err
		}
		if err := h.store.Add(r.Context(), c.Project, id, of); err != nil {
			return err
		}
	}
	for i := range req.Data {
		it := &req.Data[i]
		if it.Object != "trace" { // the user of a trace is that of the request that describes it
			continue
		}
		err := h.users.own(r.Context(), c, enduser.PrefixTrace+it.ID, func(context.Context) error { return nil })
		if err != nil {
			return err // the client sends it again
		}
	}
	x.WriteHeader(http.StatusNoContent)
	return nil
}

// describe sets what a client sent about a trace.
func (it *tracedItem) describe(t *berth.Trace) {
	if it.WorkflowName != nil {
		t.WorkflowName = *it.WorkflowName
	}
	t.GroupID, t.Metadata = it.GroupID, it.Metadata
	if len(t.Metadata) > berth.MaxSpanData {
		t.Metadata = nil
	}
}

// spanOf returns the span of a request.
func spanOf(it *tracedItem) *berth.TraceSpan {
	s := &berth.TraceSpan{ID: it.ID, Object: "trace.span", TraceID: it.TraceID, ParentID: it.ParentID,
		StartedAt: it.StartedAt, EndedAt: it.EndedAt, SpanData: it.SpanData}
	if string(it.Error) != "null" {
		s.Error = it.Error
	}
	return s
}

// list serves GET /v1/traces, the newest first.
func (h *storedTraces) list(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	return exchange.List(x, r, c, h.store.List, func(t *berth.Trace) string { return t.ID })
}

// get serves GET /v1/traces/{trace}.
func (h *storedTraces) get(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	return exchange.Get(x, r, c, h.store.Get, r.PathValue("trace"))
}

// listSpans serves GET /v1/traces/{trace}/spans, in the order in which they were sent by default.
func (h *storedTraces) listSpans(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	trace := r.PathValue("trace")
	q := exchange.NewQuery(r)
	page := q.PageAscending()
	if err := q.End(); err != nil {
		return err
	}
	if _, err := h.store.Get(r.Context(), c.Project, trace); err != nil {
		return err
	}
	spans, more, err := h.store.Spans(r.Context(), c.Project, trace, page)
	if err != nil {
		return exchange.ListError(err, page)
	}
	return x.JSON(http.StatusOK, exchange.ListOf(spans, more, func(s *berth.TraceSpan) string { return s.ID }))
}

// delete serves DELETE /v1/traces/{trace}: it deletes the trace with its spans.
func (h *storedTraces) delete(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	return exchange.Delete(x, r, c, h.store.Delete, r.PathValue("trace"), "trace.deleted")
}
