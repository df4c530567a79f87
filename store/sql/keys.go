package sql

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
)

func (d accounts) CreateKey(ctx context.Context, k *berth.Key) error {
	return d.driver.Update(ctx, func(ctx context.Context, tx *Tx) error {
		scope, err := json.Marshal(k.Scope)
		if err != nil {
			return fmt.Errorf("encode scope: %w", err)
		}
		return tx.Run(ctx, `INSERT INTO keys (id, project, name, hash, tail, created_at, expires_at, cost_per_month,
				owner, note, role, scope, last_used_at)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)`,
			k.ID, k.Project, k.Name, k.Hash[:], k.Tail, k.CreatedAt, k.ExpiresAt, (*int64)(k.Limits.CostPerMonth),
			k.Owner, k.Note, k.Role, string(scope), k.LastUsedAt)
	})
}

// A keyRow is a row of keys.
type keyRow struct {
	berth.Key
	hash  []byte
	cost  *int64 // per month
	scope string // JSON; empty for a key from before there were scopes
}

const selectKeys = `SELECT id, project, name, hash, tail, created_at, expires_at, cost_per_month, owner, note, role,
	scope, last_used_at FROM keys`

func (r *keyRow) columns() []any {
	return []any{&r.ID, &r.Project, &r.Name, &r.hash, &r.Tail, &r.CreatedAt, &r.ExpiresAt, &r.cost,
		&r.Owner, &r.Note, &r.Role, &r.scope, &r.LastUsedAt}
}

func (d accounts) key(r *keyRow) (*berth.Key, error) {
	if len(r.hash) != len(r.Hash) {
		return nil, fmt.Errorf("%s: key %s: its hash has %d bytes", d.driver.Name(), r.ID, len(r.hash))
	}
	k := r.Key
	k.Hash, k.Limits.CostPerMonth = [32]byte(r.hash), (*berth.Amount)(r.cost)
	if r.scope != "" {
		if err := json.Unmarshal([]byte(r.scope), &k.Scope); err != nil {
			return nil, fmt.Errorf("%s: key %s: decode scope: %w", d.driver.Name(), r.ID, err)
		}
	}
	return &k, nil
}

func (d accounts) KeyByHash(ctx context.Context, hash [32]byte) (*berth.Key, error) {
	var r keyRow
	if err := d.read(ctx, selectKeys+` WHERE hash = $1`, in{hash[:]}, r.columns()...); err != nil {
		return nil, err
	}
	return d.key(&r)
}

func (d accounts) KeyOf(ctx context.Context, c berth.Caller) (*berth.Key, error) {
	if c.Session != "" {
		return nil, store.ErrNotFound // of a person
	}
	var r keyRow
	err := d.read(ctx, selectKeys+` WHERE id = $1 AND project = $2`, in{c.Key, c.Project}, r.columns()...)
	if err != nil {
		return nil, err
	}
	return d.key(&r)
}

func (d accounts) UseKeys(ctx context.Context, used map[berth.KeyID]int64) error {
	return d.driver.Update(ctx, func(ctx context.Context, tx *Tx) error {
		for _, id := range slices.Sorted(maps.Keys(used)) { // in one order, so that servers do not wait for each other
			if err := tx.Run(ctx, `UPDATE keys SET last_used_at = $1 WHERE id = $2 AND last_used_at < $1`, used[id],
				id); err != nil {
				return err
			}
		}
		return nil
	})
}

func (d accounts) ListKeys(ctx context.Context) ([]*berth.Key, error) {
	rows, err := List(ctx, d.driver, selectKeys+` ORDER BY created_at, id`, nil, (*keyRow).columns)
	if err != nil {
		return nil, d.driver.Convert(err)
	}
	keys := make([]*berth.Key, len(rows))
	for i := range rows {
		if keys[i], err = d.key(&rows[i]); err != nil {
			return nil, err
		}
	}
	return keys, nil
}

func (d accounts) DeleteKey(ctx context.Context, id berth.KeyID) error {
	return d.driver.UpdateWithReserve(ctx, func(ctx context.Context, tx *Tx) error {
		return tx.Change(ctx, `DELETE FROM keys WHERE id = $1`, id)
	})
}

func (d accounts) KeyLimits(ctx context.Context, id berth.KeyID) (berth.KeyLimits, error) {
	var cost *int64
	err := d.read(ctx, `SELECT cost_per_month FROM keys WHERE id = $1`, in{id}, &cost)
	if errors.Is(err, store.ErrNotFound) {
		err = nil
	}
	return berth.KeyLimits{CostPerMonth: (*berth.Amount)(cost)}, err
}

func (d accounts) UpdateKey(ctx context.Context, id berth.KeyID, change func(*berth.Key) error) (*berth.Key, error) {
	var k *berth.Key
	err := d.driver.Update(ctx, func(ctx context.Context, tx *Tx) error {
		// The first write locks the row, so that two changes do not lose one of them.
		if err := tx.Change(ctx, `UPDATE keys SET id = id WHERE id = $1`, id); err != nil {
			return err
		}
		var r keyRow
		err := Read(ctx, tx, selectKeys+` WHERE id = $1`, in{id}, r.columns()...)
		if err != nil {
			return err
		}
		if k, err = d.key(&r); err != nil {
			return err
		}
		if err := change(k); err != nil {
			return err
		}
		scope, err := json.Marshal(k.Scope)
		if err != nil {
			return fmt.Errorf("encode scope: %w", err)
		}
		return tx.Run(ctx, `UPDATE keys SET name = $1, expires_at = $2, cost_per_month = $3, owner = $4, note = $5,
				role = $6, scope = $7 WHERE id = $8`,
			k.Name, k.ExpiresAt, (*int64)(k.Limits.CostPerMonth), k.Owner, k.Note, k.Role, string(scope), id)
	})
	if err != nil {
		return nil, err
	}
	return k, nil
}
