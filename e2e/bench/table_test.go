package main

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

func TestTable(t *testing.T) {
	var some series
	for i := range 100 {
		some.add(float64(i+1), nil)
	}
	some.add(0, errors.New("no\nanswer"))
	some.add(0, errors.New("no answer"))
	tab := table{title: "Things"}
	tab.add(row{what: "a thing", unit: "ms", series: some, beside: "another", other: one(0.5), target: "2 ms"})
	tab.add(row{what: "no thing", unit: "ms", series: series{tried: 1, errs: []error{errors.New("refused")}}})
	tab.note("A note.")
	var out strings.Builder
	b := bench{out: &out}
	b.show(&tab)
	want := `
## Things

| what     | done    | p50     | p99  | beside            | ratio | target |
| -------- | ------- | ------- | ---- | ----------------- | ----- | ------ |
| a thing  | 100/102 | 51.0 ms | 99.0 | another: 0.500 ms | 102×  | 2 ms   |
| no thing | 0/1     | – ms    | –    | –                 | –     | –      |

A note.

FAILED 2×: a thing: no answer

FAILED 1×: no thing: refused
`
	if got := out.String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if b.failed != 3 {
		t.Errorf("got %d failures, want 3", b.failed)
	}
	out.Reset()
	none := table{title: "Skipped things"}
	none.note("Skipped: a reason.")
	b.show(&none)
	if got, want := out.String(), "\n## Skipped things\n\nSkipped: a reason.\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestNumber(t *testing.T) {
	for want, v := range map[string]float64{"0.012": 0.0123, "0.500": 0.5, "1.23": 1.234, "12.3": 12.34, "123": 123.4,
		"1235": 1234.6} {
		if got := number(v); got != want {
			t.Errorf("number(%v): got %s, want %s", v, got, want)
		}
	}
}

func TestChoose(t *testing.T) {
	if got, err := choose("files, create"); err != nil || len(got) != 2 || got[0].name != "files" ||
		got[1].name != "create" {
		t.Errorf("got %v, %v, want files and create", got, err)
	}
	var unnamed []string
	for _, s := range subjects {
		if !s.named {
			unnamed = append(unnamed, s.name)
		}
	}
	got, err := choose("")
	var names []string
	for _, s := range got {
		names = append(names, s.name)
	}
	if err != nil || !slices.Equal(names, unnamed) || slices.Contains(names, "million") {
		t.Errorf("got %q, %v, want %q", names, err, unnamed)
	}
	if _, err := choose("speed"); err == nil {
		t.Error("got no error for a subject that does not exist")
	}
}
