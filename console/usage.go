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
	Period string // of a column: day, week or month
	By     string // api_key_id, model, project_id, kind or tool
	Groups []*usageGroup
	Total  usageGroup
	Chart  *columnChart
	Priced bool        // the chart shows costs, otherwise tokens
	Limit  *berth.Cost // of a month, for the line of the budget; nil for none
}

// A usageGroup is the usage of a model, a key or a project.
type usageGroup struct {
	Name     string
	ID       string // that has the name; "" if it is one
	Runs     string // path of its runs, the most expensive first; "" for none
	Colour   string // a class of the style sheet
	Requests int64  // responses, containers, or calls of a tool
	Input    int64
	Cached   int64
	Output   int64
	Cost     berth.Cost

	days []berth.Cost // by day
	used []int64      // tokens by day, or calls
}

// Price returns the cost of the group; nil if it has none.
func (g usageGroup) Price() *berth.Cost {
	if g.Cost.Value == 0 {
		return nil
	}
	return &g.Cost
}

// Choices returns the values of the filter of days.
func (usagePage) Choices() []int { return []int{7, 14, 30, 90, 180, 365} }

// Periods returns the values of the width of a column.
func (usagePage) Periods() []string { return []string{"day", "week", "month"} }

// Groupings returns the values by which usage can be grouped.
func (usagePage) Groupings() [][2]string {
	return [][2]string{{"model", "model"}, {"api_key_id", "key"}, {"project_id", "project"}, {"tool", "tool"},
		{"kind", "kind"}}
}

// Calls reports whether the page counts calls of tools, which have no tokens and no cost of their own.
func (p usagePage) Calls() bool { return p.By == "tool" }

// usageKinds are the kinds of work that are counted, with the last part of the path of their usage.
var usageKinds = [][2]string{{"responses", "completions"}, {"containers", "code_interpreter_sessions"},
	{"embeddings", "embeddings"}, {"moderations", "moderations"}}

// toolKinds are the kinds that are counted by tool.
var toolKinds = [][2]string{{"calls", "tool_calls"}}

// A usageBuckets is the API's answer.
type usageBuckets struct {
	Data []usageBucket `json:"data"`
}

// A usageBucket is the usage of a period.
type usageBucket struct {
	StartTime int64         `json:"start_time"`
	Results   []usageResult `json:"results"`
}

// A usageResult is the usage of a group in a period.
type usageResult struct {
	InputTokens       int64   `json:"input_tokens"`
	InputCachedTokens int64   `json:"input_cached_tokens"`
	OutputTokens      int64   `json:"output_tokens"`
	NumModelRequests  int64   `json:"num_model_requests"`
	NumSessions       int64   `json:"num_sessions"` // containers
	NumRequests       int64   `json:"num_requests"` // calls of tools
	ProjectID         *string `json:"project_id"`
	APIKeyID          *string `json:"api_key_id"`
	Model             *string `json:"model"`
	Tool              *string `json:"tool"`
	Berth             struct {
		Cost *berth.Cost `json:"cost"`
	} `json:"berth"`

	kind string
}

// name returns the name of the group, by what it is grouped.
func (r usageResult) name(by string) string {
	if by == "kind" {
		return r.kind
	}
	if id := map[string]*string{"model": r.Model, "api_key_id": r.APIKeyID, "project_id": r.ProjectID,
		"tool": r.Tool}[by]; id != nil {
		return *id
	}
	return ""
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
	p.name(v)
	p.link(v)
	return v.show(http.StatusOK, "usage", "Usage", p)
}

// named reports whether groups have ids beside their names.
func (p *usagePage) named() bool { return p.By == "api_key_id" || p.By == "project_id" }

// name puts the names of keys and projects in the place of their ids.
func (p *usagePage) name(v *visit) {
	names := map[string]func(string) string{"api_key_id": v.nameOf, "project_id": v.projectName}[p.By]
	for _, g := range p.Groups {
		if names != nil && g.Name != noName {
			g.ID, g.Name = g.Name, names(g.Name)
		}
	}
}

