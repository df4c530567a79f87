package api

import (
	"cmp"
	"net/http"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/exchange"
	"github.com/berth-run/berth/store"
)

// costsResult is the cost of a group. Models without a price count as free.
type costsResult struct {
	Object       string     `json:"object"`
	Amount       berth.Cost `json:"amount"`
	LineItem     *string    `json:"line_item"` // UPSTREAM/MODEL
	ProjectID    *string    `json:"project_id"`
	APIKeyID     *string    `json:"api_key_id"`
	Quantity     *int64     `json:"quantity"`      // tokens of a line item
	QuantityUnit *string    `json:"quantity_unit"` // "tokens"
}

// costs serves GET /v1/organization/costs: the cost of turns according to the price table
// of the configuration. A key sees its own project only.
func (h *usage) costs(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	return h.answer(x, r, c, store.UsageUpstream, []string{"project_id", "line_item", "api_key_id"},
		func(group []string, used []*store.Usage) any {
			res := &costsResult{Object: "organization.costs.result", ProjectID: exchange.OrNull(group[0]),
				APIKeyID: exchange.OrNull(group[1]), LineItem: exchange.OrNull(group[2])}
			res.Amount.Currency = cmp.Or(h.currency, "usd")
			var tokens int64
			for _, of := range used {
				res.Amount.Value += of.Cost
				tokens += of.InputTokens + of.OutputTokens
			}
			if res.LineItem != nil {
				res.Quantity, res.QuantityUnit = &tokens, exchange.OrNull("tokens")
			}
			return res
		})
}
