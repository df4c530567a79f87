package api

import (
	"math"
	"net/http"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/exchange"
	"github.com/berth-run/berth/audit"
)

// listRefused serves GET /v1/refused_connections: the audit record's entries of connections of the project's containers
// that were refused, the newest first. Those of one container are among GET /v1/containers/{container}/audit.
func (h *record) listRefused(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	q := exchange.NewQuery(r)
	query := audit.Query{Project: c.Project, Action: audit.EgressRefused,
		Before: q.Integer("after", math.MaxInt64, 0, math.MaxInt64), Limit: int(q.Integer("limit", 20, 1, 100))}
	if err := q.End(); err != nil {
		return err
	}
	if c.Project == "" || h.log == nil {
		return berth.Errorf(berth.CodeNotFound, "This server does not serve %s %s.", r.Method, r.URL.Path)
	}
	return h.answer(x, r, query)
}
