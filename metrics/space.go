package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/berth-run/berth/diskspace"
)

// Space reports on free disk space. *diskspace.Guard implements it.
type Space interface {
	Readings() []diskspace.Reading
	Reserve() (held, want int64)
	Refusals() int64
}

var (
	descStateBytes = describe("state_bytes", "Size of the volume of a part of the state.", "area")
	descStateFree  = describe("state_free_bytes", "Free bytes of the volume of a part of the state.", "area")
	descStateFloor = describe("state_floor_bytes",
		"Free bytes below which writes are refused (low), or the container that writes most is ended (critical).",
		"area", "floor")
	descStateInodes = describe("state_free_inodes",
		"Free inodes of the volume of a part of the state, for file systems with a fixed number.", "area")
	descStateLow = describe("state_low",
		"1 if writes to a part of the state are refused for lack of bytes or inodes.", "area")
	descStateReserve  = describe("state_reserve_bytes", "Bytes reserved for deletions.")
	descStateReserved = describe("state_reserve_target_bytes", "Configured size of the reserve for deletions.")
	descStateRefused  = describe("state_refused_total", "Writes refused for lack of disk space.")

	spaceDescs = []*prometheus.Desc{descStateBytes, descStateFree, descStateFloor, descStateInodes, descStateLow,
		descStateReserve, descStateReserved, descStateRefused}
)

// emitSpace emits the free space of all areas.
func emitSpace(s Space, emit emitFunc) {
	for _, r := range s.Readings() {
		area := string(r.Area)
		emit(descStateBytes, prometheus.GaugeValue, float64(r.Bytes), area)
		emit(descStateFree, prometheus.GaugeValue, float64(r.Free), area)
		emit(descStateFloor, prometheus.GaugeValue, float64(r.Low), area, "low")
		emit(descStateFloor, prometheus.GaugeValue, float64(r.Critical), area, "critical")
		if r.Inodes > 0 {
			emit(descStateInodes, prometheus.GaugeValue, float64(r.InodesFree), area)
		}
		low := 0.0
		if r.IsLow {
			low = 1
		}
		emit(descStateLow, prometheus.GaugeValue, low, area)
	}
	held, want := s.Reserve()
	emit(descStateReserve, prometheus.GaugeValue, float64(held))
	emit(descStateReserved, prometheus.GaugeValue, float64(want))
	emit(descStateRefused, prometheus.CounterValue, float64(s.Refusals()))
}
