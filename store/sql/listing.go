package sql

import (
	"context"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
)

// above is greater than every id.
const above = "\x7f"

// Queries for stored responses above or below an id, in the order of their creation. $3 is true
// for those in progress, false for those that have ended, and NULL for both.
const (
	selectResponses = `SELECT r.id, r.key, CAST(octet_length(b.body) AS bigint) FROM responses r
		JOIN bodies b ON b.response = r.id
		WHERE r.project = $1 AND NOT r.deleted AND r.stored AND r.final IS DISTINCT FROM $3`
	newerResponses = selectResponses + ` AND r.id > $2 ORDER BY r.id LIMIT $4`
	olderResponses = selectResponses + ` AND r.id < $2 ORDER BY r.id DESC LIMIT $4`
)

func (d responses) ListResponses(ctx context.Context, p berth.ProjectID, q store.ResponseQuery) (list []*store.Listed,
	next berth.ResponseID, err error) {
	if q.After != "" {
		if err := absentOr(ctx, d.driver, p, q.After, nil); err != nil {
			return nil, "", d.driver.Convert(err)
		}
	}
	o := d.keys.Opener()
	return q.List(ctx, func(q store.ResponseQuery, n int64) ([]store.FoundResponse, error) {
		return d.responsesAfter(ctx, p, q, n)
	}, func(id string) (*berth.Response, error) {
		var box []byte
		if err := d.read(ctx, `SELECT b.body FROM responses r JOIN bodies b ON b.response = r.id
			WHERE r.id = $1 AND r.project = $2 AND NOT r.deleted`, in{id, p}, &box); err != nil {
			return nil, err
		}
		r, err := o.ResponseBody(ctx, box)
		if err != nil {
			return nil, d.damaged("response "+id+": ", err)
		}
		return r, nil
	})
}

// responsesAfter returns at most n responses after q.After, of any model.
func (d responses) responsesAfter(ctx context.Context, p berth.ProjectID, q store.ResponseQuery,
	n int64) ([]store.FoundResponse, error) {
	text, after := newerResponses, string(q.After)
	if !q.Ascending {
		text = olderResponses
		if after == "" {
			after = above
		}
	}
	found, err := List(ctx, d.driver, text, in{p, after, q.Open(), n},
		func(r *store.FoundResponse) []any { return []any{&r.ID, &r.Key, &r.Bytes} })
	return found, d.driver.Convert(err)
}
