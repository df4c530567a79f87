package api

import (
	"net/http"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/exchange"
	"github.com/berth-run/berth/container"
	"github.com/berth-run/berth/internal/rule"
)

// snapshotBody checks the body of POST /v1/containers/{container}/snapshots and of /fork.
var snapshotBody = rule.Object(rule.Fields{"name": rule.Text(1, 256), "memory": rule.Boolean})

// createSnapshot serves POST /v1/containers/{container}/snapshots.
func (s *server) createSnapshot(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	var body container.SnapshotRequest
	if err := x.DecodeOptional(r, snapshotBody, &body); err != nil {
		return err
	}
	kept, err := s.Containers.Snapshot(r.Context(), c.Project, containerID(r), body)
	if err != nil {
		return err
	}
	return x.JSON(http.StatusOK, kept)
}

// listSnapshots serves GET /v1/snapshots.
func (s *server) listSnapshots(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	q := exchange.NewQuery(r)
	page := q.Page(20, 100)
	if err := q.End(); err != nil {
		return err
	}
	data, more, err := s.Snapshots.List(r.Context(), c.Project, page)
	if err != nil {
		return exchange.ListError(err, page)
	}
	return x.JSON(http.StatusOK, exchange.ListOf(data, more, func(s *berth.Snapshot) string { return string(s.ID) }))
}

// getSnapshot serves GET /v1/snapshots/{snapshot}.
func (s *server) getSnapshot(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	kept, err := s.Snapshots.Get(r.Context(), c.Project, snapshotID(r))
	if err != nil {
		return err
	}
	return x.JSON(http.StatusOK, kept)
}

// deleteSnapshot serves DELETE /v1/snapshots/{snapshot}.
func (s *server) deleteSnapshot(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	if err := s.Snapshots.Delete(r.Context(), c.Project, snapshotID(r)); err != nil {
		return err
	}
	return x.JSON(http.StatusOK, exchange.Deleted(snapshotID(r), "container.snapshot.deleted"))
}

// forkContainer serves POST /v1/containers/{container}/fork.
func (s *server) forkContainer(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	var body container.SnapshotRequest
	if err := x.DecodeOptional(r, snapshotBody, &body); err != nil {
		return err
	}
	container, err := s.Containers.Fork(r.Context(), c, containerID(r), body)
	if err != nil {
		return err
	}
	return x.JSON(http.StatusOK, container)
}

// pauseContainer serves POST /v1/containers/{container}/pause.
func (s *server) pauseContainer(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	container, err := s.Containers.Pause(r.Context(), c.Project, containerID(r))
	if err != nil {
		return err
	}
	return x.JSON(http.StatusOK, container)
}

// resumeContainer serves POST /v1/containers/{container}/resume.
func (s *server) resumeContainer(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	container, err := s.Containers.Resume(r.Context(), c.Project, containerID(r))
	if err != nil {
		return err
	}
	return x.JSON(http.StatusOK, container)
}

// snapshotID returns the snapshot that the path names.
func snapshotID(r *http.Request) berth.SnapshotID {
	return berth.SnapshotID(r.PathValue("snapshot"))
}
