package fastpath

import (
	"reflect"
	"testing"
)

// measure pretends that in each direction some calls took that many buckets.
func measure(stub, sentry int) {
	for range 10 {
		latencies.stub[stub].Add(1)
		latencies.sentry[sentry].Add(1)
	}
}

// gVisor's functions see what is done through these variables, and the reverse.
func TestLayout(t *testing.T) {
	if !known() {
		t.Fatalf("gVisor's variables are not what they were: %d %d %v", fastpath.stubBackoff, fastpath.sentryBackoff, fastpath.decide != nil)
	}
	off := reflect.ValueOf(fastpath.decide).Pointer()
	for range backoffMin {
		if fastpath.sentryEnabled.Load() {
			t.Error("it spins without having measured")
		}
		measure(3, 5)
		if !decide() {
			t.Error("measurements are not seen")
		}
	}
	if latencies.total() != 0 || fastpath.stubBaseline[3].Load() != 20 || fastpath.sentryBaseline[5].Load() != 20 {
		t.Error("measurements have not become the baseline")
	}
	if fastpath.sentryBackoff != 0 || !fastpath.sentryEnabled.Load() || fastpath.stubEnabled.Load() || reflect.ValueOf(fastpath.decide).Pointer() == off {
		t.Errorf("after %d periods: %d %v %v", backoffMin, fastpath.sentryBackoff, fastpath.sentryEnabled.Load(), fastpath.stubEnabled.Load())
	}
	for range 2 { // spinning makes it slower
		fastpath.usedSentry.Store(true)
		measure(70, 70)
		decide()
	}
	if fastpath.sentryEnabled.Load() || fastpath.sentryFailures != 1 {
		t.Errorf("it still spins: %v, %d", fastpath.sentryEnabled.Load(), fastpath.sentryFailures)
	}
}

// Without measurements a decision changes nothing, so that it may as well be late.
func TestIdle(t *testing.T) {
	before := [4]int{fastpath.stubBackoff, fastpath.sentryBackoff, fastpath.stubFailures, fastpath.sentryFailures}
	latencies = recorder{}
	left = 0
	for range 100 {
		if decide() {
			t.Fatal("there is nothing to see")
		}
	}
	if after := [4]int{fastpath.stubBackoff, fastpath.sentryBackoff, fastpath.stubFailures, fastpath.sentryFailures}; after != before {
		t.Errorf("%v has become %v", before, after)
	}
}
