package api

import (
	"math"
	"net/http"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/exchange"
	"github.com/berth-run/berth/api/request"
	"github.com/berth-run/berth/container"
	"github.com/berth-run/berth/internal/rule"
)

// containerBody checks the body of POST /v1/containers.
var containerBody = rule.Object(rule.Fields{
	"name": rule.Text(1, 256),
	"expires_after": rule.Object(rule.Fields{
		"anchor": rule.OneOf("last_active_at"), "minutes": rule.Integer(1, math.MaxInt32),
	}, "anchor", "minutes"),
	"file_ids":       rule.List(rule.Text(1, 256), 50),
	"memory_limit":   request.MemoryLimit,
	"network_policy": rule.ByType(request.NetworkPolicies),
	"skills":         rule.UnsupportedUnlessEmpty,
	"berth":          request.ContainerSource,
}, "name")

// createContainer serves POST /v1/containers.
func (s *server) createContainer(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	var body struct {
		Name          string               `json:"name"`
		ExpiresAfter  *berth.ExpiresAfter  `json:"expires_after"`
		FileIDs       []berth.FileID       `json:"file_ids"`
		MemoryLimit   string               `json:"memory_limit"`
		NetworkPolicy *berth.NetworkPolicy `json:"network_policy"`

		Berth berth.ContainerSource `json:"berth"`
	}
	if err := x.Decode(r, containerBody, &body); err != nil {
		return err
	}
	req := container.CreateRequest{Name: body.Name, ExpiresAfter: body.ExpiresAfter, FileIDs: body.FileIDs,
		MemoryLimit: body.MemoryLimit, NetworkPolicy: body.NetworkPolicy, Source: body.Berth}
	container, err := s.Containers.Create(r.Context(), c, req)
	if err != nil {
		return err
	}
	return x.JSON(http.StatusOK, container)
}

// listContainers serves GET /v1/containers.
func (s *server) listContainers(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	q := exchange.NewQuery(r)
	name := q.Text("name")
	page := q.Page(20, 100)
	if err := q.End(); err != nil {
		return err
	}
	data, more, err := s.Containers.List(r.Context(), c.Project, name, page)
	if err != nil {
		return exchange.ListError(err, page)
	}
	return x.JSON(http.StatusOK, exchange.ListOf(data, more, func(c *berth.Container) string { return string(c.ID) }))
}

// getContainer serves GET /v1/containers/{container}.
func (s *server) getContainer(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	container, err := s.Containers.Get(r.Context(), c.Project, containerID(r))
	if err != nil {
		return err
	}
	return x.JSON(http.StatusOK, container)
}

// deleteContainer serves DELETE /v1/containers/{container}.
func (s *server) deleteContainer(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	if err := s.Containers.Delete(r.Context(), c.Project, containerID(r)); err != nil {
		return err
	}
	return x.JSON(http.StatusOK, exchange.Deleted(containerID(r), "container.deleted"))
}

// auditContainer serves GET /v1/containers/{container}/audit: what the audit record
// says of it, also after its deletion, the oldest first.
func (s *server) auditContainer(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	if err := exchange.NewQuery(r).End(); err != nil {
		return err
	}
	entries, checkpoint, err := s.Containers.History(r.Context(), c.Project, containerID(r))
	if err != nil {
		return err
	}
	return x.JSON(http.StatusOK, map[string]any{"object": "list", "data": entries, "checkpoint": checkpoint})
}

// containerID returns the container that the path names.
func containerID(r *http.Request) berth.ContainerID {
	return berth.ContainerID(r.PathValue("container"))
}
