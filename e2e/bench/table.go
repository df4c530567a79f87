package main

import (
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"time"
)

// A series is the results of doing one thing many times.
type series struct {
	values []float64 // of those that worked, in its table row's unit
	tried  int
	errs   []error
}

// percentile returns the p-th percentile.
func (s series) percentile(p float64) float64 {
	if len(s.values) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(s.values))
	return sorted[int(math.Round(float64(len(sorted)-1)*p/100))]
}

// add counts one more time.
func (s *series) add(value float64, err error) {
	s.tried++
	if err != nil {
		s.errs = append(s.errs, err)
		return
	}
	s.values = append(s.values, value)
}

// took is add for durations, in milliseconds.
func (s *series) took(d time.Duration, err error) { s.add(float64(d)/float64(time.Millisecond), err) }

// join adds the results of another series.
func (s *series) join(other series) {
	s.values = append(s.values, other.values...)
	s.tried += other.tried
	s.errs = append(s.errs, other.errs...)
}

// minus returns the series with v subtracted from each value.
func (s series) minus(v float64) series {
	s.values = slices.Clone(s.values)
	for i := range s.values {
		s.values[i] -= v
	}
	return s
}

// one is a series of a single value.
func one(value float64) series { return series{values: []float64{value}, tried: 1} }

// A row is a line of a table.
type row struct {
	what   string
	unit   string // ms, MB/s, MB …
	series series
	beside string // the alternative
	other  series // its results, in the same unit
	target string // of DESIGN, if there is one
}

// A table is the printed results of one subject.
type table struct {
	title string
	rows  []row
	notes []string
}

func (t *table) add(r row) { t.rows = append(t.rows, r) }

func (t *table) note(format string, args ...any) {
	t.notes = append(t.notes, fmt.Sprintf(format, args...))
}

// tail is the number of values from which on a 99th percentile is meaningful.
const tail = 20

// print writes the table in Markdown, and the errors below it.
func (t *table) print(w io.Writer) {
	cells := [][]string{{"what", "done", "p50", "p99", "beside", "ratio", "target"}}
	for _, r := range t.rows {
		cells = append(cells, r.cells())
	}
	fmt.Fprintf(w, "\n## %s\n", t.title)
	if len(t.rows) > 0 {
		fmt.Fprintln(w)
		printCells(w, cells)
	}
	for _, n := range t.notes {
		fmt.Fprintf(w, "\n%s\n", n)
	}
	for _, r := range t.rows {
		printErrors(w, r.what, r.series.errs)
		printErrors(w, r.beside, r.other.errs)
	}
}

// maxErrors is the number of different errors of one row that are printed.
const maxErrors = 5

// printErrors prints each error once.
func printErrors(w io.Writer, what string, errs []error) {
	count := map[string]int{}
	for _, err := range errs {
		count[strings.Join(strings.Fields(err.Error()), " ")]++
	}
	for i, text := range slices.Sorted(maps.Keys(count)) {
		if i == maxErrors {
			fmt.Fprintf(w, "\nand %d other errors\n", len(count)-i)
			break
		}
		fmt.Fprintf(w, "\nFAILED %d×: %s: %s\n", count[text], what, text)
	}
}

func (r row) cells() []string {
	done := fmt.Sprintf("%d/%d", len(r.series.values), r.series.tried)
	p99 := "–"
	if len(r.series.values) >= tail {
		p99 = number(r.series.percentile(99))
	}
	beside, ratio := "–", "–"
	if r.beside != "" {
		beside = fmt.Sprintf("%s: %s", r.beside, measured(r.other.percentile(50), r.unit))
		if quotient := r.series.percentile(50) / r.other.percentile(50); !math.IsNaN(quotient) &&
			!math.IsInf(quotient, 0) {
			ratio = number(quotient) + "×"
		}
	}
	target := "–"
	if r.target != "" {
		target = r.target
	}
	return []string{r.what, done, measured(r.series.percentile(50), r.unit), p99, beside, ratio, target}
}

func measured(v float64, unit string) string { return strings.TrimSpace(number(v) + " " + unit) }

// number writes three digits of a value, or the part before the point.
func number(v float64) string {
	if math.IsNaN(v) {
		return "–"
	}
	digits := 0
	for bound := 100.0; digits < 3 && math.Abs(v) < bound; bound /= 10 {
		digits++
	}
	return fmt.Sprintf("%.*f", digits, v)
}

// printCells writes rows in Markdown, in columns that are straight as plain text.
func printCells(w io.Writer, cells [][]string) {
	width := make([]int, len(cells[0]))
	for _, row := range cells {
		for i, c := range row {
			width[i] = max(width[i], len([]rune(c)))
		}
	}
	line := func(row []string, pad string) {
		for i, c := range row {
			fmt.Fprintf(w, "| %s%s ", c, strings.Repeat(pad, width[i]-len([]rune(c))))
		}
		fmt.Fprintln(w, "|")
	}
	line(cells[0], " ")
	rule := make([]string, len(width))
	for i := range rule {
		rule[i] = "---"
	}
	line(rule, "-")
	for _, row := range cells[1:] {
		line(row, " ")
	}
}

// show prints a table and counts what failed. After an interrupt all that follows has
// failed, and says nothing.
func (b *bench) show(t *table) {
	if b.interrupted != nil && b.interrupted() {
		return
	}
	for _, r := range t.rows {
		b.failed += len(r.series.errs) + len(r.other.errs)
	}
	t.print(b.out)
	if b.saved != nil {
		t.save(b.saved)
	}
}
