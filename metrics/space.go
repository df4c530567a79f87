package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/berth-run/berth/diskspace"
)

// Space is what is asked about free disk space; *diskspace.Guard does.
type Space interface {
	Readings() []diskspace.Reading
	Reserve() (held, want int64)
	Refusals() int64
}

var (
	descStateBytes    = describe("state_bytes", "Size of the volume of a part of the state.", "area")
	descStateFree     = describe("state_free_bytes", "Free bytes of the volume of a part of the state.", "area")
	descStateFloor    = describe("state_floor_bytes", "Free bytes below which nothing new is stored (low), or the largest writer is ended (critical).", "area", "floor")
	descStateInodes   = describe("state_free_inodes", "Free inodes of the volume of a part of the state, if it has a fixed number.", "area")
	descStateLow      = describe("state_low", "1 if a part of the state takes nothing new because of bytes or inodes.", "area")
	descStateReserve  = describe("state_reserve_bytes", "Bytes that are held for deletions.")
	descStateReserved = describe("state_reserve_target_bytes", "Bytes that are to be held for deletions.")
	descStateRefused  = describe("state_refused_total", "Times that something new was refused for want of disk space.")

	spaceDescs = []*prometheus.Desc{descStateBytes, descStateFree, descStateFloor, descStateInodes, descStateLow, descStateReserve, descStateReserved, descStateRefused}
)

// tellSpace reports what is free.
func tellSpace(s Space, tell teller) {
	for _, r := range s.Readings() {
		area := string(r.Area)
		tell(descStateBytes, prometheus.GaugeValue, float64(r.Bytes), area)
		tell(descStateFree, prometheus.GaugeValue, float64(r.Free), area)
		tell(descStateFloor, prometheus.GaugeValue, float64(r.Low), area, "low")
		tell(descStateFloor, prometheus.GaugeValue, float64(r.Critical), area, "critical")
		if r.Inodes > 0 {
			tell(descStateInodes, prometheus.GaugeValue, float64(r.InodesFree), area)
		}
		low := 0.0
		if r.IsLow {
			low = 1
		}
		tell(descStateLow, prometheus.GaugeValue, low, area)
	}
	held, want := s.Reserve()
	tell(descStateReserve, prometheus.GaugeValue, float64(held))
	tell(descStateReserved, prometheus.GaugeValue, float64(want))
	tell(descStateRefused, prometheus.CounterValue, float64(s.Refusals()))
}
