package fastpath

import (
	"reflect"
	"testing"
)

// measure records calls of the given latencies in each direction.
func measure(stub, sentry int) {
	for range 10 {
		latencies.stub[stub].Add(1)
		latencies.sentry[sentry].Add(1)
	}
}

// The linked variables are those that gVisor's functions use.
func TestLayout(t *testing.T) {
	if !known() {
		t.Fatalf("gVisor's variables have unexpected values: %d %d %v", fastpath.stubBackoff, fastpath.sentryBackoff,
			fastpath.decide != nil)
	}
	off := reflect.ValueOf(fastpath.decide).Pointer()
	for range backoffMin {
		if fastpath.sentryEnabled.Load() {
			t.Error("spins without measurements")
		}
		measure(3, 5)
		if !decide() {
			t.Error("measurements have no effect")
		}
	}
	if latencies.total() != 0 || fastpath.stubBaseline[3].Load() != 20 || fastpath.sentryBaseline[5].Load() != 20 {
		t.Error("measurements have not become the baseline")
	}
	if fastpath.sentryBackoff != 0 || !fastpath.sentryEnabled.Load() || fastpath.stubEnabled.Load() ||
		reflect.ValueOf(fastpath.decide).Pointer() == off {
		t.Errorf("after %d periods: %d %v %v", backoffMin, fastpath.sentryBackoff, fastpath.sentryEnabled.Load(),
			fastpath.stubEnabled.Load())
	}
	for range 2 { // spinning increases latency
		fastpath.usedSentry.Store(true)
		measure(70, 70)
		decide()
	}
	if fastpath.sentryEnabled.Load() || fastpath.sentryFailures != 1 {
		t.Errorf("still spins: %v, %d", fastpath.sentryEnabled.Load(), fastpath.sentryFailures)
	}
}

// Without measurements, a decision changes nothing, so it can be delayed.
func TestIdle(t *testing.T) {
	before := [4]int{fastpath.stubBackoff, fastpath.sentryBackoff, fastpath.stubFailures, fastpath.sentryFailures}
	latencies = recorder{}
	left = 0
	for range 100 {
		if decide() {
			t.Fatal("no state to compare")
		}
	}
	if after := [4]int{fastpath.stubBackoff, fastpath.sentryBackoff, fastpath.stubFailures,
		fastpath.sentryFailures}; after != before {
		t.Errorf("state changed from %v to %v", before, after)
	}
}
