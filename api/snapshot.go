package api

import (
	"net/http"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/exchange"
	"github.com/berth-run/berth/container"
	"github.com/berth-run/berth/container/snapshot"
	"github.com/berth-run/berth/internal/rule"
)

// snapshots serves snapshots of containers.
type snapshots struct{ service *snapshot.Service }

// Rules for the bodies of POST /v1/containers/{container}/snapshots and of /fork.
var (
	snapshotBody = rule.Object(rule.Fields{"name": rule.Text(1, 256), "memory": rule.Boolean})
	forkBody     = rule.Object(rule.Fields{"name": rule.Text(1, 256), "memory": rule.Boolean,
		"unique_name": rule.Boolean})
	forksBody = rule.Object(rule.Fields{"name": rule.Text(1, 256), "memory": rule.Boolean,
		"unique_name": rule.Boolean, "count": rule.Integer(1, container.MaxForks)}, "count")
)

// snapshot serves POST /v1/containers/{container}/snapshots.
func (h *containers) snapshot(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	var body container.SnapshotRequest
	if err := x.DecodeOptional(r, snapshotBody, &body); err != nil {
		return err
	}
	kept, err := h.service.Snapshots().Take(r.Context(), c.Project, containerID(r), body)
	if err != nil {
		return err
	}
	return x.JSON(http.StatusOK, kept)
}

// list serves GET /v1/snapshots.
func (h *snapshots) list(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	return exchange.List(x, r, c, h.service.List, func(s *berth.Snapshot) string { return string(s.ID) })
}

// get serves GET /v1/snapshots/{snapshot}.
func (h *snapshots) get(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	return exchange.Get(x, r, c, h.service.Get, snapshotID(r))
}

// delete serves DELETE /v1/snapshots/{snapshot}.
func (h *snapshots) delete(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	return exchange.Delete(x, r, c, h.service.Delete, snapshotID(r), "container.snapshot.deleted")
}

// A forksRequest is the body of a request for several forks.
type forksRequest struct {
	container.ForkRequest
	Count int `json:"count"`
}

// forks serves POST /v1/containers/{container}/forks.
func (h *containers) forks(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	var body forksRequest
	if err := x.Decode(r, forksBody, &body); err != nil {
		return err
	}
	forks, err := h.service.Forker().ForkAll(r.Context(), c, containerID(r), body.ForkRequest, body.Count)
	if err != nil {
		return err
	}
	id := func(c *berth.Container) string { return string(c.ID) }
	return x.JSON(http.StatusOK, exchange.ListOf(forks, false, id))
}

// fork serves POST /v1/containers/{container}/fork.
func (h *containers) fork(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	var body container.ForkRequest
	if err := x.DecodeOptional(r, forkBody, &body); err != nil {
		return err
	}
	container, err := h.service.Fork(r.Context(), c, containerID(r), body)
	if err != nil {
		return err
	}
	return x.JSON(http.StatusOK, container)
}

// pause serves POST /v1/containers/{container}/pause.
func (h *containers) pause(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	container, err := h.service.Pause(r.Context(), c.Project, containerID(r))
	if err != nil {
		return err
	}
	return x.JSON(http.StatusOK, container)
}

// resume serves POST /v1/containers/{container}/resume.
func (h *containers) resume(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	container, err := h.service.Resume(r.Context(), c.Project, containerID(r))
	if err != nil {
		return err
	}
	return x.JSON(http.StatusOK, container)
}

// snapshotID returns the snapshot id of the request's path.
func snapshotID(r *http.Request) berth.SnapshotID {
	return berth.SnapshotID(r.PathValue("snapshot"))
}
