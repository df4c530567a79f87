// Package metrics exports a server's metrics to Prometheus.
//
// A Metrics observes the parts at their interfaces (observe.go, store.go) and queries them at
// each scrape for what they count themselves (collect.go). The number of series is bounded,
// because clients choose the names of models, and container ids come and go.
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
	maxModels   = 100 // labels for models; the rest is "other"
	maxProjects = 500 // labels for projects; the rest is "other"
	maxReadings = 500 // containers with series of their own
	readTime    = 10 * time.Second
)

// other is the label for names beyond the maximum.
const other = "other"

// Buckets, in seconds.
var (
	quick = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5}             // a commit
	brisk = []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120}      // a start, a first word
	slow  = []float64{.01, .05, .1, .5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800, 3600} // a command
	whole = []float64{1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 3 * 3600, 8 * 3600} // a response
	turns = []float64{1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 233}                        // of a response
)

// A Metrics counts events of a server. It is safe for concurrent use. Engine, Sandbox and API
// adapt it to the observers of the engine, the container service and the API.
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

// New returns the metrics of a server with a version.
func New(version string) *Metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "berth_" + name, Help: help}, labels)
	}
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "berth_" + name, Help: help}, labels)
	}
	histogram := func(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "berth_" + name, Help: help, Buckets: buckets},
			labels)
	}
	m := &Metrics{registry: prometheus.NewRegistry(), models: names{max: maxModels}, projects: names{max: maxProjects},
		responses: counter("responses_total", "Ended responses.", "model", "status"),
		tokens: counter("tokens_total",
			"Tokens of ended responses; cached tokens also count as input, reasoning tokens as output.", "model",
			"kind"),
		duration: histogram("response_duration_seconds",
			"Time from a response's creation, in whole seconds, to its end.", whole, "status"),
		turns: histogram("response_turns", "Turns of the model in ended responses.", turns, "status"),
		firstToken: histogram("time_to_first_token_seconds",
			"Time from the request to an upstream to its first token.", brisk, "upstream", "model"),
		calls: counter("tool_calls_total", "Tool calls that were answered or passed to the client.", "tool",
			"outcome"),
		callDuration: histogram("tool_call_duration_seconds",
			"Duration of tool calls that the server answered, including the wait for a container.", slow, "tool"),
		starts: histogram("container_start_duration_seconds",
			"Time from the request for a container until it is ready.", brisk, "start"),
		ends:     counter("containers_ended_total", "Ended containers.", "reason"),
		commands: histogram("exec_duration_seconds", "Duration of commands in containers.", slow, "source", "outcome"),
		requests: counter("http_requests_total", "Answered API requests.", "route", "status"),
		streams:  gauge("http_streams", "Open event streams, WebSockets and tunnels.", "kind"),
		commits: histogram("store_commit_duration_seconds",
			"Time to save events of a response, including the wait for other commits.", quick, "operation"),
	}
	build := gauge("build_info", "1, labelled with the running version.", "version", "go")
	build.WithLabelValues(version, runtime.Version()).Set(1)
	m.registry.MustRegister(m.responses, m.tokens, m.duration, m.turns, m.firstToken, m.calls, m.callDuration, m.starts,
		m.ends, m.commands,
		m.requests, m.streams, m.commits, build,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// Handler serves the metrics of all projects. It must not be exposed to API clients.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4, Timeout: 30 * time.Second})
}

// AtEnd counts an ended response. It is a hook for journal.AtEnd and saves nothing.
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
