package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store/sqlite/query"
)

func (d accounts) CreateKey(ctx context.Context, k *berth.Key) error {
	return d.update(ctx, func(ctx context.Context, q *query.Queries) error {
		return q.CreateKey(ctx, query.CreateKeyParams{ID: string(k.ID), Project: string(k.Project), Name: k.Name,
			Hash: k.Hash[:], Tail: k.Tail, CreatedAt: k.CreatedAt, ExpiresAt: k.ExpiresAt,
			CostPerMonth: nullable(k.Limits.CostPerMonth)})
	})
}

func (d accounts) KeyByHash(ctx context.Context, hash [32]byte) (*berth.Key, error) {
	row, err := d.queries.KeyByHash(ctx, hash[:])
	if err != nil {
		return nil, d.wrap(err)
	}
	return &berth.Key{ID: berth.KeyID(row.ID), Project: berth.ProjectID(row.Project), Name: row.Name, Hash: hash,
		Tail: row.Tail, CreatedAt: row.CreatedAt, ExpiresAt: row.ExpiresAt,
		Limits: keyLimits(row.CostPerMonth)}, nil
}

func (d accounts) ListKeys(ctx context.Context) ([]*berth.Key, error) {
	rows, err := d.queries.ListKeys(ctx)
	if err != nil {
		return nil, d.wrap(err)
	}
	keys := make([]*berth.Key, len(rows))
	for i, r := range rows {
		if len(r.Hash) != 32 {
			return nil, fmt.Errorf("sqlite: %s: key %s: its hash has %d bytes", d.path, r.ID, len(r.Hash))
		}
		keys[i] = &berth.Key{ID: berth.KeyID(r.ID), Project: berth.ProjectID(r.Project), Name: r.Name,
			Hash: [32]byte(r.Hash), Tail: r.Tail, CreatedAt: r.CreatedAt, ExpiresAt: r.ExpiresAt,
			Limits: keyLimits(r.CostPerMonth)}
	}
	return keys, nil
}

func (d accounts) DeleteKey(ctx context.Context, id berth.KeyID) error {
	return d.settle(ctx, func(ctx context.Context, q *query.Queries) error {
		return found(q.DeleteKey(ctx, string(id)))
	})
}

func (d accounts) KeyLimits(ctx context.Context, id berth.KeyID) (berth.KeyLimits, error) {
	cost, err := d.queries.KeyLimit(ctx, string(id))
	if errors.Is(err, sql.ErrNoRows) {
		return berth.KeyLimits{}, nil
	}
	return keyLimits(cost), d.wrap(err)
}

func (d accounts) SetKeyLimits(ctx context.Context, id berth.KeyID, limits berth.KeyLimits) error {
	return d.update(ctx, func(ctx context.Context, q *query.Queries) error {
		return found(q.SetKeyLimit(ctx, query.SetKeyLimitParams{CostPerMonth: nullable(limits.CostPerMonth),
			ID: string(id)}))
	})
}

// nullable returns an amount as a column; nil is NULL.
func nullable(a *berth.Amount) sql.NullInt64 {
	if a == nil {
		return sql.NullInt64{}
	}
	return sql.NullInt64{Int64: int64(*a), Valid: true}
}

func keyLimits(cost sql.NullInt64) berth.KeyLimits {
	if !cost.Valid {
		return berth.KeyLimits{}
	}
	amount := berth.Amount(cost.Int64)
	return berth.KeyLimits{CostPerMonth: &amount}
}
