package api

import (
	"net/http"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/exchange"
)

// stats serves GET /v1/containers/{container}/stats.
func (h *containers) stats(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	stats, err := h.service.Stats(r.Context(), c.Project, containerID(r))
	if err != nil {
		return err
	}
	return x.JSON(http.StatusOK, stats)
}
