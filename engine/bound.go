package engine

import (
	"github.com/berth-run/berth"
	"github.com/berth-run/berth/model"
)

const (
	// defaultOutput bounds the bytes that models may say in one response, unless
	// Options say otherwise.
	defaultOutput = 16 << 20
	// deltaOverhead is what each piece counts beside its text, so that an endless
	// answer of empty pieces ends as well.
	deltaOverhead = 16
	// maxItems is how many items the output of one response may have.
	maxItems = 10_000
)

// sizeOfDelta returns what a delta counts.
func sizeOfDelta(delta model.Delta) int64 {
	n := deltaOverhead
	switch d := delta.(type) {
	case model.Text:
		n += len(d.Text)
		for _, raw := range d.Logprobs {
			n += len(raw)
		}
	case model.Refusal:
		n += len(d.Text)
	case model.Thought:
		n += len(d.Text)
	case model.Call:
		n += len(d.ID) + len(d.Name) + len(d.Arguments)
	case model.Item:
		n += len(d.Item.Raw())
	}
	return int64(n)
}

// overflows counts a delta and reports whether the response has said all that it may.
func (s *speech) overflows(delta model.Delta) bool {
	s.run.said += sizeOfDelta(delta)
	return s.run.said > s.run.engine.Limits.Output || s.next >= maxItems
}

// saidBefore returns what the stored events of a response count.
func saidBefore(told []berth.Event) (n int64) {
	for i := range told {
		if text, ok := told[i].DeltaText(); ok {
			n += int64(deltaOverhead + len(text))
		}
	}
	return n
}
