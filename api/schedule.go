package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/exchange"
	"github.com/berth-run/berth/api/request"
	"github.com/berth-run/berth/container"
	"github.com/berth-run/berth/internal/rule"
	"github.com/berth-run/berth/journal"
	"github.com/berth-run/berth/responses"
	"github.com/berth-run/berth/schedules"
)

// storedSchedules serves schedules.
type storedSchedules struct {
	service    *schedules.Service
	rules      *request.Rules
	exchange   *exchange.Server
	containers *container.Service
}

// routes are the routes of schedules.
func (h *storedSchedules) routes() []exchange.Route {
	on := exchange.On
	return []exchange.Route{
		on("POST /v1/schedules", h.create),
		on("GET /v1/schedules", h.list, exchange.ReadsQuery),
		on("GET /v1/schedules/{schedule}", h.get),
		on("POST /v1/schedules/{schedule}", h.update),
		on("DELETE /v1/schedules/{schedule}", h.delete),
		on("POST /v1/schedules/{schedule}/run", h.run),
		on("GET /v1/schedules/{schedule}/runs", h.listRuns, exchange.ReadsQuery),
	}
}

// scheduleBody returns the rule for a schedule.
func (h *storedSchedules) scheduleBody(required ...string) rule.Rule {
	return rule.Object(rule.Fields{"name": rule.Text(1, 256), "cron": rule.Text(1, 256),
		"interval_seconds": rule.Integer(60, 366*24*60*60), "time_zone": rule.Text(1, 64),
		"missed":    rule.OneOf(schedules.MissedSkip, schedules.MissedRunOnce),
		"overlap":   rule.OneOf(schedules.OverlapSkip, schedules.OverlapQueue, schedules.OverlapReplace),
		"status":    rule.OneOf(string(schedules.Active), string(schedules.Paused)),
		"container": rule.Text(0, 256), "request": h.rules.Create, "ends_at": rule.Integer(0, 1<<40),
		"limits":   rule.Object(rule.Fields{"runs": rule.Integer(1, 1e9), "cost": rule.Decimal(0.000000001, 1e9)}),
		"metadata": rule.Metadata}, required...)
}

// A scheduleRequest is the body of POST /v1/schedules.
type scheduleRequest struct {
	Name            *string           `json:"name"`             // default: the id
	Cron            *string           `json:"cron"`             // five fields, or such as @daily
	IntervalSeconds *int64            `json:"interval_seconds"` // in place of cron; at least 60
	TimeZone        *string           `json:"time_zone"`        // of cron; default UTC
	Missed          *string           `json:"missed"`           // skip (default) or run_once
	Overlap         *string           `json:"overlap"`          // skip (default), queue or cancel_previous
	Status          *schedules.Status `json:"status"`           // active (default) or paused
	Container       *string           `json:"container"`        // id or name of the container in which tools run
	Request         json.RawMessage   `json:"request"`          // the body of POST /v1/responses
	EndsAt          *int64            `json:"ends_at"`          // Unix seconds; 0: never (default)
	Limits          *schedules.Limits `json:"limits"`
	Metadata        map[string]string `json:"metadata"`
}

// decode reads a body, and checks what the schedule will do: with the rules of POST /v1/responses, and with what the
// caller may do now.
func (h *storedSchedules) decode(x *exchange.Exchange, r *http.Request, c berth.Caller,
	required ...string) (schedules.Change, error) {
	var body scheduleRequest
	if err := x.Decode(r, h.scheduleBody(required...), &body); err != nil {
		return schedules.Change{}, err
	}
	change := schedules.Change{Name: body.Name, Status: body.Status, Cron: body.Cron,
		IntervalSeconds: body.IntervalSeconds, TimeZone: body.TimeZone, Missed: body.Missed, Overlap: body.Overlap,
		Container: body.Container, Limits: body.Limits, EndsAt: body.EndsAt, Metadata: body.Metadata}
	if body.Request == nil || string(body.Request) == "null" {
		return change, nil
	}
	if _, err := h.exchange.Readmit(r.Context(), c, permissions[createsResponse], createsResponse); err != nil {
		return change, err
	}
	var req berth.ResponseRequest
	err := json.Unmarshal(body.Request, &req)
	if err != nil {
		return change, fmt.Errorf("decode a checked request: %w", err)
	}
	if req.Model == "" && req.Prompt == nil {
		return change, rule.Missing("request.model")
	}
	if err = h.rules.Complete(&req); err != nil {
		if e, ok := errors.AsType[*berth.Error](err); ok && e.Param != "" {
			within := *e
			within.Param = rule.Join("request", e.Param)
			return change, &within
		}
		return change, err
	}
	for _, t := range req.Tools {
		if err := c.CheckTool(t.Type()); err != nil {
			return change, err
		}
	}
	change.Request, err = schedules.Ready(body.Request)
	return change, err
}

