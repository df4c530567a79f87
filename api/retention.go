package api

import (
	"net/http"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/exchange"
	"github.com/berth-run/berth/internal/rule"
	"github.com/berth-run/berth/retention"
)

// retained serves the retention of projects and their legal holds.
type retained struct {
	service *retention.Service
	admin   *admin
}

// maxRetention bounds times, in seconds: a hundred years.
const maxRetention = 100 * 365 * 24 * 3600

var (
	retentionBody = rule.Object(rule.Fields{"expire_after": rule.Object(retentionFields()), "store": rule.Boolean})
	holdBody      = rule.Object(rule.Fields{"reason": rule.Text(1, 512), "end_user": rule.Text(1, 256),
		"object_id": rule.Text(1, 256)}, "reason")
)

func retentionFields() rule.Fields {
	fields := rule.Fields{}
	for _, kind := range berth.RetainedKinds {
		fields[string(kind)] = rule.Integer(1, maxRetention)
	}
	return fields
}

// A retentionRequest replaces what a project sets for itself.
type retentionRequest struct {
	ExpireAfter map[berth.Retained]int64 `json:"expire_after"` // seconds, at most the server's
	Store       *bool                    `json:"store"`        // false: never store responses and chat completions
}

// A holdRequest is the body of a request for a hold. Without end_user and object_id, the hold is of the whole project.
type holdRequest struct {
	Reason   string          `json:"reason"`
	EndUser  berth.EndUserID `json:"end_user"`
	ObjectID string          `json:"object_id"`
}

// routes returns the routes of retention and holds.
func (h *retained) routes() []exchange.Route {
	const reads, changes = exchange.ReadsQuery, exchange.StoresNothing | exchange.StoresLittle
	on := exchange.On
	return []exchange.Route{
		on("GET /v1/retention", h.get),
		on("POST /v1/retention", h.set, changes),
		on("GET /v1/retention/records", h.listRecords, reads),
		on("GET /v1/retention/records/{record}", h.getRecord),
		on("POST /v1/holds", h.createHold, changes),
		on("GET /v1/holds", h.listHolds, reads),
		on("GET /v1/holds/{hold}", h.getHold),
		on("DELETE /v1/holds/{hold}", h.releaseHold),
		on("POST /v1/organization/projects/{project}/holds", h.createHold, changes),
		on("GET /v1/organization/projects/{project}/holds", h.listHolds, reads),
		on("DELETE /v1/organization/projects/{project}/holds/{hold}", h.releaseHold),
	}
}

// get serves GET /v1/retention.
func (h *retained) get(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	got, err := h.service.Get(r.Context(), c.Project)
	if err != nil {
		return err
	}
	return x.JSON(http.StatusOK, got)
}

// set serves POST /v1/retention.
func (h *retained) set(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	var req retentionRequest
	if err := x.Decode(r, retentionBody, &req); err != nil {
		return err
	}
	got, err := h.service.Set(r.Context(), c, berth.RetentionSettings{ExpireAfter: req.ExpireAfter, Store: req.Store})
	if err != nil {
		return err
	}
	return x.JSON(http.StatusOK, got)
}

// listRecords serves GET /v1/retention/records, the newest first.
func (h *retained) listRecords(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	q := exchange.NewQuery(r)
	page := q.Page(20, 100)
	if err := q.End(); err != nil {
		return err
	}
	data, more, err := h.service.Records(r.Context(), c.Project, page)
	if err != nil {
		return exchange.ListError(err, page)
	}
	return x.JSON(http.StatusOK, exchange.ListOf(data, more, func(r *berth.RetentionRecord) string { return r.ID }))
}

// getRecord serves GET /v1/retention/records/{record}.
func (h *retained) getRecord(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	return exchange.Get(x, r, c, h.service.Record, r.PathValue("record"))
}

// project returns the project of a request for holds: that of the path, or the caller's.
func (h *retained) project(r *http.Request, c berth.Caller) (berth.ProjectID, error) {
	if r.PathValue("project") == "" {
		return c.Project, nil
	}
	p, err := h.admin.known(r.Context(), r)
	if err != nil {
		return "", err
	}
	return p.ID, nil
}

// createHold serves POST /v1/holds, and that route of the organization.
func (h *retained) createHold(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	var req holdRequest
	if err := x.Decode(r, holdBody, &req); err != nil {
		return err
	}
	p, err := h.project(r, c)
	if err != nil {
		return err
	}
	made, err := h.service.Holds.Create(r.Context(), p, c, berth.Hold{Reason: req.Reason, EndUser: req.EndUser,
		ObjectID: req.ObjectID})
	if err != nil {
		return err
	}
	return x.JSON(http.StatusOK, made)
}

// listHolds serves GET /v1/holds, the newest first, and that route of the organization.
func (h *retained) listHolds(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	q := exchange.NewQuery(r)
	page := q.Page(20, 100)
	if err := q.End(); err != nil {
		return err
	}
	p, err := h.project(r, c)
	if err != nil {
		return err
	}
	data, more, err := h.service.Holds.List(r.Context(), p, page)
	if err != nil {
		return exchange.ListError(err, page)
	}
	return x.JSON(http.StatusOK, exchange.ListOf(data, more, func(h *berth.Hold) string { return string(h.ID) }))
}

// getHold serves GET /v1/holds/{hold}.
func (h *retained) getHold(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	return exchange.Get(x, r, c, h.service.Holds.Get, berth.HoldID(r.PathValue("hold")))
}

// releaseHold serves DELETE /v1/holds/{hold}, and that route of the organization.
func (h *retained) releaseHold(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	p, err := h.project(r, c)
	if err != nil {
		return err
	}
	id := berth.HoldID(r.PathValue("hold"))
	if err := h.service.Holds.Release(r.Context(), p, c, id); err != nil {
		return err
	}
	return x.JSON(http.StatusOK, exchange.Deleted(id, "hold.deleted"))
}
