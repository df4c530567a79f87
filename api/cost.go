package api

import (
	"cmp"
	"net/http"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/exchange"
	"github.com/berth-run/berth/usage"
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
func (h *usagePages) costs(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	return h.answer(x, r, c, usage.Upstreams, []string{usage.ByProject, usage.ByLineItem, usage.ByKey},
		func(of *usage.Group) any {
			res := &costsResult{Object: "organization.costs.result", ProjectID: exchange.OrNull(of.Project),
				APIKeyID: exchange.OrNull(of.Key), LineItem: exchange.OrNull(of.Name),
				Amount: berth.Cost{Value: of.Cost, Currency: cmp.Or(h.currency, "usd")}}
			if res.LineItem != nil {
				res.Quantity, res.QuantityUnit = new(of.InputTokens+of.OutputTokens), exchange.OrNull("tokens")
			}
			return res
		})
}
