package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/berth-run/berth/store/sealed"
	base "github.com/berth-run/berth/store/sql"
)

// rotateTimeout limits the transaction of RotateKey.
const rotateTimeout = 15 * time.Minute

// RotateKey re-seals the keys of all rows with another server's key, while the database is in use. It is
// one transaction: after it, only the new key opens the database. Writes wait for it. An error other than
// store.ErrUnavailable says that nothing changed. Other processes that use the database need to open it again
// with the new key. after, if not nil, is called after each step; an error before the commit ends the rotation.
func (d *DB) RotateKey(ctx context.Context, root [32]byte, after func(step string) error) error {
	if after == nil {
		after = func(string) error { return nil }
	}
	r := d.core.keys.Rotate(root)
	old := d.core.ring.Load()
	next := &tableRing{core: d.core, wrapper: sealed.NewWrapper(root), id: old.id, mark: r.Mark()}
	r.SetRing(next)
	err := d.core.writer.UpdateAlone(ctx, func(ctx context.Context, tx *base.Tx) error {
		if err := errors.Join(d.HideNames(ctx, tx, r), after("mark replaced")); err != nil {
			return err
		}
		r.Hold()
		return errors.Join(old.rewrap(ctx, tx, next, r), after("keys copied"))
	})
	if err != nil {
		r.Abort()
		return wrap(err)
	}
	d.core.ring.Store(next)
	r.Commit()
	if err := errors.Join(after("committed"), old.Close(), d.rewriteKeys(ctx)); err != nil {
		d.core.log.Warn("the database retains keys that a former server's key seals, until they are scrubbed", "err", err)
	}
	return nil
}

// rewrap replaces the boxes of all keys.
func (r *tableRing) rewrap(ctx context.Context, tx *base.Tx, next *tableRing, rotation *sealed.Rotation) error {
	type rowBox struct {
		number int64
		box    []byte
	}
	for after := int64(0); ; {
		rows, err := base.List(ctx, tx, `SELECT number, box FROM row_keys WHERE number > $1 ORDER BY number LIMIT $2`,
			[]any{after, moveChunk}, func(r *rowBox) []any { return []any{&r.number, &r.box} })
		if err != nil {
			return fmt.Errorf("read keys: %w", err)
		}
		if len(rows) == 0 {
			return nil
		}
		numbers, boxes := make([]int64, len(rows)), make([][]byte, len(rows))
		for i, row := range rows {
			part, err := r.wrapper.Unwrap(r.id, row.number, row.box)
			if err != nil {
				return fmt.Errorf("key %d: %w", row.number, err)
			}
			numbers[i] = row.number
			boxes[i] = next.wrapper.Wrap(r.id, row.number, rotation.Reseal(row.number, part))
			after = row.number
		}
		if err := tx.Run(ctx, `UPDATE row_keys SET box = new.box
			FROM (SELECT unnest($1::bigint[]) AS number, unnest($2::bytea[]) AS box) AS new
			WHERE row_keys.number = new.number`, numbers, boxes); err != nil {
			return fmt.Errorf("replace keys: %w", err)
		}
	}
}
