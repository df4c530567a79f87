package container

import (
	"sync"

	"github.com/berth-run/berth"
)

// maxSamples is the number of samples that a history has at most.
const maxSamples = 180

// A history is the resource use of a container over its life. When it is full, it drops every other sample and takes
// them half as often, so it always reaches back to the start of the sandbox, or of the server.
type history struct {
	mu      sync.Mutex
	samples []berth.StatsSample
	every   int64 // least seconds between two samples
}

// add adds a sample, unless it comes too early after the last.
func (h *history) add(s berth.StatsSample) {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := len(h.samples)
	if n > 0 && s.At-h.samples[n-1].At < h.every {
		return
	}
	if n == maxSamples {
		for i := range n / 2 {
			h.samples[i] = h.samples[2*i]
		}
		h.samples = h.samples[:n/2]
		h.every = 2 * max(h.every, int64(checkInterval.Seconds()))
	}
	h.samples = append(h.samples, s)
}

// all returns the samples, the oldest first.
func (h *history) all() []berth.StatsSample {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]berth.StatsSample{}, h.samples...)
}
