package console

import (
	"cmp"
	"encoding/csv"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/berth-run/berth"
)

// maxSeries is the number of groups of a chart with a colour of their own.
const maxSeries = 5

// A usagePage is the page of usage and cost.
type usagePage struct {
	Days   int
	By     string // api_key_id, model or project_id
	Groups []*usageGroup
	Total  usageGroup
	Chart  *columnChart
	Priced bool        // the chart shows costs, otherwise tokens
	Limit  *berth.Cost // of a month, for the line of the budget; nil for none
}

// A usageGroup is the usage of a model, a key or a project.
type usageGroup struct {
	Name     string
	Colour   string // a class of the style sheet
	Requests int64
	Input    int64
	Cached   int64
	Output   int64
	Cost     berth.Cost

	days []berth.Cost // by day
	used []int64      // tokens by day
}

// Price returns the cost of the group; nil if it has none.
func (g usageGroup) Price() *berth.Cost {
	if g.Cost.Value == 0 {
		return nil
	}
	return &g.Cost
}

// Choices returns the values of the filter of days.
func (usagePage) Choices() []int { return []int{7, 14, 30, 90} }

// Groupings returns the values by which usage can be grouped.
func (usagePage) Groupings() [][2]string {
	return [][2]string{{"model", "model"}, {"api_key_id", "key"}, {"project_id", "project"}}
}

// A usageBuckets is the API's answer.
type usageBuckets struct {
	Data []struct {
		StartTime int64 `json:"start_time"`
		Results   []struct {
			InputTokens       int64   `json:"input_tokens"`
			InputCachedTokens int64   `json:"input_cached_tokens"`
			OutputTokens      int64   `json:"output_tokens"`
			NumModelRequests  int64   `json:"num_model_requests"`
			ProjectID         *string `json:"project_id"`
			APIKeyID          *string `json:"api_key_id"`
			Model             *string `json:"model"`
			Berth             struct {
				Cost *berth.Cost `json:"cost"`
			} `json:"berth"`
		} `json:"results"`
	} `json:"data"`
}

// show serves GET /console/usage.
func (p *usagePage) show(v *visit) error {
	p.choose(v)
	var spent list[spending]
	if !v.admin() && v.get("/v1/organization/spend?limit=1", &spent) == nil && len(spent.Data) > 0 {
		p.Limit = spent.Data[0].Limit
	}
	if err := p.read(v); err != nil {
		return err
	}
	return v.show(http.StatusOK, "usage", "Usage", p)
}

// export serves GET /console/usage.csv: the groups of the page as CSV.
func (p *usagePage) export(v *visit) error {
	p.choose(v)
	if err := p.read(v); err != nil {
		return err
	}
	v.w.Header().Set("Content-Type", "text/csv; charset=utf-8")
	v.w.Header().Set("Content-Disposition", dispositionOf("attachment", "berth-usage.csv"))
	out := csv.NewWriter(v.w)
	_ = out.Write([]string{p.By, "responses", "input_tokens", "cached_tokens", "output_tokens", "cost", "currency"})
	for _, g := range p.Groups {
		name := g.Name
		if strings.ContainsAny(name[:min(1, len(name))], "=+-@\t\r") { // spreadsheets would take it for a formula
			name = "'" + name
		}
		_ = out.Write([]string{name, strconv.FormatInt(g.Requests, 10), strconv.FormatInt(g.Input, 10),
			strconv.FormatInt(g.Cached, 10), strconv.FormatInt(g.Output, 10), g.Cost.Value.String(), g.Cost.Currency})
	}
	out.Flush() // fails if the browser is gone
	return nil
}

// choose sets what the query of the visit asks for.
func (p *usagePage) choose(v *visit) {
	asked := v.r.URL.Query()
	*p = usagePage{Days: 7, By: "model"}
	if days, err := strconv.Atoi(asked.Get("days")); err == nil && slices.Contains(p.Choices(), days) {
		p.Days = days
	}
	if by := asked.Get("by"); slices.ContainsFunc(p.Groupings(), func(g [2]string) bool { return g[0] == by }) {
		p.By = by
	}
}

