package main

import (
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"
)

// savedParts is the number of medians that are saved of a series. Values that follow each other
// are alike, because the machine is, so as samples of their own they would make each small
// difference between two runs look significant.
const savedParts = 10

// save writes the rows of a table and their baselines in the format of Go
// benchmarks, for benchstat.
func (t *table) save(w io.Writer) {
	for _, r := range t.rows {
		name := benchmarkName(t.title, r.what)
		saveSeries(w, name, r.unit, r.series)
		if r.beside != "" {
			saveSeries(w, name+"/beside_"+benchmarkWord(r.beside), r.unit, r.other)
		}
	}
}

func saveSeries(w io.Writer, name, unit string, s series) {
	if unit = benchmarkWord(unit); unit == "" {
		unit = "count"
	}
	for _, median := range s.medians(savedParts) {
		fmt.Fprintf(w, "%s 1 %g %s\n", name, median, unit)
	}
}

// medians returns the medians of at most n consecutive parts of a series.
func (s series) medians(n int) []float64 {
	n = min(n, len(s.values))
	medians := make([]float64, n)
	for i := range n {
		part := series{values: s.values[i*len(s.values)/n : (i+1)*len(s.values)/n]}
		medians[i] = part.percentile(50)
	}
	return medians
}

// benchmarkName returns a name that go test could have given to a benchmark.
func benchmarkName(title, what string) string {
	first, size := utf8.DecodeRuneInString(title)
	return "Benchmark" + string(unicode.ToUpper(first)) + benchmarkWord(title[size:]) + "/" + benchmarkWord(what)
}

// benchmarkWord replaces what a name or a unit must not have.
func benchmarkWord(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return '_'
		case r == '`' || r == ',' || r == '(' || r == ')' || r == '\'' || r == ':':
			return -1
		default:
			return r
		}
	}, text)
}
