package container

import (
	"testing"

	"github.com/berth-run/berth"
)

// TestHistory: a history has at most its number of samples, reaches back to the first, and is even.
func TestHistory(t *testing.T) {
	var h history
	const seconds = 100_000
	for at := range int64(seconds / 10) {
		h.add(berth.StatsSample{At: 10 * at, MemoryBytes: at})
		if n := len(h.all()); n == 0 || n > maxSamples {
			t.Fatalf("after %d samples it has %d", at+1, n)
		}
	}
	all := h.all()
	if all[0].At != 0 || len(all) < maxSamples/2 {
		t.Errorf("it has %d samples from %d on", len(all), all[0].At)
	}
	step := all[1].At - all[0].At
	for i := 1; i < len(all); i++ {
		if got := all[i].At - all[i-1].At; got < step/2 || got > 2*step {
			t.Errorf("sample %d comes %d seconds after the one before, others %d", i, got, step)
		}
	}
	if last := all[len(all)-1].At; seconds-last > 2*step {
		t.Errorf("the last sample is of second %d of %d", last, seconds)
	}
	all[0].MemoryBytes = -1
	if h.all()[0].MemoryBytes == -1 {
		t.Error("a caller can change it")
	}
}

// TestStatsHistory: a check of the sandbox adds a sample of what the driver reads.
func TestStatsHistory(t *testing.T) {
	h := newHarness(t)
	id := h.ready()
	before, err := h.k.StatsHistory(t.Context(), mine, id)
	if err != nil {
		t.Fatal(err)
	}
	h.pass(checkInterval)
	h.k.sweeper.sweep(t.Context())
	after, err := h.k.StatsHistory(t.Context(), mine, id)
	if err != nil || len(after) != len(before)+1 {
		t.Fatalf("got %d samples after %d, %v", len(after), len(before), err)
	}
	if at := after[len(after)-1].At; at != h.k.opts.clock.Now().Unix() {
		t.Errorf("the sample is of %d", at)
	}
	if _, err := h.k.StatsHistory(t.Context(), "proj_other", id); berth.ErrorCode(err) != berth.CodeNotFound {
		t.Errorf("another project got %v", err)
	}
}
