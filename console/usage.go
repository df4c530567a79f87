package console

import (
	"cmp"
	"net/http"
	"net/url"
	"slices"
	"strconv"
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
	Chart  []column
	Priced bool // the chart shows costs, otherwise tokens
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

// A column is a day of the chart.
type column struct {
	Day    string // 2006-01-02
	X      int
	Amount string
	Parts  []part
}

// A part is a group in a column. Y and Height are in units of a drawing of 100.
type part struct {
	Colour    string
	Y, Height int64
}

// Choices returns the values of the filter of days.
func (usagePage) Choices() []int { return []int{7, 30} }

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
	asked := v.r.URL.Query()
	*p = usagePage{Days: 7, By: "model"}
	if days, err := strconv.Atoi(asked.Get("days")); err == nil && slices.Contains(p.Choices(), days) {
		p.Days = days
	}
	if by := asked.Get("by"); slices.ContainsFunc(p.Groupings(), func(g [2]string) bool { return g[0] == by }) {
		p.By = by
	}
	now := time.Now().UTC()
	query := url.Values{"start_time": {strconv.FormatInt(now.Truncate(24*time.Hour).AddDate(0, 0, 1-p.Days).Unix(),
		10)}, "end_time": {strconv.FormatInt(now.Unix()+1, 10)},
		"bucket_width": {"1d"}, "limit": {strconv.Itoa(p.Days)}, "group_by": {p.By}}
	var found usageBuckets
	if err := v.get("/v1/organization/usage/completions?"+query.Encode(), &found); err != nil {
		return err
	}
	p.sum(found)
	return v.show(http.StatusOK, "usage", "Usage", p)
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
	amount := func(g *usageGroup, day int) int64 {
		if p.Priced {
			return int64(g.days[day].Value)
		}
		return g.used[day]
	}
	var most int64
	sums := make([]int64, len(found.Data))
	for day := range found.Data {
		for _, g := range p.Groups {
			sums[day] += amount(g, day)
		}
		most = max(most, sums[day])
	}
	for day, b := range found.Data {
		c := column{Day: time.Unix(b.StartTime, 0).UTC().Format(time.DateOnly), X: day * 20,
			Amount: count64(sums[day]) + " tokens"}
		if p.Priced {
			c.Amount = money(berth.Cost{Value: berth.Amount(sums[day]), Currency: p.Total.Cost.Currency})
		}
		at := int64(100)
		for _, g := range p.Groups {
			if height := int64(float64(amount(g, day)) / float64(max(1, most)) * 100); height > 0 {
				at -= height
				c.Parts = append(c.Parts, part{g.Colour, at, height})
			}
		}
		p.Chart = append(p.Chart, c)
	}
}

// Width returns the width of the chart.
func (p usagePage) Width() int { return max(1, len(p.Chart)) * 20 }
