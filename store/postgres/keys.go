package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store/postgres/query"
)

func (d accounts) CreateKey(ctx context.Context, k *berth.Key) error {
	return d.update(ctx, func(ctx context.Context, q *transaction) error {
		return q.CreateKey(ctx, query.CreateKeyParams{ID: string(k.ID), Project: string(k.Project), Name: k.Name,
			Hash: k.Hash[:], Tail: k.Tail, CreatedAt: k.CreatedAt, ExpiresAt: k.ExpiresAt,
			CostPerMonth: (*int64)(k.Limits.CostPerMonth)})
	})
}

func (d accounts) KeyByHash(ctx context.Context, hash [32]byte) (*berth.Key, error) {
	row, err := d.queries.KeyByHash(ctx, hash[:])
	if err != nil {
		return nil, wrap(err)
	}
	return &berth.Key{ID: berth.KeyID(row.ID), Project: berth.ProjectID(row.Project), Name: row.Name, Hash: hash,
		Tail: row.Tail, CreatedAt: row.CreatedAt, ExpiresAt: row.ExpiresAt,
		Limits: berth.KeyLimits{CostPerMonth: (*berth.Amount)(row.CostPerMonth)}}, nil
}

func (d accounts) ListKeys(ctx context.Context) ([]*berth.Key, error) {
	rows, err := d.queries.ListKeys(ctx)
	if err != nil {
		return nil, wrap(err)
	}
	keys := make([]*berth.Key, len(rows))
	for i, r := range rows {
		if len(r.Hash) != 32 {
			return nil, fmt.Errorf("postgres: key %s: its hash has %d bytes", r.ID, len(r.Hash))
		}
		keys[i] = &berth.Key{ID: berth.KeyID(r.ID), Project: berth.ProjectID(r.Project), Name: r.Name,
			Hash: [32]byte(r.Hash), Tail: r.Tail, CreatedAt: r.CreatedAt, ExpiresAt: r.ExpiresAt,
			Limits: berth.KeyLimits{CostPerMonth: (*berth.Amount)(r.CostPerMonth)}}
	}
	return keys, nil
}

func (d accounts) DeleteKey(ctx context.Context, id berth.KeyID) error {
	return d.update(ctx, func(ctx context.Context, q *transaction) error {
		return found(q.DeleteKey(ctx, string(id)))
	})
}

func (d accounts) KeyLimits(ctx context.Context, id berth.KeyID) (berth.KeyLimits, error) {
	cost, err := d.queries.KeyLimit(ctx, string(id))
	if errors.Is(err, pgx.ErrNoRows) {
		return berth.KeyLimits{}, nil
	}
	return berth.KeyLimits{CostPerMonth: (*berth.Amount)(cost)}, wrap(err)
}

func (d accounts) SetKeyLimits(ctx context.Context, id berth.KeyID, limits berth.KeyLimits) error {
	return d.update(ctx, func(ctx context.Context, q *transaction) error {
		return found(q.SetKeyLimit(ctx, query.SetKeyLimitParams{CostPerMonth: (*int64)(limits.CostPerMonth),
			ID: string(id)}))
	})
}
