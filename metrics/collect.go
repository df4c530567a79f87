package metrics

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/container"
	"github.com/berth-run/berth/internal/conns"
	"github.com/berth-run/berth/project"
	"github.com/berth-run/berth/store"
)

// Sources are the parts to query at each scrape. All are required.
type Sources struct {
	Containers Containers
	Upstreams  func() []berth.Upstream
	Snapshots  func(ctx context.Context) (count int, bytes int64, err error)
	Audit      func() (entries, failures int64)
	Forwarded  func() map[string]int64 // entries of the audit record that wait for each of its targets
	Usages     Usages
	Spending   func(ctx context.Context) ([]project.Spend, error)
	Space      Space
	Isolation  string // of the server's containers
}

// Usages reports usage. store.Usages implements it.
type Usages interface {
	Usage(ctx context.Context, q store.UsageQuery) ([]*store.Usage, error)
}

// Containers reports on containers. *container.Service implements it.
type Containers interface {
	Readings(ctx context.Context) []container.Reading
	Pools() []container.PoolStats
}

// Collect queries the parts at each scrape from now on. It must be called once.
func (m *Metrics) Collect(s Sources) {
	m.registry.MustRegister(
		part{containerDescs(), func(ctx context.Context, emit emitFunc) { emitContainers(ctx, s.Containers, emit) }},
		part{poolDescs, func(_ context.Context, emit emitFunc) { emitPools(s.Containers.Pools(), emit) }},
		part{upstreamDescs, func(_ context.Context, emit emitFunc) { emitUpstreams(s.Upstreams(), emit) }},
		part{[]*prometheus.Desc{descSnapshots, descSnapshotBytes}, func(ctx context.Context, emit emitFunc) {
			emitSnapshots(ctx, s, emit)
		}},
		part{[]*prometheus.Desc{descAudited, descAuditFailed}, func(_ context.Context, emit emitFunc) {
			entries, failures := s.Audit()
			emit(descAudited, prometheus.CounterValue, float64(entries))
			emit(descAuditFailed, prometheus.CounterValue, float64(failures))
		}},
		part{[]*prometheus.Desc{descForward}, func(_ context.Context, emit emitFunc) {
			for target, behind := range s.Forwarded() {
				emit(descForward, prometheus.GaugeValue, float64(behind), target)
			}
		}},
		part{spaceDescs, func(_ context.Context, emit emitFunc) { emitSpace(s.Space, emit) }},
		part{[]*prometheus.Desc{descSpent, descSpendLimit}, func(ctx context.Context, emit emitFunc) {
			emitSpending(ctx, s, emit)
		}},
		part{[]*prometheus.Desc{descSeconds}, (&seconds{Sources: s, projects: &m.projects}).emit},
	)
}

// Running reports the number of responses in progress from now on. It must be called once.
func (m *Metrics) Running(count func() int) {
	m.registry.MustRegister(part{[]*prometheus.Desc{descInProgress}, func(_ context.Context, emit emitFunc) {
		emit(descInProgress, prometheus.GaugeValue, float64(count()))
	}})
}

// Connections reports the counts of client connections from now on. It must be called once.
func (m *Metrics) Connections(counts func() conns.Counts) {
	m.registry.MustRegister(part{[]*prometheus.Desc{descConnections, descRefused, descClosed}, func(_ context.Context,
		emit emitFunc) {
		n := counts()
		emit(descConnections, prometheus.GaugeValue, float64(n.WithKey), "yes")
		emit(descConnections, prometheus.GaugeValue, float64(n.WithoutKey), "no")
		emit(descRefused, prometheus.CounterValue, float64(n.Refused))
		emit(descClosed, prometheus.CounterValue, float64(n.Closed))
	}})
}

// An emitFunc emits one sample.
type emitFunc func(d *prometheus.Desc, kind prometheus.ValueType, v float64, labels ...string)

// A part emits its samples at each scrape. It is a prometheus.Collector.
type part struct {
	descs []*prometheus.Desc
	emit  func(ctx context.Context, emit emitFunc)
}

func (p part) Describe(out chan<- *prometheus.Desc) {
	for _, d := range p.descs {
		out <- d
	}
}

func (p part) Collect(out chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), readTime)
	defer cancel()
	p.emit(ctx, func(d *prometheus.Desc, kind prometheus.ValueType, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, kind, v, labels...)
	})
}

func describe(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("berth_"+name, help, labels, nil)
}

var (
	descInProgress    = describe("responses_running", "Responses that this server works on.")
	descSnapshots     = describe("snapshots", "Stored snapshots.")
	descSnapshotBytes = describe("snapshot_bytes", "Bytes of stored snapshots.")
	descAudited       = describe("audit_entries_total", "Entries written to the audit record.")
	descConnections   = describe("connections",
		"Client connections; key is yes if a request on the connection had a valid key.", "key")
	descRefused     = describe("connections_refused_total", "Client connections refused because there were too many.")
	descClosed      = describe("connections_closed_total", "Client connections closed to make room for others.")
	descAuditFailed = describe("audit_failures_total", "Failed writes to the audit record.")
	descForward     = describe("audit_forward_behind", "Entries of the audit record that a target has not taken.", "target")
)

// emitSnapshots emits nothing if the snapshots cannot be read.
func emitSnapshots(ctx context.Context, s Sources, emit emitFunc) {
	count, bytes, err := s.Snapshots(ctx)
	if err != nil {
		return
	}
	emit(descSnapshots, prometheus.GaugeValue, float64(count))
	emit(descSnapshotBytes, prometheus.GaugeValue, float64(bytes))
}
