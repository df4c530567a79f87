package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSave(t *testing.T) {
	var long series
	for i := range 100 {
		long.add(float64(i), nil)
	}
	tab := table{title: "commands in a container"}
	tab.add(row{what: "`true`, 10 at a time", unit: "ms", series: one(1.5), beside: "on the host", other: one(0.5)})
	tab.add(row{what: "processor of 100", unit: "% of a core", series: one(2)})
	tab.add(row{what: "goroutines", series: series{tried: 1}})
	tab.add(row{what: "many", unit: "/s", series: long})
	var out strings.Builder
	tab.save(&out)
	want := `BenchmarkCommands_in_a_container/true_10_at_a_time 1 1.5 ms
BenchmarkCommands_in_a_container/true_10_at_a_time/beside_on_the_host 1 0.5 ms
BenchmarkCommands_in_a_container/processor_of_100 1 2 %_of_a_core
`
	for _, median := range []string{"5", "15", "25", "35", "45", "55", "65", "75", "85", "95"} {
		want += "BenchmarkCommands_in_a_container/many 1 " + median + " /s\n"
	}
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("saved (-want +got):\n%s", diff)
	}
}
