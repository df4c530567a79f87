package api

import (
	"net/http"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/exchange"
)

// countTokens serves POST /v1/responses/input_tokens.
func (h *storedResponses) countTokens(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	var req berth.ResponseRequest
	if err := x.Decode(r, h.rules.InputTokens, &req); err != nil {
		return err
	}
	if err := h.rules.Fill(&req); err != nil {
		return err
	}
	n, err := h.engine.CountTokens(r.Context(), c, &req)
	if err != nil {
		return err
	}
	return x.JSON(http.StatusOK, struct {
		Object      string `json:"object"`
		InputTokens int    `json:"input_tokens"`
	}{"response.input_tokens", n})
}
