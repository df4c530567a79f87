package engine

import (
	"github.com/berth-run/berth"
	"github.com/berth-run/berth/model"
)

const (
	// defaultOutput is the default of Limits.Output.
	defaultOutput = 16 << 20
	// deltaOverhead is added to the size of each delta, so that an endless stream of
	// empty deltas reaches the limit as well.
	deltaOverhead = 16
	// imageShare is the part of an image's bytes that counts for Limits.Output: the limit is
	// meant for text, and one image has megabytes.
	imageShare = 16
	// maxItems bounds the items in the output of one response.
	maxItems = 10_000
)

// sizeOfDelta returns the bytes that a delta counts for Limits.Output.
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
	case model.Native:
		if n += len(d.Event.PartialImage) / imageShare; d.Event.Item != nil {
			n += len(d.Event.Item.Raw()) / imageShare
		}
	}
	return int64(n)
}

// overflows counts a delta and reports whether the response has exceeded its output limit.
func (w *turnWriter) overflows(delta model.Delta) bool {
	w.run.written += sizeOfDelta(delta)
	return w.run.written > w.run.engine.Limits.Output || w.next >= maxItems
}

// writtenBefore returns the bytes that stored events count for Limits.Output.
func writtenBefore(stored []berth.Event) (n int64) {
	for i := range stored {
		if text, ok := stored[i].DeltaText(); ok {
			n += int64(deltaOverhead + len(text))
		}
	}
	return n
}
