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
	descRunning   = describe("containers", "Containers that run.", "memory_limit", "isolation")
	descPoolSize  = describe("pool_size", "Sandboxes that the pool is to hold.", "template", "memory_limit")
	descPoolReady = describe("pool_ready", "Sandboxes that the pool holds.", "template", "memory_limit")
	descPoolHits  = describe("pool_hits_total", "Containers that were given a sandbox of the pool.", "template", "memory_limit")
	descPoolMiss  = describe("pool_misses_total", "Containers that could have been given one and were started cold.", "template", "memory_limit")

	poolDescs = []*prometheus.Desc{descPoolSize, descPoolReady, descPoolHits, descPoolMiss}
)

// A figure is one of a container's.
type figure struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
	of   func(*berth.ContainerStats) float64
}

// figures are told of each running container.
var figures = []figure{
	{describe("container_cpu_seconds_total", "Processor time.", "container", "project"), prometheus.CounterValue, func(s *berth.ContainerStats) float64 { return s.CPUSeconds }},
	{describe("container_memory_bytes", "Memory in use.", "container", "project"), prometheus.GaugeValue, func(s *berth.ContainerStats) float64 { return float64(s.Memory.Bytes) }},
	{describe("container_memory_limit_bytes", "Memory that may be used.", "container", "project"), prometheus.GaugeValue, func(s *berth.ContainerStats) float64 { return float64(s.Memory.LimitBytes) }},
	{describe("container_disk_bytes", "Bytes written above the template.", "container", "project"), prometheus.GaugeValue, func(s *berth.ContainerStats) float64 { return float64(s.Disk.Bytes) }},
	{describe("container_pids", "Processes and threads.", "container", "project"), prometheus.GaugeValue, func(s *berth.ContainerStats) float64 { return float64(s.PIDs.Count) }},
	{describe("container_egress_sent_bytes_total", "Bytes sent to hosts.", "container", "project"), prometheus.CounterValue, func(s *berth.ContainerStats) float64 { return float64(s.Egress.BytesSent) }},
	{describe("container_egress_received_bytes_total", "Bytes received from hosts.", "container", "project"), prometheus.CounterValue, func(s *berth.ContainerStats) float64 { return float64(s.Egress.BytesReceived) }},
	{describe("container_egress_allowed_total", "Connections that reached their host.", "container", "project"), prometheus.CounterValue, func(s *berth.ContainerStats) float64 { return float64(s.Egress.Allowed) }},
	{describe("container_egress_refused_total", "Connections and names that were refused.", "container", "project"), prometheus.CounterValue, func(s *berth.ContainerStats) float64 { return float64(s.Egress.Refused) }},
}

func containerDescs() []*prometheus.Desc {
	descs := []*prometheus.Desc{descRunning}
	for _, f := range figures {
		descs = append(descs, f.desc)
	}
	return descs
}

func tellContainers(ctx context.Context, c Containers, tell teller) {
	all := c.Readings(ctx)
	running := map[[2]string]int{}
	for _, r := range all {
		running[[2]string{r.MemoryLimit, r.Isolation}]++
	}
	for labels, n := range running {
		tell(descRunning, prometheus.GaugeValue, float64(n), labels[0], labels[1])
	}
	slices.SortFunc(all, func(a, b container.Reading) int { return cmp.Compare(a.Stats.ContainerID, b.Stats.ContainerID) })
	for _, r := range all[:min(len(all), maxReadings)] {
		for _, f := range figures {
			tell(f.desc, f.kind, f.of(r.Stats), string(r.Stats.ContainerID), string(r.Project))
		}
	}
}

// tellPools tells of each pool; their number is the configuration's.
func tellPools(pools []container.PoolStats, tell teller) {
	for _, p := range pools {
		template := cmp.Or(p.Template, "default")
		tell(descPoolSize, prometheus.GaugeValue, float64(p.Size), template, p.MemoryLimit)
		tell(descPoolReady, prometheus.GaugeValue, float64(p.Ready), template, p.MemoryLimit)
		tell(descPoolHits, prometheus.CounterValue, float64(p.Hits), template, p.MemoryLimit)
		tell(descPoolMiss, prometheus.CounterValue, float64(p.Misses), template, p.MemoryLimit)
	}
}
