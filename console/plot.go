package console

import (
	"strconv"

	"github.com/berth-run/berth"
)

// A columnChart is a chart with a column for each day, an axis with its unit, and a line of the budget.
type columnChart struct {
	Label       string
	Columns     []column
	Ticks       []string // of the axis, from its top to zero
	Days        []string // below the chart: the first, the middle and the last
	Budget      int64    // place of the line, in units of a drawing of 100; 0 for none
	BudgetLabel string
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

// Width returns the width of the chart in units of its drawing.
func (c columnChart) Width() int { return max(1, len(c.Columns)) * 20 }

// roundUp returns the smallest number of 1, 2 or 5 times a power of ten that is not below n.
func roundUp(n int64) int64 {
	for power := int64(1); ; power *= 10 {
		for _, digit := range []int64{1, 2, 5} {
			if digit*power >= n || power >= 1e18 {
				return digit * power
			}
		}
	}
}

// A daySeries is a group of a chart: its colour, and its amount of each day.
type daySeries struct {
	colour  string
	amounts []int64
}

// newColumnChart draws amounts by day. A budget above four times the highest day would flatten all columns, so it
// has no line.
func newColumnChart(days []string, all []daySeries, budget int64, format func(int64) string) *columnChart {
	sums := make([]int64, len(days))
	most := int64(1)
	for day := range days {
		for _, s := range all {
			sums[day] += s.amounts[day]
		}
		most = max(most, sums[day])
	}
	if budget > 4*most {
		budget = 0
	}
	top := roundUp(max(most, budget))
	c := &columnChart{Ticks: []string{format(top), format(top / 2), "0"}}
	if budget > 0 {
		c.Budget = max(1, 100-int64(float64(budget)/float64(top)*100))
	}
	for day, name := range days {
		col := column{Day: name, X: day * 20, Amount: format(sums[day])}
		at := int64(100)
		for _, s := range all {
			if height := int64(float64(s.amounts[day]) / float64(top) * 100); height > 0 {
				at -= height
				col.Parts = append(col.Parts, part{s.colour, at, height})
			}
		}
		if len(col.Parts) == 0 && sums[day] > 0 { // a small amount is visible
			col.Parts = []part{{all[0].colour, 99, 1}}
		}
		c.Columns = append(c.Columns, col)
	}
	if n := len(days); n > 0 {
		c.Days = []string{days[0], days[n/2], days[n-1]}
	}
	return c
}

// formatTokens formats a number of tokens for an axis.
func formatTokens(n int64) string { return formatCount(n, "tokens") }

// formatCalls formats a number of calls for an axis.
func formatCalls(n int64) string { return formatCount(n, "calls") }

// formatCount formats a number of things for an axis.
func formatCount(n int64, unit string) string {
	switch {
	case n >= 1e9:
		return strconv.FormatFloat(float64(n)/1e9, 'g', 3, 64) + "G " + unit
	case n >= 1e6:
		return strconv.FormatFloat(float64(n)/1e6, 'g', 3, 64) + "M " + unit
	case n >= 10e3:
		return strconv.FormatFloat(float64(n)/1e3, 'g', 3, 64) + "k " + unit
	}
	return count64(n) + " " + unit
}

// formatCost returns what formats amounts of a currency.
func formatCost(currency string) func(int64) string {
	return func(n int64) string { return money(&berth.Cost{Value: berth.Amount(n), Currency: currency}) }
}
