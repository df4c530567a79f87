package metrics

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/container"
	"github.com/berth-run/berth/internal/conns"
	"github.com/berth-run/berth/store"
)

// Sources are the parts that are asked at each scrape. All are needed.
type Sources struct {
	Containers Containers
	Upstreams  func() []berth.Upstream
	Snapshots  func(ctx context.Context) (count int, bytes int64, err error)
	Audit      func() (entries, failures int64)
	Usages     store.Usages
	Space      Space
	Isolation  string // of the server's containers
}

// Containers are what is asked about containers; *container.Service does.
type Containers interface {
	Readings(ctx context.Context) []container.Reading
	Pools() []container.PoolStats
}

// Collect has the parts asked from now on. It must be called once.
func (m *Metrics) Collect(s Sources) {
	m.registry.MustRegister(
		part{containerDescs(), func(ctx context.Context, tell teller) { tellContainers(ctx, s.Containers, tell) }},
		part{poolDescs, func(_ context.Context, tell teller) { tellPools(s.Containers.Pools(), tell) }},
		part{upstreamDescs, func(_ context.Context, tell teller) { tellUpstreams(s.Upstreams(), tell) }},
		part{[]*prometheus.Desc{descSnapshots, descSnapshotBytes}, func(ctx context.Context, tell teller) { tellSnapshots(ctx, s, tell) }},
		part{[]*prometheus.Desc{descAudited, descAuditFailed}, func(_ context.Context, tell teller) {
			entries, failures := s.Audit()
			tell(descAudited, prometheus.CounterValue, float64(entries))
			tell(descAuditFailed, prometheus.CounterValue, float64(failures))
		}},
		part{spaceDescs, func(_ context.Context, tell teller) { tellSpace(s.Space, tell) }},
		part{[]*prometheus.Desc{descSeconds}, (&seconds{Sources: s, projects: &m.projects}).tell},
	)
}

// Connections has the connections of clients counted from now on. It must be called once.
func (m *Metrics) Connections(counts func() conns.Counts) {
	m.registry.MustRegister(part{[]*prometheus.Desc{descConnections, descRefused, descClosed}, func(_ context.Context, tell teller) {
		n := counts()
		tell(descConnections, prometheus.GaugeValue, float64(n.WithKey), "yes")
		tell(descConnections, prometheus.GaugeValue, float64(n.WithoutKey), "no")
		tell(descRefused, prometheus.CounterValue, float64(n.Refused))
		tell(descClosed, prometheus.CounterValue, float64(n.Closed))
	}})
}

// A teller takes one figure.
type teller func(d *prometheus.Desc, kind prometheus.ValueType, v float64, labels ...string)

// A part is asked for its figures at each scrape.
type part struct {
	descs []*prometheus.Desc
	tell  func(ctx context.Context, tell teller)
}

func (p part) Describe(out chan<- *prometheus.Desc) {
	for _, d := range p.descs {
		out <- d
	}
}

func (p part) Collect(out chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), readTime)
	defer cancel()
	p.tell(ctx, func(d *prometheus.Desc, kind prometheus.ValueType, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, kind, v, labels...)
	})
}

func describe(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("berth_"+name, help, labels, nil)
}

var (
	descSnapshots     = describe("snapshots", "Snapshots that are kept.")
	descSnapshotBytes = describe("snapshot_bytes", "Bytes that snapshots take.")
	descAudited       = describe("audit_entries_total", "Entries written to the audit record.")
	descConnections   = describe("connections", "Connections of clients; key says whether they have shown a valid one.", "key")
	descRefused       = describe("connections_refused_total", "Connections of clients that were refused because there were too many.")
	descClosed        = describe("connections_closed_total", "Connections of clients that were closed to make room for others.")
	descAuditFailed   = describe("audit_failures_total", "Times that entries could not be written to the audit record.")
)

// tellSnapshots tells nothing if the bucket cannot be read: that is no sum.
func tellSnapshots(ctx context.Context, s Sources, tell teller) {
	count, bytes, err := s.Snapshots(ctx)
	if err != nil {
		return
	}
	tell(descSnapshots, prometheus.GaugeValue, float64(count))
	tell(descSnapshotBytes, prometheus.GaugeValue, float64(bytes))
}
