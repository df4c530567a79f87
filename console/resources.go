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
	sampleEvery = time.Second // least time between two samples
	samples     = 180         // that a chart shows
	chartWidth  = 300         // of a chart, in its own units
	chartRise   = 60
	maxFlows    = 100 // connections that are shown
)

// A resourcesPage is the page of a container's resources and connections.
type resourcesPage struct {
	Tab    tab
	Charts []chart // nil without figures
	Flows  []flow  // the newest first
	Events string  // path of the page's states
}

// A chart shows the values of a figure, the last at the right.
type chart struct {
	Name  string
	Now   string // the last value
	Limit string // of the container; "" if it has none
	Top   string // the value at the upper edge
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

// A sample is the resources of a container at a moment.
type sample struct {
	berth.ContainerStats
	at time.Time
}

// show serves GET /console/containers/{container}/resources.
func (p *resourcesPage) show(v *visit) error {
	c, err := readContainer(v)
	if err != nil {
		return err
	}
	*p = resourcesPage{Tab: tab{c, "resources"}}
	if p.Tab.Running() {
		p.Events = p.Tab.Path() + "/resources/events"
		now, err := readSample(v)
		if err != nil {
			return err
		}
		p.Charts = chartsOf([]sample{now})
	}
	if p.Flows, err = readFlows(v); err != nil {
		return err
	}
	return v.show(http.StatusOK, "resources", "Usage", p)
}

// follow serves GET /console/containers/{container}/resources/events: the charts of the samples
// since the request, and the connections when there are new ones.
func (*resourcesPage) follow(v *visit) error {
	var taken []sample
	now, err := readSample(v)
	if err != nil {
		return err
	}
	out := newLiveWriter(v)
	var last []byte
	for {
		started := time.Now()
		if taken = append(taken, now); len(taken) > samples {
			taken = taken[1:]
		}
		var b bytes.Buffer
		if err := templates().ExecuteTemplate(&b, "charts", chartsOf(taken)); err != nil {
			return out.failed(err)
		}
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
		if now, err = readSample(v); err != nil {
			return nil
		}
	}
}

// readSample reads the resources of the visit's container.
func readSample(v *visit) (sample, error) {
	s := sample{at: time.Now()}
	return s, v.get("/v1/containers/"+url.PathEscape(v.r.PathValue("container"))+"/stats", &s.ContainerStats)
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
func chartsOf(taken []sample) []chart {
	last := taken[len(taken)-1].ContainerStats
	rise := func(total func(berth.ContainerStats) float64) []float64 {
		values := make([]float64, len(taken))
		for i := 1; i < len(taken); i++ {
			span := taken[i].at.Sub(taken[i-1].at).Seconds()
			values[i] = max(0, total(taken[i].ContainerStats)-total(taken[i-1].ContainerStats)) / max(span, 1e-3)
		}
		return values
	}
	level := func(now func(berth.ContainerStats) int64) []float64 {
		values := make([]float64, len(taken))
		for i, s := range taken {
			values[i] = float64(now(s.ContainerStats))
		}
		return values
	}
	bytes := func(n float64) string { return size(int64(n)) }
	rate := func(n float64) string { return size(int64(n)) + "/s" }
	percent := func(n float64) string { return fmt.Sprintf("%.0f %%", 100*n) }
	sent := rise(func(s berth.ContainerStats) float64 { return float64(s.Egress.BytesSent) })
	received := rise(func(s berth.ContainerStats) float64 { return float64(s.Egress.BytesReceived) })
	return []chart{
		draw("CPU", "", percent, 1, 0, series{"", rise(func(s berth.ContainerStats) float64 { return s.CPUSeconds })}),
		draw("Memory", size(last.Memory.LimitBytes), bytes, 1<<20, float64(last.Memory.LimitBytes),
			series{"", level(func(s berth.ContainerStats) int64 { return s.Memory.Bytes })}),
		draw("Disk", size(last.Disk.LimitBytes), bytes, 1<<20, float64(last.Disk.LimitBytes),
			series{"", level(func(s berth.ContainerStats) int64 { return s.Disk.Bytes })}),
		draw("Egress", "", rate, 1<<10, 0, series{"sent", sent}, series{"received", received}),
	}
}

// A series is the values of a plot.
type series struct {
	name   string
	values []float64
}

// draw returns a chart whose upper edge is the limit of the container, or without one (0), the greatest value, but
// at least a floor, so that noise does not look like load.
func draw(name, limit string, format func(float64) string, floor, most float64, lines ...series) chart {
	top := max(floor, most)
	for _, l := range lines {
		top = max(top, slices.Max(l.values))
	}
	c := chart{Name: name, Limit: limit, Top: format(top)}
	var now []string
	for _, l := range lines {
		var points strings.Builder
		for i, value := range l.values {
			x := chartWidth - float64(len(l.values)-1-i)*chartWidth/(samples-1)
			fmt.Fprintf(&points, "%.1f,%.1f ", x, chartRise*(1-value/top))
		}
		c.Lines = append(c.Lines, plot{l.name, strings.TrimSpace(points.String())})
		now = append(now, strings.TrimSpace(l.name+" "+format(l.values[len(l.values)-1])))
	}
	c.Now = strings.Join(now, ", ")
	return c
}
