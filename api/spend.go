package api

import (
	"cmp"
	"net/http"
	"slices"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/exchange"
	"github.com/berth-run/berth/project"
)

// spend serves what projects and keys spend in a month, and may spend.
type spend struct {
	quota    *project.Quota // nil means that nothing is counted
	currency string
	priced   func() bool // whether any model has a price; nil means yes
}

// A spendObject is what a project or a key has spent in the present month on the wire.
type spendObject struct {
	ID          string          `json:"id"`     // the project's or the key's
	Object      string          `json:"object"` // "organization.spend"
	ProjectID   berth.ProjectID `json:"project_id"`
	APIKeyID    *string         `json:"api_key_id"` // null: of the whole project
	Used        berth.Cost      `json:"used"`
	Limit       *berth.Cost     `json:"limit"`        // null: no limit
	PeriodStart int64           `json:"period_start"` // of the month, UTC
	PeriodEnd   int64           `json:"period_end"`
	Warning     *string         `json:"warning"` // why the limit has no effect, or null
}

// list serves GET /v1/organization/spend: each project, followed by its keys. A key sees its
// own project only.
func (h *spend) list(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	q := exchange.NewQuery(r)
	projects := q.Strings("project_ids")
	page := q.PageAscending()
	if err := q.End(); err != nil {
		return err
	}
	of := c.Project
	if c.Admin() {
		of = ""
	}
	if h.quota == nil {
		return x.JSON(http.StatusOK, exchange.ListOf([]spendObject{}, false, func(o spendObject) string {
			return o.ID
		}))
	}
	spent, start, end, err := h.quota.Spending(r.Context(), of)
	if err != nil {
		return err
	}
	data := []spendObject{}
	currency := cmp.Or(h.currency, "usd")
	for _, s := range spent {
		if len(projects) > 0 && !slices.Contains(projects, string(s.Project)) {
			continue
		}
		o := spendObject{ID: cmp.Or(string(s.Key), string(s.Project)), Object: "organization.spend",
			ProjectID: s.Project, APIKeyID: exchange.OrNull(string(s.Key)),
			Used: berth.Cost{Value: s.Used, Currency: currency}, PeriodStart: start.Unix(), PeriodEnd: end.Unix()}
		if s.Limit != nil {
			o.Limit = &berth.Cost{Value: *s.Limit, Currency: currency}
			if h.priced != nil && !h.priced() {
				o.Warning = exchange.OrNull(
					"No model of this server has a price, so no costs are counted and the limit has no effect.")
			}
		}
		data = append(data, o)
	}
	id := func(o spendObject) string { return o.ID }
	data, more, err := exchange.PageOf(data, page, id)
	if err != nil {
		return err
	}
	return x.JSON(http.StatusOK, exchange.ListOf(data, more, id))
}
