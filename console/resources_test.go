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
		s := sample{at: start.Add(time.Duration(2*i) * time.Second)}
		s.CPUSeconds = []float64{10, 10, 13}[i] // 150 % of a core at the end
		s.Memory = berth.MemoryStats{Bytes: []int64{1 << 20, 4 << 20, 2 << 20}[i], LimitBytes: 1 << 30}
		s.Egress = berth.EgressStats{BytesSent: []int64{0, 4096, 0}[i]} // the server was started again
		taken = append(taken, s)
	}
	got := chartsOf(taken)
	for i, want := range []chart{
		{Name: "CPU", Now: "150 %", Top: "150 %", Lines: []plot{{"", "296.6,60.0 298.3,60.0 300.0,0.0"}}},
		{Name: "Memory", Now: "2.0 MB", Limit: "1.0 GB", Top: "1.0 GB", // of its limit, not of its maximum
			Lines: []plot{{"", "296.6,59.9 298.3,59.8 300.0,59.9"}}},
		{Name: "Disk", Now: "0 B", Limit: "0 B", Top: "1.0 MB",
			Lines: []plot{{"", "296.6,60.0 298.3,60.0 300.0,60.0"}}},
		{Name: "Egress", Now: "sent 0 B/s, received 0 B/s", Top: "2.0 kB/s",
			Lines: []plot{{"sent", "296.6,60.0 298.3,0.0 300.0,60.0"},
				{"received", "296.6,60.0 298.3,60.0 300.0,60.0"}}},
	} {
		if got[i].Name != want.Name || got[i].Now != want.Now || got[i].Limit != want.Limit || got[i].Top != want.Top ||
			got[i].Lines[0] != want.Lines[0] ||
			got[i].Lines[len(got[i].Lines)-1] != want.Lines[len(want.Lines)-1] {
			t.Errorf("got %+v, want %+v", got[i], want)
		}
	}
	for len(taken) < samples {
		taken = append(taken, taken[0])
	}
	if points := chartsOf(taken)[1].Lines[0].Points; !strings.HasPrefix(points, "0.0,") || !strings.Contains(points,
		" 300.0,") {
		t.Errorf("a full chart does not reach from edge to edge: %s", points)
	}
}