// createsResponse is the route with which schedules run.
const createsResponse = "POST /v1/responses"

// create serves POST /v1/schedules.
func (h *storedSchedules) create(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	change, err := h.decode(x, r, c, "request")
	if err != nil {
		return err
	}
	s, err := h.service.Create(r.Context(), c, change)
	if err != nil {
		return err
	}
	return x.JSON(http.StatusOK, s)
}

// list serves GET /v1/schedules, the newest first.
func (h *storedSchedules) list(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	return exchange.List(x, r, c, h.service.List, func(s *schedules.Schedule) string { return string(s.ID) })
}

// scheduleID returns the id of the request's path.
func scheduleID(r *http.Request) berth.ScheduleID { return berth.ScheduleID(r.PathValue("schedule")) }

// get serves GET /v1/schedules/{schedule}.
func (h *storedSchedules) get(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	return exchange.Get(x, r, c, h.service.Get, scheduleID(r))
}

// update serves POST /v1/schedules/{schedule}.
func (h *storedSchedules) update(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	change, err := h.decode(x, r, c)
	if err != nil {
		return err
	}
	s, err := h.service.Update(r.Context(), c, scheduleID(r), change)
	if err != nil {
		return err
	}
	return x.JSON(http.StatusOK, s)
}

// delete serves DELETE /v1/schedules/{schedule}.
func (h *storedSchedules) delete(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	id := scheduleID(r)
	if err := h.service.Delete(r.Context(), c, id); err != nil {
		return err
	}
	return x.JSON(http.StatusOK, exchange.Deleted(id, "schedule.deleted"))
}

// run serves POST /v1/schedules/{schedule}/run: it adds a run now.
func (h *storedSchedules) run(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	run, err := h.service.Start(r.Context(), c, scheduleID(r))
	if err != nil {
		return err
	}
	return x.JSON(http.StatusOK, run)
}

// listRuns serves GET /v1/schedules/{schedule}/runs, the newest first.
func (h *storedSchedules) listRuns(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	list := func(ctx context.Context, p berth.ProjectID, page berth.Page) ([]*schedules.Run, bool, error) {
		return h.service.ListRuns(ctx, p, scheduleID(r), page)
	}
	return exchange.List(x, r, c, list, func(run *schedules.Run) string { return string(run.ID) })
}

// connectSchedules makes schedules create responses with the routes of the API.
func connectSchedules(o Options, ex *exchange.Server, serve func(x *exchange.Exchange, r *http.Request)) {
	if o.Schedules != nil {
		o.Schedules.Connect(&scheduledResponses{exchange: ex, serve: serve, journal: o.Journal,
			store: o.Rooms.Responses, containers: o.Containers})
	}
}

// scheduledResponses creates responses like requests of clients: with the same checks, limits, log and metrics.
type scheduledResponses struct {
	exchange   *exchange.Server
	serve      func(x *exchange.Exchange, r *http.Request)
	journal    *journal.Journal
	store      *responses.Store
	containers *container.Service
}