// read reads the usage of the days.
func (p *usagePage) read(v *visit) error {
	const most = 30 // days of one request
	now := time.Now().UTC()
	start := now.Truncate(24*time.Hour).AddDate(0, 0, 1-p.Days)
	var all usageBuckets
	for left := p.Days; left > 0; left -= most {
		days := min(left, most)
		end := start.AddDate(0, 0, days)
		query := url.Values{"start_time": {strconv.FormatInt(start.Unix(), 10)},
			"end_time":     {strconv.FormatInt(min(end.Unix(), now.Unix()+1), 10)},
			"bucket_width": {"1d"}, "limit": {strconv.Itoa(days)}, "group_by": {p.By}}
		var found usageBuckets
		if err := v.get("/v1/organization/usage/completions?"+query.Encode(), &found); err != nil {
			return err
		}
		all.Data = append(all.Data, found.Data...)
		start = end
	}
	p.sum(all)
	return nil
}

// sum fills the page with the buckets of days.
func (p *usagePage) sum(found usageBuckets) {
	byName := map[string]*usageGroup{}
	for day, b := range found.Data {
		for _, r := range b.Results {
			name := ""
			if id := map[string]*string{"model": r.Model, "api_key_id": r.APIKeyID,
				"project_id": r.ProjectID}[p.By]; id != nil {
				name = *id
			}
			g := byName[name]
			if g == nil {
				g = &usageGroup{Name: cmp.Or(name, "none"), days: make([]berth.Cost, len(found.Data)),
					used: make([]int64, len(found.Data))}
				byName[name] = g
				p.Groups = append(p.Groups, g)
			}
			for _, sum := range []*usageGroup{g, &p.Total} {
				sum.Requests += r.NumModelRequests
				sum.Input += r.InputTokens
				sum.Cached += r.InputCachedTokens
				sum.Output += r.OutputTokens
				if c := r.Berth.Cost; c != nil {
					sum.Cost = berth.Cost{Value: sum.Cost.Value + c.Value, Currency: c.Currency}
				}
			}
			g.used[day] += r.InputTokens + r.OutputTokens
			if c := r.Berth.Cost; c != nil {
				g.days[day].Value += c.Value
			}
		}
	}
	p.Priced = p.Total.Cost.Value > 0
	slices.SortFunc(p.Groups, func(a, b *usageGroup) int {
		return cmp.Or(cmp.Compare(b.Cost.Value, a.Cost.Value), cmp.Compare(b.Input+b.Output, a.Input+a.Output),
			cmp.Compare(a.Name, b.Name))
	})
	for i, g := range p.Groups {
		g.Colour = "series" + strconv.Itoa(min(i, maxSeries))
	}
	p.draw(found)
}

// draw draws the chart: a column for each day, with a part for each group.
func (p *usagePage) draw(found usageBuckets) {
	var days []string
	for _, b := range found.Data {
		days = append(days, time.Unix(b.StartTime, 0).UTC().Format(time.DateOnly))
	}
	var all []daySeries
	for _, g := range p.Groups {
		s := daySeries{g.Colour, g.used}
		if p.Priced {
			s.amounts = make([]int64, len(days))
			for day, cost := range g.days {
				s.amounts[day] = int64(cost.Value)
			}
		}
		all = append(all, s)
	}
	format, budget := formatTokens, int64(0)
	if p.Priced {
		format = formatCost(p.Total.Cost.Currency)
		if p.Limit != nil {
			budget = int64(p.Limit.Value) / daysOfMonth
		}
	}
	p.Chart = newColumnChart(days, all, budget, format)
	p.Chart.Label = "Tokens by day (UTC)"
	if p.Priced {
		p.Chart.Label = "Cost by day (UTC)"
	}
	if p.Chart.Budget > 0 {
		p.Chart.BudgetLabel = "a day's share of the month's limit, " + format(budget)
	}
}

// daysOfMonth divides a limit of a month into days.
const daysOfMonth = 30
