package api

import (
	"context"
	"net/http"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/exchange"
)

// status serves GET /v1/organization/status: the state of the server, for admin keys and, as
// upstreams, for keys of the default project.
func (h *health) status(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	if !c.Admin() && c.Project != berth.DefaultProject || h.state == nil {
		return berth.Errorf(berth.CodeNotFound, "This server does not serve %s %s.", r.Method, r.URL.Path)
	}
	s := h.state(r.Context())
	s.Object, s.Version, s.Problems = "organization.status", h.build.Version, []string{}
	if h.ready != nil {
		for _, check := range h.ready(r.Context()) {
			if !check.OK {
				s.Problems = append(s.Problems, check.Message)
			}
		}
	}
	return x.JSON(http.StatusOK, s)
}

// A StatusFunc returns the state of the server, without what the API adds.
type StatusFunc func(context.Context) *berth.ServerStatus
