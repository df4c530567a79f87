package console

import (
	"bytes"
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/berth-run/berth"
)

const (
	sampleEvery = time.Second     // least time between two samples
	leastSpan   = 3 * time.Minute // that a chart shows at least
	chartWidth  = 300             // of a chart, in its own units
	chartRise   = 60
	maxFlows    = 100 // connections that are shown
)

// A resourcesPage is the page of a container's resources and connections.
type resourcesPage struct {
	Tab    tab
	Charts []chart     // nil without figures
	Ranges []timeRange // that can be chosen
	Flows  []flow      // the newest first
	Events string      // path of the page's states
}

// A timeRange is a choice of how much of the past the charts show.
type timeRange struct {
	Label   string
	Path    string
	Chosen  bool
	seconds int64 // 0 is the whole life
}

// rangesOf returns the choices of a visit, and the seconds of the chosen one.
func rangesOf(v *visit, path string) (all []timeRange, seconds int64) {
	asked := v.r.URL.Query().Get("range")
	all = []timeRange{{"All", path, true, 0}, {"15 min", path + "?range=15m", false, 15 * 60},
		{"1 h", path + "?range=1h", false, 3600}, {"24 h", path + "?range=24h", false, 24 * 3600}}
	for i, of := range all {
		if asked != "" && strings.HasSuffix(of.Path, "="+asked) {
			all[0].Chosen, all[i].Chosen, seconds = false, true, of.seconds
		}
	}
	return all, seconds
}

// A chart shows the values of a figure, the last at the right.
type chart struct {
	Name  string
	Now   string // the last value
	Limit string // of the container; "" if it has none
	Top   string // the value at the upper edge
	Span  string // from its left to its right edge
	Lines []plot
}

// A plot is a line of a chart.
type plot struct {
	Name   string // "" if it is the only one
	Points string // as SVG's polyline has them
}

// A flow is a connection of the container, from the audit record.
type flow struct {
	Seq          int64     `json:"seq"`
	Time         time.Time `json:"time"`
	Action       string    `json:"action"`
	Reason       string    `json:"reason"`
	Host         string    `json:"host"`
	Port         int       `json:"port"`
	Address      string    `json:"address"`
	Sent         int64     `json:"sent"`
	Received     int64     `json:"received"`
	Milliseconds int64     `json:"milliseconds"`
	Count        int64     `json:"count"`
	Refused      int64     `json:"refused"`
	Key          string    `json:"key"`
}

// Event returns what happened, in a word.
func (f flow) Event() string {
	if f.Action == "egress.more" {
		return fmt.Sprintf("%d more, %d refused", f.Count, f.Refused)
	}
	return strings.TrimPrefix(f.Action, "egress.")
}

// At returns when it happened, in UTC.
func (f flow) At() string { return f.Time.UTC().Format("15:04:05") }

// show serves GET /console/containers/{container}/resources.
func (p *resourcesPage) show(v *visit) error {
	c, err := readContainer(v)
	if err != nil {
		return err
	}
	*p = resourcesPage{Tab: tab{c, "resources", v.formToken()}}
	if p.Tab.Running() {
		path := p.Tab.Path() + "/resources"
		var seconds int64
		p.Ranges, seconds = rangesOf(v, path)
		p.Events = path + "/events?" + v.r.URL.RawQuery
		now, limits, err := readNow(v)
		if err != nil {
			return err
		}
		before, err := readHistory(v, c.ID)
		if err != nil {
			return err
		}
		p.Charts = chartsOf(latestOf(before, now, seconds), limits)
	}
	if p.Flows, err = readFlows(v); err != nil {
		return err
	}
	return v.show(http.StatusOK, "resources", "Usage", p)
}

// latestOf returns the samples of the last seconds and the present one; 0 seconds are all.
func latestOf(before []sample, now sample, seconds int64) (taken []sample) {
	for _, s := range before {
		if s.at.Before(now.at) && (seconds == 0 || s.At >= now.At-seconds) {
			taken = append(taken, s)
		}
	}
	return append(taken, now)
}

