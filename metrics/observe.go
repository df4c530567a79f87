package metrics

import (
	"strconv"
	"time"

	"github.com/berth-run/berth"
)

// FirstToken observes the time to the first token of a turn.
func (m *Metrics) FirstToken(upstream, model string, took time.Duration) {
	m.firstToken.WithLabelValues(upstream, m.models.label(model)).Observe(took.Seconds())
}

// Engine is an engine.Observer.
type Engine struct{ *Metrics }

// Called implements engine.Observer.
func (e Engine) Called(t berth.ItemType, outcome string, took time.Duration) {
	e.calls.WithLabelValues(string(t), outcome).Inc()
	if took > 0 {
		e.callDuration.WithLabelValues(string(t)).Observe(took.Seconds())
	}
}

// Ended implements engine.Observer.
func (e Engine) Ended(status berth.Status, turns int) {
	e.turns.WithLabelValues(string(status)).Observe(float64(turns))
}

// Sandbox is a container.Observer.
type Sandbox struct{ *Metrics }

// Started implements container.Observer.
func (s Sandbox) Started(how string, took time.Duration) {
	s.starts.WithLabelValues(how).Observe(took.Seconds())
}

// Ended implements container.Observer.
func (s Sandbox) Ended(reason string) { s.ends.WithLabelValues(reason).Inc() }

// Ran implements container.Observer.
func (s Sandbox) Ran(source berth.LogSource, outcome string, took time.Duration) {
	s.commands.WithLabelValues(string(source), outcome).Observe(took.Seconds())
}

// API is an exchange.Observer.
type API struct{ *Metrics }

// Opened implements exchange.Observer.
func (a API) Opened(kind string) (closed func()) {
	open := a.streams.WithLabelValues(kind)
	open.Inc()
	return open.Dec
}

// Answered implements exchange.Observer.
func (a API) Answered(route string, status int, took time.Duration) {
	a.requests.WithLabelValues(route, strconv.Itoa(status)).Inc()
}
