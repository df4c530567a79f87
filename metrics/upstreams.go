package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/berth-run/berth"
)

var (
	descCircuit = describe("upstream_circuit",
		"1 for the state of the upstream's breaker: closed, half-open, or open (the upstream is skipped).", "upstream",
		"state")
	descInFlight  = describe("upstream_in_flight", "Turns in progress at the upstream.", "upstream")
	descWaiting   = describe("upstream_waiting", "Turns that wait for the upstream's limits.", "upstream")
	descResting   = describe("upstream_keys_resting", "Keys of the upstream that are skipped for a while.", "upstream")
	descTurns     = describe("upstream_turns_total", "Turns sent to the upstream.", "upstream")
	descCompleted = describe("upstream_completed_total", "Turns that the upstream completed.", "upstream")
	descFailed    = describe("upstream_failed_total", "Turns that the upstream failed.", "upstream")

	upstreamDescs = []*prometheus.Desc{descCircuit, descInFlight, descWaiting, descResting, descTurns, descCompleted,
		descFailed}
)

// emitUpstreams emits the samples of each upstream name. Upstreams that models describe
// inline may share a name: then the worst of their states is emitted.
func emitUpstreams(all []berth.Upstream, emit emitFunc) {
	states := []string{"closed", "half-open", "open"}
	worst := map[string]int{}
	sums := map[string]*[6]float64{}
	for _, u := range all {
		sum := sums[u.Name]
		if sum == nil {
			sum = &[6]float64{}
			sums[u.Name] = sum
		}
		for i, s := range states {
			if u.Circuit == s {
				worst[u.Name] = max(worst[u.Name], i)
			}
		}
		resting := 0
		for _, k := range u.Keys {
			if k.RestSeconds > 0 {
				resting++
			}
		}
		for i, n := range []int64{int64(u.InFlight), int64(u.Waiting), int64(resting), u.Turns, u.Completed, u.Failed} {
			sum[i] += float64(n)
		}
	}
	for name, sum := range sums {
		for i, s := range states {
			v := 0.0
			if worst[name] == i {
				v = 1
			}
			emit(descCircuit, prometheus.GaugeValue, v, name, s)
		}
		for i, d := range []*prometheus.Desc{descInFlight, descWaiting, descResting} {
			emit(d, prometheus.GaugeValue, sum[i], name)
		}
		for i, d := range []*prometheus.Desc{descTurns, descCompleted, descFailed} {
			emit(d, prometheus.CounterValue, sum[3+i], name)
		}
	}
}
