package api

import (
	"context"
	"math"
	"net/http"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/exchange"
	"github.com/berth-run/berth/enduser"
	"github.com/berth-run/berth/internal/rule"
)

// endUsers serves the end users of projects.
type endUsers struct{ service *enduser.Service }

var (
	endUserLimits = rule.Fields{"containers": rule.Integer(-1, math.MaxInt32), "cost_per_month": costRule}

	endUserChange = rule.Object(rule.Fields{"limits": rule.Object(endUserLimits)}, "limits")
	endUserSet    = rule.Object(rule.Fields{"enabled": rule.Boolean, "limits": rule.Object(endUserLimits),
		"computer": rule.OneOf("none", "chat", "user")})
)

// endUserRequest is the body of a request that changes a user.
type endUserRequest struct {
	Limits berth.EndUserLimits `json:"limits"`
}

// endUserSettings is the body of a request that replaces the settings of a project.
type endUserSettings struct {
	Enabled *bool               `json:"enabled"`
	Limits  berth.EndUserLimits `json:"limits"`

	// Computer selects the container of a request that names an end user and no container.
	Computer berth.EndUserComputer `json:"computer"`
}

// routes returns the routes of end users.
func (h *endUsers) routes() []exchange.Route {
	const reads, changes = exchange.ReadsQuery, exchange.StoresNothing | exchange.StoresLittle
	on := exchange.On
	return []exchange.Route{
		on("GET /v1/end_users", h.list, reads),
		on("GET /v1/end_users/{user}", h.get),
		on("POST /v1/end_users/{user}", h.update, changes),
		on("DELETE /v1/end_users/{user}", h.delete),
		on("GET /v1/end_users/{user}/objects", h.objects, reads),
		on("GET /v1/end_users/{user}/usage", h.usage, reads),
		on("GET /v1/end_user_settings", h.settings),
		on("POST /v1/end_user_settings", h.setSettings, changes),
	}
}

// endUserID returns the id of a user of the request's path.
func endUserID(r *http.Request) berth.EndUserID { return berth.EndUserID(r.PathValue("user")) }

// list serves GET /v1/end_users, the newest first.
func (h *endUsers) list(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	q := exchange.NewQuery(r)
	user := q.Text("user")
	page := q.Page(20, 100)
	if err := q.End(); err != nil {
		return err
	}
	data, more, err := h.service.List(r.Context(), c.Project, user, page)
	if err != nil {
		return exchange.ListError(err, page)
	}
	return x.JSON(http.StatusOK, exchange.ListOf(data, more, func(u *berth.EndUser) string { return string(u.ID) }))
}

// get serves GET /v1/end_users/{user}.
func (h *endUsers) get(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	return exchange.Get(x, r, c, h.service.Get, endUserID(r))
}

// update serves POST /v1/end_users/{user}.
func (h *endUsers) update(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	var req endUserRequest
	if err := x.Decode(r, endUserChange, &req); err != nil {
		return err
	}
	u, err := h.service.SetLimits(r.Context(), c.Project, endUserID(r), req.Limits)
	if err != nil {
		return err
	}
	return x.JSON(http.StatusOK, u)
}

// objects serves GET /v1/end_users/{user}/objects, the newest first.
func (h *endUsers) objects(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	list := func(ctx context.Context, p berth.ProjectID, page berth.Page) ([]*berth.EndUserObject, bool, error) {
		return h.service.Owned(ctx, p, endUserID(r), page)
	}
	return exchange.List(x, r, c, list, func(o *berth.EndUserObject) string { return o.Link })
}

// usage serves GET /v1/end_users/{user}/usage, of a month.
func (h *endUsers) usage(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	q := exchange.NewQuery(r)
	month := q.Text("month")
	if err := q.End(); err != nil {
		return err
	}
	at := time.Now()
	if month != "" {
		var err error
		if at, err = time.Parse("2006-01", month); err != nil {
			return berth.Invalid("month", "Invalid 'month': expected a month such as 2026-11.")
		}
	}
	u, err := h.service.Usage(r.Context(), c.Project, endUserID(r), at)
	if err != nil {
		return err
	}
	return x.JSON(http.StatusOK, u)
}

// delete serves DELETE /v1/end_users/{user}: it deletes all that belongs to the user.
func (h *endUsers) delete(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	done, err := h.service.Forget(r.Context(), c, endUserID(r))
	if err != nil {
		return err
	}
	return x.JSON(http.StatusOK, done)
}

// settings serves GET /v1/end_user_settings.
func (h *endUsers) settings(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	s, err := h.service.Settings(r.Context(), c.Project)
	if err != nil {
		return err
	}
	return x.JSON(http.StatusOK, s)
}

// setSettings serves POST /v1/end_user_settings.
func (h *endUsers) setSettings(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	var req endUserSettings
	if err := x.Decode(r, endUserSet, &req); err != nil {
		return err
	}
	s, err := h.service.SetSettings(r.Context(), c.Project, berth.EndUserSettings{Enabled: req.Enabled,
		Limits: req.Limits, Computer: req.Computer})
	if err != nil {
		return err
	}
	return x.JSON(http.StatusOK, s)
}

// own records that the end user of a caller owns a new object. If that fails, it deletes the object.
func (h *endUsers) own(ctx context.Context, c berth.Caller, id string, remove func(context.Context) error) error {
	if c.Subject == nil {
		return nil
	}
	c, err := h.service.Ensure(ctx, c)
	if err == nil {
		err = h.service.Own(ctx, c, id)
	}
	if err != nil {
		_ = remove(context.WithoutCancel(ctx)) // the client does not get its id
	}
	return err
}
