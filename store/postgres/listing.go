package postgres

import (
	"context"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
	"github.com/berth-run/berth/store/postgres/query"
)

// above is greater than every id.
const above = "\x7f"

func (d responses) ListResponses(ctx context.Context, p berth.ProjectID, q store.ResponseQuery) (list []*berth.Response,
	next berth.ResponseID, err error) {
	if q.After != "" {
		if err := absentOr(ctx, d.queries, p, q.After, nil); err != nil {
			return nil, "", wrap(err)
		}
	}
	o := d.keys.Opener()
	return q.List(ctx, func(q store.ResponseQuery, n int64) ([]store.FoundResponse, error) {
		return d.responsesAfter(ctx, p, q, n)
	}, func(id string) (*berth.Response, error) {
		box, err := d.queries.BareBody(ctx, query.BareBodyParams{ID: id, Project: string(p)})
		if err != nil {
			return nil, wrap(err)
		}
		r, err := o.ResponseBody(ctx, box)
		if err != nil {
			return nil, damaged("response "+id+": ", err)
		}
		return r, nil
	})
}

// responsesAfter returns at most n responses after q.After, of any model.
func (d responses) responsesAfter(ctx context.Context, p berth.ProjectID, q store.ResponseQuery,
	n int64) ([]store.FoundResponse, error) {
	var found []store.FoundResponse
	if q.Ascending {
		rows, err := d.queries.NewerResponses(ctx, query.NewerResponsesParams{Project: string(p),
			After: string(q.After), Open: q.Open(), Most: n})
		for _, r := range rows {
			found = append(found, store.FoundResponse(r))
		}
		return found, wrap(err)
	}
	after := string(q.After)
	if after == "" {
		after = above
	}
	rows, err := d.queries.OlderResponses(ctx, query.OlderResponsesParams{Project: string(p), After: after,
		Open: q.Open(), Most: n})
	for _, r := range rows {
		found = append(found, store.FoundResponse(r))
	}
	return found, wrap(err)
}
