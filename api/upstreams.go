package api

import (
	"net/http"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/exchange"
)

// upstreams serves GET /v1/upstreams. Only the operator, whose keys belong to the default
// project, may use it; to others it answers 404.
func (h *models) upstreams(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	if c.Project != berth.DefaultProject {
		return berth.Errorf(berth.CodeNotFound, "This server does not serve %s %s.", r.Method, r.URL.Path)
	}
	all := []berth.Upstream{}
	if h.statuses != nil {
		all = h.statuses()
	}
	return x.JSON(http.StatusOK, upstreamList{"list", all})
}

type upstreamList struct {
	Object string           `json:"object"` // "list"
	Data   []berth.Upstream `json:"data"`
}
