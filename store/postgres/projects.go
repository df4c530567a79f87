package postgres

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
	"github.com/berth-run/berth/store/postgres/query"
)

func (d accounts) ProjectResponses(ctx context.Context, p berth.ProjectID, limit int) ([]berth.ResponseID, error) {
	rows, err := d.queries.ProjectResponses(ctx, query.ProjectResponsesParams{Project: string(p), N: int64(limit)})
	if err != nil {
		return nil, wrap(err)
	}
	ids := make([]berth.ResponseID, len(rows))
	for i, id := range rows {
		ids[i] = berth.ResponseID(id)
	}
	return ids, nil
}

func (d accounts) ProjectObjects(ctx context.Context, p berth.ProjectID, limit int) ([]store.ObjectKey, error) {
	rows, err := d.queries.ProjectObjects(ctx, query.ProjectObjectsParams{Project: string(p), N: int64(limit)})
	if err != nil {
		return nil, wrap(err)
	}
	keys := make([]store.ObjectKey, len(rows))
	for i, r := range rows {
		keys[i] = store.ObjectKey{Kind: store.Kind(r.Kind), ID: r.ID}
	}
	return keys, nil
}

func (d accounts) StoredBytes(ctx context.Context, p berth.ProjectID) (int64, error) {
	n, err := d.queries.StoredBytes(ctx, string(p))
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, nil
	}
	return n, wrap(err)
}
