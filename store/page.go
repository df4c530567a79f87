package store

import (
	"context"

	"github.com/berth-run/berth/internal/ration"
)

// What may be large is read within the ration.Account that a context carries. A database
// finds out the size of what it is about to read, and calls Reserve before it reads.

// readFactor is how much memory it takes to read a byte: the copy of the database's
// client, the row's, and what is decoded from it.
const readFactor = 3

// Reserve reserves memory for reading and decoding n bytes of boxes or bodies.
func Reserve(ctx context.Context, n int64) error {
	return ration.From(ctx).Reserve(ctx, readFactor*n)
}

// ReturnUndecoded returns the part of Reserve that decoding n bytes would take.
func ReturnUndecoded(ctx context.Context, n int64) {
	ration.From(ctx).Return((readFactor - 1) * n)
}

// Reserves reports whether Reserve does anything, so that sizes are of use.
func Reserves(ctx context.Context) bool { return ration.From(ctx) != nil }

// A Size is the size of an event.
type Size struct{ SequenceNumber, Bytes int64 }

// EventPage returns the sequence number of the last event of a page, and the size of the
// page. sizes are those of the events after a sequence number. If there are none,
// EventPage returns after.
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

// Sized reports whether a database has to call Fit before it reads a page of objects.
func (p Page) Sized(ctx context.Context) bool { return p.Bytes != 0 || Reserves(ctx) }

// Fit shortens a page of objects to p.Bytes, but to one object at least, and reserves
// memory for it. sizes are those of the page's objects and, if there is one, of the next.
// Fit returns how many objects to read, and whether the page was shortened.
func (p Page) Fit(ctx context.Context, sizes []int64) (n int, shortened bool, err error) {
	var bytes int64
	for n < len(sizes) && n < p.Limit && (n == 0 || p.Bytes == 0 || bytes+sizes[n] <= p.Bytes) {
		bytes += sizes[n]
		n++
	}
	if len(sizes) <= p.Limit && n == len(sizes) {
		return p.Limit, false, Reserve(ctx, bytes) // what is created meanwhile may join
	}
	return n, true, Reserve(ctx, bytes)
}
