package postgres

import (
	"context"
	"math"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
	base "github.com/berth-run/berth/store/sql"
)

var _ store.Shares = (*DB)(nil)

// Draw implements store.Shares. Only one transaction writes at a time, so what it reads of other
// servers does not change until it commits.
func (d *DB) Draw(ctx context.Context, server string, p berth.ProjectID,
	wants ...store.Want) (shares []store.Share, err error) {
	err = d.core.Update(ctx, func(ctx context.Context, tx *base.Tx) error {
		shares = make([]store.Share, len(wants)) // it may run again
		for i, want := range wants {
			draw := drawNumber
			if want.Kind.IsRate() {
				draw = drawRate
			}
			var err error
			if shares[i], err = draw(ctx, tx, server, string(p), want); err != nil {
				return err
			}
		}
		return nil
	})
	return shares, err
}

// grant returns what a server gets besides Used if so much is left.
func grant(w store.Want, left float64) int64 {
	got := min(w.Ask, int64(math.Floor(left)))
	if got < max(w.Need, 1) {
		return 0
	}
	return got
}

func drawNumber(ctx context.Context, tx *base.Tx, server, p string, w store.Want) (s store.Share, err error) {
	var others int64 // what other servers have
	if err := base.Read(ctx, tx, `SELECT coalesce(sum(s.held), 0)::bigint FROM shares s JOIN members m ON m.id = s.server
		WHERE s.project = $1 AND s.kind = $2 AND s.server <> $3 AND ($4 OR m.lease_until > {now})`,
		[]any{p, string(w.Kind), server, w.Kind == store.ShareContainers}, &others); err != nil {
		return s, err
	}
	s.Got = w.Used + grant(w, float64(w.Limit-others-w.Used))
	s.Left = float64(w.Limit - others - s.Got)
	if s.Got == 0 {
		return s, tx.Run(ctx, `DELETE FROM shares WHERE project = $1 AND kind = $2 AND server = $3`,
			p, string(w.Kind), server)
	}
	return s, tx.Run(ctx, `INSERT INTO shares (project, kind, server, held) VALUES ($1, $2, $3, $4)
		ON CONFLICT (project, kind, server) DO UPDATE SET held = excluded.held`, p, string(w.Kind), server, s.Got)
}

func drawRate(ctx context.Context, tx *base.Tx, _, p string, w store.Want) (s store.Share, err error) {
	// The bucket is refilled up to now. A new size takes effect immediately: the level changes by the difference.
	var left float64
	if err := base.Read(ctx, tx, `INSERT INTO rates (project, kind, size, level, at) VALUES ($1, $2, $3::bigint, $3::bigint, {now})
		ON CONFLICT (project, kind) DO UPDATE SET
			level = least(rates.level + greatest(excluded.at - rates.at, 0) * (rates.size / 60000.0::double precision),
				rates.size) + excluded.size - rates.size,
			size = excluded.size, at = greatest(excluded.at, rates.at)
		RETURNING level`, []any{p, string(w.Kind), w.Limit}, &left); err != nil {
		return s, err
	}
	left = min(left-float64(w.Used), float64(w.Limit))
	s.Got = grant(w, left)
	s.Left = left - float64(s.Got)
	if w.Used == 0 && s.Got == 0 {
		return s, nil
	}
	return s, tx.Run(ctx, `UPDATE rates SET level = least(level - $3, size) WHERE project = $1 AND kind = $2`,
		p, string(w.Kind), float64(w.Used+s.Got))
}

// ForgetShares implements store.Shares.
func (d *DB) ForgetShares(ctx context.Context, server string) error {
	return d.core.Update(ctx, func(ctx context.Context, tx *base.Tx) error {
		// Buckets are full again after a day.
		if err := tx.Run(ctx, `DELETE FROM rates WHERE at < {now} - 86400000`); err != nil {
			return err
		}
		return tx.Run(ctx, `DELETE FROM shares
			WHERE server = $1 OR NOT EXISTS (SELECT FROM members m WHERE m.id = shares.server)`, server)
	})
}
