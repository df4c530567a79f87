package api

import (
	"net/http"

	"github.com/berth-run/berth"
)

// containerStats serves GET /v1/containers/{container}/stats.
func (s *server) containerStats(w http.ResponseWriter, r *http.Request, c berth.Caller) error {
	if err := newQuery(r).end(); err != nil {
		return err
	}
	stats, err := s.Containers.Stats(r.Context(), c.Project, containerID(r))
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, stats)
}