// link leads from groups to their runs. An admin key shows no runs.
func (p *usagePage) link(v *visit) {
	if v.admin() {
		return
	}
	runs := chainsPage{Range: strconv.Itoa(p.Days) + "d", Sort: "cost"}
	p.Total.Runs = runs.List()
	for _, g := range p.Groups {
		switch {
		case g.Name == noName:
		case p.By == "model":
			runs.Model = g.Name
			g.Runs = runs.List()
		case p.By == "api_key_id":
			runs.Key = g.ID
			g.Runs = runs.List()
		case p.By == "tool":
			runs.Tool = g.Name
			g.Runs = runs.List()
		case p.By == "project_id", p.By == "kind" && g.Name == usageKinds[0][0]:
			g.Runs = p.Total.Runs
		}
	}
}

// noName is the name of the group of what has none.
const noName = "none"

// export serves GET /console/usage.csv: the groups of the page as CSV.
func (p *usagePage) export(v *visit) error {
	p.choose(v)
	if err := p.read(v); err != nil {
		return err
	}
	v.w.Header().Set("Content-Type", "text/csv; charset=utf-8")
	v.w.Header().Set("Content-Disposition", dispositionOf("attachment", "berth-usage.csv"))
	p.name(v)
	out := csv.NewWriter(v.w)
	if p.Calls() {
		_ = out.Write([]string{p.By, "calls"})
		for _, g := range p.Groups {
			_ = out.Write([]string{cell(g.Name), strconv.FormatInt(g.Requests, 10)})
		}
		out.Flush()
		return nil
	}
	head := []string{p.By}
	if p.named() {
		head = append(head, "name")
	}
	_ = out.Write(append(head, "responses", "input_tokens", "cached_tokens", "output_tokens", "cost", "currency"))
	for _, g := range p.Groups {
		row := []string{cell(cmp.Or(g.ID, g.Name))}
		if p.named() {
			row = append(row, cell(g.Name))
		}
		_ = out.Write(append(row, strconv.FormatInt(g.Requests, 10), strconv.FormatInt(g.Input, 10),
			strconv.FormatInt(g.Cached, 10), strconv.FormatInt(g.Output, 10), g.Cost.Value.String(), g.Cost.Currency))
	}
	out.Flush() // fails if the browser is gone
	return nil
}

// cell returns a name as a cell of CSV that spreadsheets do not take for a formula.
func cell(name string) string {
	if strings.ContainsAny(name[:min(1, len(name))], "=+-@\t\r") {
		return "'" + name
	}
	return name
}

// choose sets what the query of the visit asks for.
func (p *usagePage) choose(v *visit) {
	asked := v.r.URL.Query()
	*p = usagePage{Days: 7, Period: "day", By: "model"}
	if period := asked.Get("period"); slices.Contains(p.Periods(), period) {
		p.Period = period
	}
	if days, err := strconv.Atoi(asked.Get("days")); err == nil && slices.Contains(p.Choices(), days) {
		p.Days = days
	}
	if by := asked.Get("by"); slices.ContainsFunc(p.Groupings(), func(g [2]string) bool { return g[0] == by }) {
		p.By = by
	}
}

// read reads the usage of the days.
func (p *usagePage) read(v *visit) error {
	kinds := usageKinds
	switch p.By {
	case "kind":
	case "tool":
		kinds = toolKinds
	default:
		kinds = kinds[:1]
	}
	var all usageBuckets
	for _, kind := range kinds {
		found, err := p.readKind(v, kind[0], kind[1])
		if err != nil {
			return err
		}
		if all.Data == nil {
			all = found
			continue
		}
		for day := range min(len(all.Data), len(found.Data)) {
			all.Data[day].Results = append(all.Data[day].Results, found.Data[day].Results...)
		}
	}
	all.fold(p.Period)
	p.sum(all)
	return nil
}

// readKind reads the usage of a kind of work, by day.
func (p *usagePage) readKind(v *visit, kind, path string) (all usageBuckets, err error) {
	const most = 30 // days of one request
	now := time.Now().UTC()
	start := now.Truncate(24*time.Hour).AddDate(0, 0, 1-p.Days)
	for left := p.Days; left > 0; left -= most {
		days := min(left, most)
		end := start.AddDate(0, 0, days)
		query := url.Values{"start_time": {strconv.FormatInt(start.Unix(), 10)},
			"end_time":     {strconv.FormatInt(min(end.Unix(), now.Unix()+1), 10)},
			"bucket_width": {"1d"}, "limit": {strconv.Itoa(days)}}
		if p.By != "kind" {
			query.Set("group_by", p.By)
		}
		var found usageBuckets
		if err := v.get("/v1/organization/usage/"+path+"?"+query.Encode(), &found); err != nil {
			return all, err
		}
		all.Data = append(all.Data, found.Data...)
		start = end
	}
	for _, b := range all.Data {
		for i := range b.Results {
			b.Results[i].kind = kind
		}
	}
	return all, nil
}

