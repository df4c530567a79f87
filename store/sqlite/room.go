package sqlite

import (
	"context"
	"errors"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/internal/jsonscan"
	"github.com/berth-run/berth/internal/ration"
	"github.com/berth-run/berth/store"
	"github.com/berth-run/berth/store/sqlite/query"
)

// readFactor is how much memory it takes to read a byte: the driver's copy, the copy
// of database/sql, and what is decoded from it.
const readFactor = 3

// reserve takes room for reading n bytes from the account that the context carries.
func reserve(ctx context.Context, n int64) error {
	return ration.From(ctx).Reserve(ctx, readFactor*n)
}

// counts reports whether the context carries an account, so that sizes are of use.
func counts(ctx context.Context) bool { return ration.From(ctx) != nil }

func (d *DB) ResponseState(ctx context.Context, p berth.ProjectID, id berth.ResponseID) (store.ResponseState, error) {
	size, err := d.queries.ResponseSize(ctx, query.ResponseSizeParams{ID: string(id), Project: string(p)})
	return store.ResponseState{Stored: size.Stored != 0, Final: size.Final != 0}, d.wrap(err)
}

func (d *DB) ReadResponse(ctx context.Context, p berth.ProjectID, id berth.ResponseID) ([][]byte, error) {
	size, err := d.queries.ResponseSize(ctx, query.ResponseSizeParams{ID: string(id), Project: string(p)})
	if err != nil {
		return nil, d.wrap(err)
	}
	if err := reserve(ctx, size.Body); err != nil {
		return nil, err
	}
	row, err := d.queries.GetBody(ctx, string(id))
	if err != nil {
		return nil, d.wrap(err)
	}
	ration.From(ctx).Return((readFactor - 1) * size.Body)
	o := d.opener()
	body, err := o.open(boxBody, row.Body)
	if err != nil {
		return nil, d.damaged("response "+string(id)+": ", err)
	}
	output, err := o.open(boxOutput, row.Output)
	if err != nil {
		return nil, d.damaged("response "+string(id)+": ", err)
	}
	start, end, ok := jsonscan.Field(body, "output")
	if !ok {
		return nil, d.damaged("response "+string(id)+": ", errors.New("it has no place for its output"))
	}
	return [][]byte{body[:start], output, body[end:]}, nil
}

// page returns the last event of a page that begins above after, and the size of the
// page. Without an event it returns after.
func (d *DB) page(ctx context.Context, id berth.ResponseID, after int64, limit int) (last, bytes int64, err error) {
	sizes, err := d.queries.EventSizes(ctx, query.EventSizesParams{Response: string(id), SequenceNumber: after, Limit: int64(limit)})
	if err != nil {
		return 0, 0, err
	}
	last = after
	for _, s := range sizes {
		if last != after && bytes+s.Bytes > store.PageBytes {
			break
		}
		last, bytes = s.SequenceNumber, bytes+s.Bytes
	}
	return last, bytes, nil
}

// fit shortens a page of objects to what may be read of it: to the bytes that the page
// asks for, but at least one object. It returns how many objects are left, and whether
// there are more.
func (d *DB) fit(ctx context.Context, args query.ListObjectsAscendingParams, ascending bool, page store.Page) (n int, more bool, err error) {
	if page.Bytes == 0 && !counts(ctx) {
		return page.Limit, false, nil
	}
	var sizes []int64
	if ascending {
		sizes, err = d.queries.ObjectSizesAscending(ctx, query.ObjectSizesAscendingParams(args))
	} else {
		sizes, err = d.queries.ObjectSizesDescending(ctx, query.ObjectSizesDescendingParams(args))
	}
	if err != nil {
		return 0, false, d.wrap(err)
	}
	var bytes int64
	for n < len(sizes) && n < page.Limit && (n == 0 || page.Bytes == 0 || bytes+sizes[n] <= page.Bytes) {
		bytes += sizes[n]
		n++
	}
	if len(sizes) <= page.Limit && n == len(sizes) {
		return page.Limit, false, reserve(ctx, bytes) // what comes meanwhile may join
	}
	return n, true, reserve(ctx, bytes)
}