// follow serves GET /console/containers/{container}/resources/events: the charts as they change, and the connections
// when there are new ones.
func (*resourcesPage) follow(v *visit) error {
	id := berth.ContainerID(v.r.PathValue("container"))
	_, seconds := rangesOf(v, "?")
	var latest []sample // since the last of the history
	var out *liveWriter // from the first readings on: an error before them has its own status
	var last []byte
	for {
		started := time.Now()
		now, limits, err := readNow(v)
		var before []sample
		if err == nil {
			before, err = readHistory(v, id)
		}
		switch {
		case err == nil && out == nil:
			out = newLiveWriter(v)
		case err != nil && out == nil:
			return err
		case err != nil:
			return nil // the browser reconnects and gets the reason
		}
		if n := len(before); n > 0 {
			latest = slices.DeleteFunc(latest, func(s sample) bool { return s.At <= before[n-1].At })
		}
		var b bytes.Buffer
		charts := chartsOf(latestOf(slices.Concat(before, latest), now, seconds), limits)
		if err := templates().ExecuteTemplate(&b, "charts", charts); err != nil {
			return out.failed(err)
		}
		latest = append(latest, now)
		flows, err := readFlows(v)
		if err != nil {
			return nil // the browser reconnects and gets the reason
		}
		var table bytes.Buffer
		if err := templates().ExecuteTemplate(&table, "flows", flows); err != nil {
			return out.failed(err)
		}
		if !bytes.Equal(table.Bytes(), last) {
			last = table.Bytes()
			b.Write(last)
		}
		if out.send("show", b.Bytes()) != nil {
			return nil // the browser is gone
		}
		select {
		case <-time.After(max(sampleEvery, chainsShare*time.Since(started))):
		case <-v.r.Context().Done():
			return nil
		}
	}
}

// readNow reads the present resources of the visit's container, with its limits.
func readNow(v *visit) (now sample, limits berth.ContainerStats, err error) {
	err = v.get(pathTo("/v1/containers", v.r.PathValue("container"))+"/stats", &limits)
	return sampleOf(limits), limits, err
}

// A sample is the resources of a container at a moment.
type sample struct {
	berth.StatsSample
	at time.Time
}

// sampleOf returns figures that were read just now as a sample.
func sampleOf(s berth.ContainerStats) sample {
	return sample{berth.StatsSample{At: s.At, CPUSeconds: s.CPUSeconds, MemoryBytes: s.Memory.Bytes,
		DiskBytes: s.Disk.Bytes, BytesSent: s.Egress.BytesSent, BytesReceived: s.Egress.BytesReceived}, time.Now()}
}

// readHistory reads the resources of a container over its life, the oldest sample first.
func readHistory(v *visit, id berth.ContainerID) ([]sample, error) {
	var found list[sample]
	err := v.get(pathTo("/v1/containers", id)+"/stats/history", &found)
	for i := range found.Data {
		found.Data[i].at = time.Unix(found.Data[i].At, 0)
	}
	return found.Data, err
}

// readFlows reads the last connections of the visit's container.
func readFlows(v *visit) ([]flow, error) {
	var found struct{ Data []flow }
	if err := v.get("/v1/containers/"+url.PathEscape(v.r.PathValue("container"))+"/audit", &found); err != nil {
		return nil, err
	}
	flows := slices.DeleteFunc(found.Data, func(f flow) bool { return !strings.HasPrefix(f.Action, "egress.") })
	slices.SortFunc(flows, func(a, b flow) int { return cmp.Compare(b.Seq, a.Seq) })
	return flows[:min(len(flows), maxFlows)], nil
}