// fold joins the days of a week or a month.
func (u *usageBuckets) fold(period string) {
	if period == "day" {
		return
	}
	var joined []usageBucket
	for _, b := range u.Data {
		start := periodOf(period, time.Unix(b.StartTime, 0).UTC()).Unix()
		if n := len(joined); n > 0 && joined[n-1].StartTime == start {
			joined[n-1].Results = append(joined[n-1].Results, b.Results...)
			continue
		}
		joined = append(joined, usageBucket{start, b.Results})
	}
	u.Data = joined
}

// periodOf returns the first day of the week or month of a day.
func periodOf(period string, day time.Time) time.Time {
	switch period {
	case "week":
		return day.AddDate(0, 0, -(int(day.Weekday())+6)%7) // Monday
	case "month":
		return day.AddDate(0, 0, 1-day.Day())
	}
	return day
}

// sum fills the page with the buckets of days.
func (p *usagePage) sum(found usageBuckets) {
	byName := map[string]*usageGroup{}
	for day, b := range found.Data {
		for _, r := range b.Results {
			name := r.name(p.By)
			g := byName[name]
			if g == nil {
				g = &usageGroup{Name: cmp.Or(name, noName), days: make([]berth.Cost, len(found.Data)),
					used: make([]int64, len(found.Data))}
				byName[name] = g
				p.Groups = append(p.Groups, g)
			}
			for _, sum := range []*usageGroup{g, &p.Total} {
				sum.Requests += r.NumModelRequests + r.NumSessions + r.NumRequests
				sum.Input += r.InputTokens
				sum.Cached += r.InputCachedTokens
				sum.Output += r.OutputTokens
				if c := r.Berth.Cost; c != nil {
					sum.Cost = berth.Cost{Value: sum.Cost.Value + c.Value, Currency: c.Currency}
				}
			}
			g.used[day] += r.InputTokens + r.OutputTokens
			if p.Calls() {
				g.used[day] += r.NumRequests
			}
			if c := r.Berth.Cost; c != nil {
				g.days[day].Value += c.Value
			}
		}
	}
	p.Priced = p.Total.Cost.Value > 0
	slices.SortFunc(p.Groups, func(a, b *usageGroup) int {
		return cmp.Or(cmp.Compare(b.Cost.Value, a.Cost.Value), cmp.Compare(b.Input+b.Output, a.Input+a.Output),
			cmp.Compare(b.Requests, a.Requests), cmp.Compare(a.Name, b.Name))
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
		days = append(days, p.label(time.Unix(b.StartTime, 0).UTC()))
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
	if p.Calls() {
		format = formatCalls
	}
	if p.Priced {
		format = formatCost(p.Total.Cost.Currency)
		if p.Limit != nil {
			budget = int64(p.Limit.Value) * p.daysOfPeriod() / daysOfMonth
		}
	}
	p.Chart = newColumnChart(days, all, budget, format)
	counted := "Tokens"
	switch {
	case p.Priced:
		counted = "Cost"
	case p.Calls():
		counted = "Calls"
	}
	p.Chart.Label = counted + " by " + p.Period + " (UTC)"
	if p.Chart.Budget > 0 {
		p.Chart.BudgetLabel = "a " + p.Period + "'s share of the month's limit, " + format(budget)
	}
}

// label returns the name of a column that starts on a day.
func (p *usagePage) label(day time.Time) string {
	if p.Period == "month" {
		return day.Format("2006-01")
	}
	return day.Format(time.DateOnly)
}

// daysOfPeriod returns the number of days of a column.
func (p *usagePage) daysOfPeriod() int64 {
	switch p.Period {
	case "week":
		return 7
	case "month":
		return daysOfMonth
	}
	return 1
}

// daysOfMonth divides a limit of a month into days.
const daysOfMonth = 30
