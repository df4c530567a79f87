// Package metrics tells Prometheus what a server does.
//
// It asks the parts for their figures when it is scraped; they do not know of it.
// Names of models come from clients and ids of containers come and go, so the
// number of series is bounded.
package metrics

import (
	"context"
	"net/http"
	"runtime"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/sandbox"
	"github.com/berth-run/berth/store"
)

const (
	maxModels   = 100 // that are told apart; the rest is "other"
	maxReadings = 500 // containers that are told one by one
	readTime    = 10 * time.Second
)

// Containers are what is asked about containers; *sandbox.Keeper does.
type Containers interface {
	Readings(ctx context.Context) []sandbox.Reading
	Pool() sandbox.PoolStats
}

// A Metrics counts what a server does. It is safe for concurrent use.
type Metrics struct {
	registry  *prometheus.Registry
	responses *prometheus.CounterVec
	tokens    *prometheus.CounterVec
	duration  *prometheus.HistogramVec

	mu     sync.Mutex
	models map[string]bool
}

// New returns the metrics of a server of this version.
func New(version string, c Containers) *Metrics {
	m := &Metrics{registry: prometheus.NewRegistry(), models: map[string]bool{},
		responses: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "berth_responses_total", Help: "Responses that have ended."}, []string{"model", "status"}),
		tokens:    prometheus.NewCounterVec(prometheus.CounterOpts{Name: "berth_tokens_total", Help: "Tokens of responses that have ended; cached ones are also input, reasoning ones output."}, []string{"model", "kind"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "berth_response_duration_seconds", Help: "Time from a response's creation, in whole seconds, to its end.",
			Buckets: []float64{1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600}}, []string{"status"}),
	}
	build := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "berth_build_info", Help: "1, with the version that runs."}, []string{"version", "go"})
	build.WithLabelValues(version, runtime.Version()).Set(1)
	m.registry.MustRegister(m.responses, m.tokens, m.duration, build, containers{c},
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// Handler serves the figures of all projects: not for callers of the API.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4, Timeout: 30 * time.Second})
}

// AtEnd counts a response that ends, for journal.AtEnd. It saves nothing.
func (m *Metrics) AtEnd(_ *store.Response, final *berth.Response) []*store.Object {
	model, status := m.model(final.Model), string(final.Status)
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

// model returns a model's name as a label.
func (m *Metrics) model(name string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.models[name] && len(m.models) >= maxModels {
		return "other"
	}
	m.models[name] = true
	return name
}
