package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/berth-run/berth"
)

var (
	descCircuit   = describe("upstream_circuit", "1 for the state that the upstream's breaker is in: closed, half-open, or open, when it is left alone.", "upstream", "state")
	descInFlight  = describe("upstream_in_flight", "Turns that the upstream is asked now.", "upstream")
	descWaiting   = describe("upstream_waiting", "Turns that wait for the upstream's limits.", "upstream")
	descResting   = describe("upstream_keys_resting", "Keys of the upstream that are left alone for a while.", "upstream")
	descTurns     = describe("upstream_turns_total", "Turns that the upstream was asked.", "upstream")
	descCompleted = describe("upstream_completed_total", "Turns that it answered to their end.", "upstream")
	descFailed    = describe("upstream_failed_total", "Turns that failed by its fault.", "upstream")

	upstreamDescs = []*prometheus.Desc{descCircuit, descInFlight, descWaiting, descResting, descTurns, descCompleted, descFailed}
)

// tellUpstreams tells of each upstream by its name. Some that models describe
// themselves may share one: the worst of their states is told.
func tellUpstreams(all []berth.Upstream, tell teller) {
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
			tell(descCircuit, prometheus.GaugeValue, v, name, s)
		}
		for i, d := range []*prometheus.Desc{descInFlight, descWaiting, descResting} {
			tell(d, prometheus.GaugeValue, sum[i], name)
		}
		for i, d := range []*prometheus.Desc{descTurns, descCompleted, descFailed} {
			tell(d, prometheus.CounterValue, sum[3+i], name)
		}
	}
}
