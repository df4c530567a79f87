// Package metrics tells Prometheus what a server does.
//
// A Metrics observes the parts at their seams (observe.go, store.go) and asks them for
// what they know themselves when it is scraped (collect.go). Names of models come from
// clients, and ids of containers come and go, so the number of series is bounded.
package metrics

import (
	"net/http"
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
)

const (
	maxModels   = 100 // that are told apart; the rest is "other"
	maxProjects = 500 // the same
	maxReadings = 500 // containers that are told one by one
	readTime    = 10 * time.Second
)

// other is the label of all that are not told apart.
const other = "other"

// Buckets, in seconds.
var (
	quick = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5}             // a commit
	brisk = []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120}      // a start, a first word
	slow  = []float64{.01, .05, .1, .5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800, 3600} // a command
	whole = []float64{1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 3 * 3600, 8 * 3600} // a response
	turns = []float64{1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 233}                        // of a response
)

// A Metrics counts what a server does. It is safe for concurrent use. It is an
// engine.Observer through Engine, a sandbox.Observer through Sandbox and an
// exchange.Observer through API.
type Metrics struct {
	registry *prometheus.Registry
	models   names
	projects names

	responses    *prometheus.CounterVec
	tokens       *prometheus.CounterVec
	duration     *prometheus.HistogramVec
	turns        *prometheus.HistogramVec
	firstToken   *prometheus.HistogramVec
	calls        *prometheus.CounterVec
	callDuration *prometheus.HistogramVec
	starts       *prometheus.HistogramVec
	ends         *prometheus.CounterVec
	commands     *prometheus.HistogramVec
	requests     *prometheus.CounterVec
	streams      *prometheus.GaugeVec
	commits      *prometheus.HistogramVec
}

// New returns the metrics of a server of this version.
func New(version string) *Metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "berth_" + name, Help: help}, labels)
	}
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "berth_" + name, Help: help}, labels)
	}
	histogram := func(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "berth_" + name, Help: help, Buckets: buckets}, labels)
	}
	m := &Metrics{registry: prometheus.NewRegistry(), models: names{most: maxModels}, projects: names{most: maxProjects},
		responses:    counter("responses_total", "Responses that have ended.", "model", "status"),
		tokens:       counter("tokens_total", "Tokens of responses that have ended; cached ones are also input, reasoning ones output.", "model", "kind"),
		duration:     histogram("response_duration_seconds", "Time from a response's creation, in whole seconds, to its end.", whole, "status"),
		turns:        histogram("response_turns", "How often the model spoke in responses that have ended.", turns, "status"),
		firstToken:   histogram("time_to_first_token_seconds", "Time from asking an upstream to its first word.", brisk, "upstream", "model"),
		calls:        counter("tool_calls_total", "Calls of tools that were answered, or handed to the client.", "tool", "outcome"),
		callDuration: histogram("tool_call_duration_seconds", "Time that calls took which the server answered, waiting for a container included.", slow, "tool"),
		starts:       histogram("container_start_duration_seconds", "Time from asking for a container to its use.", brisk, "start"),
		ends:         counter("containers_ended_total", "Containers that have ended.", "reason"),
		commands:     histogram("exec_duration_seconds", "Time that commands in containers took.", slow, "source", "outcome"),
		requests:     counter("http_requests_total", "Requests that the API has answered.", "route", "status"),
		streams:      gauge("http_streams", "Answers that last: streams of events, and connections that became WebSockets or tunnels.", "kind"),
		commits:      histogram("store_commit_duration_seconds", "Time to save events of a response, waiting for other commits included.", quick, "operation"),
	}
	build := gauge("build_info", "1, with the version that runs.", "version", "go")
	build.WithLabelValues(version, runtime.Version()).Set(1)
	m.registry.MustRegister(m.responses, m.tokens, m.duration, m.turns, m.firstToken, m.calls, m.callDuration, m.starts, m.ends, m.commands,
		m.requests, m.streams, m.commits, build,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// Handler serves the figures of all projects: not for callers of the API.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4, Timeout: 30 * time.Second})
}

// AtEnd counts a response that ends, for journal.AtEnd. It saves nothing.
func (m *Metrics) AtEnd(_ *store.Response, final *berth.Response) []*store.Object {
	model, status := m.models.label(final.Model), string(final.Status)
	m.responses.WithLabelValues(model, status).Inc()
	m.duration.WithLabelValues(status).Observe(max(0, float64(time.Now().Unix()-final.CreatedAt)))
	if u := final.Usage; u != nil {
		for kind, n := range map[string]int{"input": u.InputTokens, "cached": u.InputTokenDetails.CachedTokens,
			"output": u.OutputTokens, "reasoning": u.OutputTokenDetails.ReasoningTokens} {
			m.tokens.WithLabelValues(model, kind).Add(max(0, float64(n)))
		}
	}
	return nil
}
