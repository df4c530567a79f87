package console

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"
)

// TestUsageSums: groups are summed over days and sorted by cost; a column is as high as its share of the
// highest day.
func TestUsageSums(t *testing.T) {
	var found usageBuckets
	if err := json.Unmarshal([]byte(`{"data":[
		{"start_time":0,"results":[{"model":"a","input_tokens":10,"output_tokens":5,"num_model_requests":2,"berth":{"cost":{"value":0.5,"currency":"usd"}}},{"model":"b","input_tokens":100,"num_model_requests":1}]},
		{"start_time":86400,"results":[{"model":"a","input_tokens":1,"num_model_requests":1,"berth":{"cost":{"value":1,"currency":"usd"}}},{"input_tokens":7,"num_model_requests":1}]}]}`), &found); err != nil {
		t.Fatal(err)
	}
	p := usagePage{By: "model"}
	p.sum(found)
	var got []string
	for _, g := range append(p.Groups, &p.Total) {
		got = append(got, fmt.Sprintf("%s %s: %d, %d in, %d out, %s", g.Name, g.Colour, g.Requests, g.Input, g.Output,
			g.Cost.Value))
	}
	if want := []string{"a series0: 3, 11 in, 5 out, 1.5", "b series1: 1, 100 in, 0 out, 0",
		"none series2: 1, 7 in, 0 out, 0", " : 5, 118 in, 5 out, 1.5"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	columns := p.Chart.Columns
	if len(columns) != 2 || columns[0].Parts[0] != (part{"series0", 50, 50}) ||
		columns[1].Parts[0] != (part{"series0", 0, 100}) || columns[1].Day != "1970-01-02" ||
		columns[1].Amount != "$1.00" || !slices.Equal(p.Chart.Ticks, []string{"$1.00", "$0.50", "0"}) {
		t.Errorf("got %+v", p.Chart)
	}
	unpriced := usagePage{By: "api_key_id"}
	found.Data[0].Results = found.Data[0].Results[1:]
	found.Data = found.Data[:1]
	unpriced.sum(found)
	if unpriced.Priced || unpriced.Chart.Columns[0].Amount != "100 tokens" ||
		unpriced.Chart.Columns[0].Parts[0].Height != 100 {
		t.Errorf("got %+v", unpriced.Chart)
	}
}

// TestUsageTools: calls of tools are counted by day and sorted by number; a name is no formula of a spreadsheet.
func TestUsageTools(t *testing.T) {
	var found usageBuckets
	if err := json.Unmarshal([]byte(`{"data":[
		{"start_time":0,"results":[{"tool":"mcp","num_requests":2},{"tool":"shell","num_requests":1}]},
		{"start_time":86400,"results":[{"tool":"shell","num_requests":4}]}]}`), &found); err != nil {
		t.Fatal(err)
	}
	p := usagePage{By: "tool", Period: "day"}
	p.sum(found)
	if len(p.Groups) != 2 || p.Groups[0].Name != "shell" || p.Groups[0].Requests != 5 || p.Groups[1].Requests != 2 ||
		p.Total.Requests != 7 {
		t.Errorf("got %+v", p.Groups)
	}
	if c := p.Chart; c.Label != "Calls by day (UTC)" || c.Columns[0].Amount != "3 calls" || c.Columns[1].Amount != "4 calls" {
		t.Errorf("got %+v", c)
	}
	for name, want := range map[string]string{"shell": "shell", "=1+1": "'=1+1", "": "", "@x": "'@x"} {
		if got := cell(name); got != want {
			t.Errorf("%q: got %q, want %q", name, got, want)
		}
	}
}

// TestBudget: the line of the budget is at its height, and left out where it would flatten all columns.
func TestBudget(t *testing.T) {
	days := []string{"a", "b"}
	for budget, want := range map[int64]int64{0: 0, 100: 80, 250: 50, 500: 0} {
		c := newColumnChart(days, []daySeries{{"series0", []int64{100, 500}}}, budget, formatTokens)
		if got := c.Budget; budget != 500 && got != want || budget == 500 && got != 1 {
			t.Errorf("a budget of %d: got a line at %d", budget, got)
		}
	}
	if c := newColumnChart(days, []daySeries{{"series0", []int64{1, 2}}}, 1000, formatTokens); c.Budget != 0 ||
		c.Columns[1].Parts[0].Height != 100 {
		t.Errorf("a budget far above: got %+v", c)
	}
	for n, want := range map[int64]int64{1: 1, 2: 2, 3: 5, 6: 10, 11: 20, 999: 1000} {
		if got := roundUp(n); got != want {
			t.Errorf("%d: got %d, want %d", n, got, want)
		}
	}
}

// TestUsageFold: days are joined to weeks that start on Monday, and to months, without loss.
func TestUsageFold(t *testing.T) {
	const day = 86400
	start := time.Date(2026, 10, 28, 0, 0, 0, 0, time.UTC) // a Wednesday
	for period, want := range map[string][]string{"day": nil, "week": {"2026-10-26: 5", "2026-11-02: 7", "2026-11-09: 1"},
		"month": {"2026-10: 4", "2026-11: 9"}} {
		var all usageBuckets
		for i := range int64(13) {
			b := usageBucket{StartTime: start.Unix() + i*day, Results: make([]usageResult, 1)}
			b.Results[0].NumSessions, b.Results[0].kind = 1, "containers"
			all.Data = append(all.Data, b)
		}
		p := usagePage{By: "kind", Period: period}
		all.fold(period)
		var got []string
		for _, b := range all.Data {
			got = append(got, fmt.Sprintf("%s: %d", p.label(time.Unix(b.StartTime, 0).UTC()), len(b.Results)))
		}
		if period == "day" && len(got) != 13 || period != "day" && !slices.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", period, got, want)
		}
		if p.sum(all); len(p.Groups) != 1 || p.Groups[0].Name != "containers" || p.Groups[0].Requests != 13 {
			t.Errorf("%s: got %+v", period, p.Groups)
		}
	}
}
