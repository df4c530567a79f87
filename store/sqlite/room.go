package sqlite

import (
	"context"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
	"github.com/berth-run/berth/store/sqlite/query"
)

func (d responses) ResponseState(ctx context.Context, p berth.ProjectID, id berth.ResponseID) (store.ResponseState,
	error) {
	size, err := d.queries.ResponseSize(ctx, query.ResponseSizeParams{ID: string(id), Project: string(p)})
	return store.ResponseState{Stored: size.Stored != 0, Final: size.Final != 0}, d.wrap(err)
}

func (d responses) ReadResponse(ctx context.Context, p berth.ProjectID, id berth.ResponseID) ([][]byte, error) {
	size, err := d.queries.ResponseSize(ctx, query.ResponseSizeParams{ID: string(id), Project: string(p)})
	if err != nil {
		return nil, d.wrap(err)
	}
	if err := store.Reserve(ctx, size.Body); err != nil {
		return nil, err
	}
	row, err := d.queries.GetBody(ctx, string(id))
	if err != nil {
		return nil, d.wrap(err)
	}
	store.ReturnUndecoded(ctx, size.Body)
	pieces, err := d.keys.Opener().ResponseJSON(ctx, row.Body, row.Output)
	if err != nil {
		return nil, d.damaged("response "+string(id)+": ", err)
	}
	return pieces, nil
}

// page returns the first row and the last event of a page above after, and the size of its
// rows. If there are no events, last is not above after.
func (d responses) page(ctx context.Context, id berth.ResponseID, after int64, limit int) (first, last, bytes int64,
	err error) {
	sizes, err := d.queries.EventSizes(ctx, query.EventSizesParams{Response: string(id), Next: after + 1,
		Most: int64(limit)})
	if err != nil || len(sizes) == 0 {
		return 0, after, 0, err
	}
	list := make([]store.Size, len(sizes))
	for i, s := range sizes {
		list[i] = store.Size{SequenceNumber: s.SequenceNumber + s.Span - 1, Bytes: s.Bytes}
	}
	last, bytes = store.EventPage(after, list)
	return sizes[0].SequenceNumber, last, bytes, nil
}
