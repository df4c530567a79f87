package store

import (
	"context"

	"github.com/berth-run/berth/internal/ration"
)

// Large content is read within the ration.Account of a context. A database determines
// the size of what it is about to read, and calls Reserve first.

// readFactor is the memory needed to read a byte: the copies of the database's client
// and of the row, and the decoded value.
const readFactor = 3

// Reserve reserves memory to read and decode n bytes of boxes or bodies.
func Reserve(ctx context.Context, n int64) error {
	return ration.From(ctx).Reserve(ctx, readFactor*n)
}

// ReturnUndecoded returns the part of a Reserve that is for decoding n bytes.
func ReturnUndecoded(ctx context.Context, n int64) {
	ration.From(ctx).Return((readFactor - 1) * n)
}

// Reserves reports whether Reserve has an effect, so that sizes are needed.
func Reserves(ctx context.Context) bool { return ration.From(ctx) != nil }

// A Size is the size of an event.
type Size struct{ SequenceNumber, Bytes int64 }

// EventPage returns the sequence number of a page's last event, and the page's size.
// sizes are those of the events above after. If there are none, it returns after.
func EventPage(after int64, sizes []Size) (last, bytes int64) {
	last = after
	for _, s := range sizes {
		if last != after && bytes+s.Bytes > PageBytes {
			break
		}
		last, bytes = s.SequenceNumber, bytes+s.Bytes
	}
	return last, bytes
}

// Sized reports whether a database must call Fit before it reads a page of objects.
func Sized(ctx context.Context, p Page) bool { return p.Bytes != 0 || Reserves(ctx) }

// Fit shortens a page of objects to p.Bytes, but to at least one object, and reserves
// memory for it. sizes are those of the page's objects and of the next, if any. Fit
// returns the number of objects to read, and whether the page was shortened.
func Fit(ctx context.Context, p Page, sizes []int64) (n int, shortened bool, err error) {
	var bytes int64
	for n < len(sizes) && n < p.Limit && (n == 0 || p.Bytes == 0 || bytes+sizes[n] <= p.Bytes) {
		bytes += sizes[n]
		n++
	}
	if len(sizes) <= p.Limit && n == len(sizes) {
		return p.Limit, false, Reserve(ctx, bytes) // objects created since may join
	}
	return n, true, Reserve(ctx, bytes)
}
