package api

import (
	"net/http"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/exchange"
)

// compact serves POST /v1/responses/compact.
func (h *storedResponses) compact(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	var req berth.ResponseRequest
	if err := x.Decode(r, h.rules.Compact, &req); err != nil {
		return err
	}
	if err := h.rules.Complete(&req); err != nil {
		return err
	}
	compacted, err := h.engine.Compact(r.Context(), c, &req)
	if err != nil {
		return err
	}
	return x.JSON(http.StatusOK, compacted)
}