// post executes a POST for a caller.
func (s *scheduledResponses) post(ctx context.Context, c berth.Caller, path string, body []byte,
	once string) schedules.Answer {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, path, bytes.NewReader(body))
	if err != nil {
		return schedules.Answer{Status: http.StatusInternalServerError, Message: err.Error(), Final: true}
	}
	r.Header.Set("Content-Type", "application/json")
	if once != "" {
		r.Header.Set("Idempotency-Key", once)
	}
	w := &recorder{header: http.Header{}}
	func() {
		defer func() { _ = recover() }() // As has logged the panic; the answer is incomplete
		s.exchange.As(c, w, r, func(x *exchange.Exchange, r *http.Request) {
			s.serve(x, r)
			w.complete = true
		})
	}()
	recorded := w.answer()
	answer := schedules.Answer{Status: recorded.Status, RetryAfter: recorded.RetryAfter, Final: recorded.Final}
	var read struct {
		ID    berth.ResponseID
		Error *struct{ Message string }
	}
	_ = json.Unmarshal(recorded.Body, &read) // without a body, the status tells
	switch {
	case answer.Status/100 == 2:
		answer.Response = read.ID
	case read.Error != nil && read.Error.Message != "":
		answer.Message = read.Error.Message
	default:
		answer.Message = fmt.Sprintf("status %d", answer.Status)
	}
	return answer
}

// Create implements schedules.Responses.
func (s *scheduledResponses) Create(ctx context.Context, c berth.Caller, body []byte, once string) schedules.Answer {
	return s.post(ctx, c, "/v1/responses", body, once)
}

// Cancel implements schedules.Responses.
func (s *scheduledResponses) Cancel(ctx context.Context, c berth.Caller, id berth.ResponseID) error {
	answer := s.post(ctx, c, "/v1/responses/"+url.PathEscape(string(id))+"/cancel", nil, "")
	if answer.Status/100 == 2 {
		return nil
	}
	return fmt.Errorf("cancel response: %s", answer.Message)
}

// Await implements schedules.Responses.
func (s *scheduledResponses) Await(ctx context.Context, p berth.ProjectID, id berth.ResponseID) (*berth.Response,
	error) {
	for _, err := range s.journal.FollowPages(ctx, p, id, -1) {
		if err != nil {
			return nil, fmt.Errorf("follow response: %w", err)
		}
	}
	rec, err := s.store.Get(ctx, p, id)
	if err != nil {
		return nil, err
	}
	return rec.Body, nil
}

// Place implements schedules.Responses.
func (s *scheduledResponses) Place(ctx context.Context, p berth.ProjectID, body []byte, ref string) ([]byte, error) {
	id, err := s.find(ctx, p, ref)
	if err != nil {
		return nil, err
	}
	var fields map[string]json.RawMessage
	var tools []map[string]json.RawMessage
	if err := json.Unmarshal(body, &fields); err != nil {
		return nil, fmt.Errorf("decode request: %w", err)
	}
	if raw, ok := fields["tools"]; ok {
		if err := json.Unmarshal(raw, &tools); err != nil {
			return nil, fmt.Errorf("decode tools: %w", err)
		}
	}
	reference, err := json.Marshal(map[string]any{"type": berth.EnvironmentReference, "container_id": id})
	if err != nil {
		return nil, fmt.Errorf("encode tools: %w", err)
	}
	placed := false
	for _, t := range tools {
		switch string(t["type"]) {
		case `"shell"`:
			t["environment"], placed = reference, true
		case `"code_interpreter"`:
			t["container"], placed = json.RawMessage(`"`+string(id)+`"`), true
		}
	}
	if !placed {
		return nil, berth.Invalid("container", "The request has no tool that runs in a container.")
	}
	if fields["tools"], err = json.Marshal(tools); err == nil {
		body, err = json.Marshal(fields)
	}
	if err != nil {
		return nil, fmt.Errorf("encode request: %w", err)
	}
	return body, nil
}

// find returns the running container of a project with an id or a name.
func (s *scheduledResponses) find(ctx context.Context, p berth.ProjectID, ref string) (berth.ContainerID, error) {
	missing := berth.Errorf(berth.CodeNotFound, "No container '%s' runs.", rule.Clip(ref))
	if strings.HasPrefix(ref, berth.PrefixContainer) {
		c, err := s.containers.Get(ctx, p, berth.ContainerID(ref))
		if err == nil && c.Status != berth.ContainerRunning {
			err = missing
		}
		if err != nil {
			return "", err
		}
		return c.ID, nil
	}
	list, _, err := s.containers.List(ctx, p, ref, berth.Page{Limit: 100})
	if err != nil {
		return "", err
	}
	for _, c := range list {
		if c.Status == berth.ContainerRunning {
			return c.ID, nil
		}
	}
	return "", missing
}
