package console

import (
	"strings"
	"testing"
	"time"

	"github.com/berth-run/berth"
)

// TestCharts: figures that grow are drawn by second, and levels as they are.
func TestCharts(t *testing.T) {
	start := time.Unix(0, 0)
	var taken []sample
	for i := range 3 {
		s := sample{at: start.Add(time.Duration(18*i) * time.Second)}
		s.CPUSeconds = []float64{10, 10, 37}[i] // 150 % of a core at the end
		s.MemoryBytes = []int64{1 << 20, 4 << 20, 2 << 20}[i]
		s.BytesSent = []int64{0, 18 * 2048, 0}[i] // the server was started again
		taken = append(taken, s)
	}
	limits := berth.ContainerStats{Memory: berth.MemoryStats{LimitBytes: 1 << 30}}
	got := chartsOf(taken, limits)
	for i, want := range []chart{
		{Name: "CPU", Now: "150 %", Top: "150 %", Lines: []plot{{"", "240.0,60.0 270.0,60.0 300.0,0.0"}}},
		{Name: "Memory", Now: "2.0 MB", Limit: "1.0 GB", Top: "1.0 GB", // of its limit, not of its maximum
			Lines: []plot{{"", "240.0,59.9 270.0,59.8 300.0,59.9"}}},
		{Name: "Disk", Now: "0 B", Limit: "0 B", Top: "1.0 MB",
			Lines: []plot{{"", "240.0,60.0 270.0,60.0 300.0,60.0"}}},
		{Name: "Egress", Now: "sent 0 B/s, received 0 B/s", Top: "2.0 kB/s",
			Lines: []plot{{"sent", "240.0,0.0 270.0,0.0 300.0,60.0"},
				{"received", "240.0,60.0 270.0,60.0 300.0,60.0"}}},
	} {
		if got[i].Name != want.Name || got[i].Now != want.Now || got[i].Limit != want.Limit || got[i].Top != want.Top ||
			got[i].Lines[0] != want.Lines[0] ||
			got[i].Lines[len(got[i].Lines)-1] != want.Lines[len(want.Lines)-1] {
			t.Errorf("got %+v, want %+v", got[i], want)
		}
	}
	for i, s := range chartsOf(taken[:1], limits) { // a container that has started just now
		if points := s.Lines[0].Points; !strings.HasPrefix(points, "300.0,") {
			t.Errorf("chart %d of one sample is %s", i, points)
		}
	}
	old := sample{at: start.Add(-time.Hour)}
	if c := chartsOf(append([]sample{old}, taken...), limits)[1]; !strings.HasPrefix(c.Lines[0].Points, "0.0,") ||
		!strings.HasSuffix(c.Lines[0].Points, " 300.0,59.9") || c.Span != "last 1 h" {
		t.Errorf("a chart of an hour does not reach from edge to edge: %+v", c)
	}
}

// TestLatestOf: a range leaves older samples out, and the present one is the last.
func TestLatestOf(t *testing.T) {
	var before []sample
	for at := range int64(10) {
		s := sample{at: time.Unix(100*at, 0)}
		s.At = 100 * at
		before = append(before, s)
	}
	now := sample{at: time.Unix(905, 0)}
	now.At = 905
	for seconds, want := range map[int64]int{0: 11, 300: 4, 1: 1} {
		got := latestOf(before, now, seconds)
		if len(got) != want || got[len(got)-1] != now {
			t.Errorf("the last %d seconds have %d samples, want %d", seconds, len(got), want)
		}
	}
	if cpu, memory := sparksOf(before, 1<<30); cpu.Now != "0 %" || memory.Now != "0 B" || memory.Points == "" {
		t.Errorf("got %+v and %+v", cpu, memory)
	}
	if cpu, _ := sparksOf(nil, 0); cpu != nil {
		t.Error("nothing has a line")
	}
}
