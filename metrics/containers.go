package metrics

import (
	"cmp"
	"context"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/container"
)

var (
	descRunning = describe("containers", "Running containers.", "memory_limit", "isolation")
	descAsleep  = describe("containers_asleep", "Running containers that are paused because they are quiet.",
		"memory_limit", "isolation")
	descPoolSize  = describe("pool_size", "Configured size of the pool.", "template", "memory_limit")
	descPoolWant  = describe("pool_target", "Sandboxes that the pool is to hold now.", "template", "memory_limit")
	descPoolReady = describe("pool_ready", "Ready sandboxes in the pool.", "template", "memory_limit")
	descPoolHits  = describe("pool_hits_total", "Containers that got a sandbox from the pool.", "template",
		"memory_limit")
	descPoolMiss = describe("pool_misses_total", "Containers started cold because the pool was empty.", "template",
		"memory_limit")

	poolDescs = []*prometheus.Desc{descPoolSize, descPoolWant, descPoolReady, descPoolHits, descPoolMiss}
)

// A figure is a metric of a single container.
type figure struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
	of   func(*berth.ContainerStats) float64
}

// figures are emitted for each running container.
var figures = []figure{
	{describe("container_cpu_seconds_total", "Processor time.", "container", "project"), prometheus.CounterValue,
		func(s *berth.ContainerStats) float64 {
			return s.CPUSeconds
		}},
	{describe("container_memory_bytes", "Memory in use.", "container", "project"), prometheus.GaugeValue,
		func(s *berth.ContainerStats) float64 {
			return float64(s.Memory.Bytes)
		}},
	{describe("container_memory_limit_bytes", "Memory limit.", "container", "project"), prometheus.GaugeValue,
		func(s *berth.ContainerStats) float64 {
			return float64(s.Memory.LimitBytes)
		}},
	{describe("container_disk_bytes", "Bytes written above the template.", "container", "project"),
		prometheus.GaugeValue, func(s *berth.ContainerStats) float64 {
			return float64(s.Disk.Bytes)
		}},
	{describe("container_pids", "Processes and threads.", "container", "project"), prometheus.GaugeValue,
		func(s *berth.ContainerStats) float64 {
			return float64(s.PIDs.Count)
		}},
	{describe("container_egress_sent_bytes_total", "Bytes sent to hosts.", "container", "project"),
		prometheus.CounterValue, func(s *berth.ContainerStats) float64 {
			return float64(s.Egress.BytesSent)
		}},
	{describe("container_egress_received_bytes_total", "Bytes received from hosts.", "container", "project"),
		prometheus.CounterValue, func(s *berth.ContainerStats) float64 {
			return float64(s.Egress.BytesReceived)
		}},
	{describe("container_egress_allowed_total", "Connections that reached their host.", "container", "project"),
		prometheus.CounterValue, func(s *berth.ContainerStats) float64 {
			return float64(s.Egress.Allowed)
		}},
	{describe("container_egress_refused_total", "Refused connections and name lookups.", "container", "project"),
		prometheus.CounterValue, func(s *berth.ContainerStats) float64 {
			return float64(s.Egress.Refused)
		}},
}

func containerDescs() []*prometheus.Desc {
	descs := []*prometheus.Desc{descRunning, descAsleep}
	for _, f := range figures {
		descs = append(descs, f.desc)
	}
	return descs
}

func emitContainers(ctx context.Context, c Containers, emit emitFunc) {
	all := c.Readings(ctx)
	running, asleep := map[[2]string]int{}, map[[2]string]int{}
	for _, r := range all {
		labels := [2]string{r.MemoryLimit, r.Isolation}
		running[labels]++
		if r.Asleep {
			asleep[labels]++
		}
	}
	for labels, n := range running {
		emit(descRunning, prometheus.GaugeValue, float64(n), labels[0], labels[1])
		emit(descAsleep, prometheus.GaugeValue, float64(asleep[labels]), labels[0], labels[1])
	}
	slices.SortFunc(all, func(a, b container.Reading) int {
		return cmp.Compare(a.Stats.ContainerID, b.Stats.ContainerID)
	})
	for _, r := range all[:min(len(all), maxReadings)] {
		for _, f := range figures {
			emit(f.desc, f.kind, f.of(r.Stats), string(r.Stats.ContainerID), string(r.Project))
		}
	}
}

// emitPools emits the samples of all pools. The configuration bounds their number.
func emitPools(pools []container.PoolStats, emit emitFunc) {
	for _, p := range pools {
		template := cmp.Or(p.Template, "default")
		emit(descPoolSize, prometheus.GaugeValue, float64(p.Size), template, p.MemoryLimit)
		emit(descPoolWant, prometheus.GaugeValue, float64(p.Target), template, p.MemoryLimit)
		emit(descPoolReady, prometheus.GaugeValue, float64(p.Ready), template, p.MemoryLimit)
		emit(descPoolHits, prometheus.CounterValue, float64(p.Hits), template, p.MemoryLimit)
		emit(descPoolMiss, prometheus.CounterValue, float64(p.Misses), template, p.MemoryLimit)
	}
}