// chartsOf draws samples. Figures that grow are drawn as their rise by second.
func chartsOf(taken []sample, limits berth.ContainerStats) []chart {
	bytes := func(n float64) string { return size(int64(n)) }
	rate := func(n float64) string { return size(int64(n)) + "/s" }
	percent := func(n float64) string { return fmt.Sprintf("%.0f %%", 100*n) }
	sent := rise(taken, func(s sample) float64 { return float64(s.BytesSent) })
	received := rise(taken, func(s sample) float64 { return float64(s.BytesReceived) })
	memory := level(taken, func(s sample) int64 { return s.MemoryBytes })
	disk := level(taken, func(s sample) int64 { return s.DiskBytes })
	return []chart{
		draw(taken, "CPU", "", percent, 1, 0, series{"", rise(taken, cpuSeconds)}),
		draw(taken, "Memory", size(limits.Memory.LimitBytes), bytes, 1<<20, float64(limits.Memory.LimitBytes),
			series{"", memory}),
		draw(taken, "Disk", size(limits.Disk.LimitBytes), bytes, 1<<20, float64(limits.Disk.LimitBytes),
			series{"", disk}),
		draw(taken, "Egress", "", rate, 1<<10, 0, series{"sent", sent}, series{"received", received}),
	}
}

func cpuSeconds(s sample) float64 { return s.CPUSeconds }

// rise returns by how much a sum grew by second before each sample.
func rise(taken []sample, total func(sample) float64) []float64 {
	values := make([]float64, len(taken))
	for i := 1; i < len(taken); i++ {
		span := taken[i].at.Sub(taken[i-1].at).Seconds()
		values[i] = max(0, total(taken[i])-total(taken[i-1])) / max(span, 0.1)
	}
	if len(values) > 1 {
		values[0] = values[1] // unknown
	}
	return values
}

// level returns a figure of each sample.
func level(taken []sample, now func(sample) int64) []float64 {
	values := make([]float64, len(taken))
	for i, s := range taken {
		values[i] = float64(now(s))
	}
	return values
}

// A series is the values of a plot.
type series struct {
	name   string
	values []float64
}

// draw returns a chart whose upper edge is the limit of the container, or without one (0), the greatest value, but
// at least a floor, so that noise does not look like load.
func draw(taken []sample, name, limit string, format func(float64) string, floor, most float64,
	lines ...series) chart {
	top := max(floor, most)
	for _, l := range lines {
		top = max(top, slices.Max(l.values))
	}
	c := chart{Name: name, Limit: limit, Top: format(top), Span: "last " + age(spanOf(taken))}
	var now []string
	for _, l := range lines {
		c.Lines = append(c.Lines, plot{l.name, points(taken, l.values, top)})
		now = append(now, strings.TrimSpace(l.name+" "+format(l.values[len(l.values)-1])))
	}
	c.Now = strings.Join(now, ", ")
	return c
}

// spanOf returns how much time a chart of samples shows.
func spanOf(taken []sample) time.Duration {
	return max(leastSpan, taken[len(taken)-1].at.Sub(taken[0].at))
}

// points returns the points of a line: at the right edge the last sample.
func points(taken []sample, values []float64, top float64) string {
	span, last := spanOf(taken).Seconds(), taken[len(taken)-1].at
	var b strings.Builder
	for i, value := range values {
		fmt.Fprintf(&b, "%.1f,%.1f ", chartWidth*(1-last.Sub(taken[i].at).Seconds()/span), chartRise*(1-value/top))
	}
	return strings.TrimSpace(b.String())
}

// A sparkline shows how a figure of a container has changed, without an axis.
type sparkline struct {
	Label  string
	Now    string
	Points string
}

// sparksOf returns the CPU and memory of a container over its life; nil if nothing is known.
func sparksOf(taken []sample, limit int64) (cpu, memory *sparkline) {
	if len(taken) == 0 {
		return nil, nil
	}
	used := rise(taken, cpuSeconds)
	held := level(taken, func(s sample) int64 { return s.MemoryBytes })
	percent := fmt.Sprintf("%.0f %%", 100*used[len(used)-1])
	most := float64(max(1, limit))
	if limit == 0 {
		most = max(1, slices.Max(held))
	}
	now := size(taken[len(taken)-1].MemoryBytes)
	return &sparkline{"CPU, now " + percent, percent, points(taken, used, max(1, slices.Max(used)))},
		&sparkline{"Memory, now " + now, now, points(taken, held, max(most, slices.Max(held)))}
}
