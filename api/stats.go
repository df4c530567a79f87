package api

import (
	"net/http"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/exchange"
)

// stats serves GET /v1/containers/{container}/stats.
func (h *containers) stats(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	return exchange.Get(x, r, c, h.service.Stats, containerID(r))
}

// A statsHistory is the resource usage of a container over its life, the oldest sample first.
type statsHistory struct {
	Object string              `json:"object"` // "list"
	Data   []berth.StatsSample `json:"data"`
}

// statsHistory serves GET /v1/containers/{container}/stats/history.
func (h *containers) statsHistory(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	samples, err := h.service.StatsHistory(r.Context(), c.Project, containerID(r))
	if err != nil {
		return err
	}
	return x.JSON(http.StatusOK, statsHistory{"list", samples})
}
