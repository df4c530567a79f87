package postgres

import (
	"context"
	"math"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
	"github.com/berth-run/berth/store/postgres/query"
)

var _ store.Shares = (*DB)(nil)

// Draw implements store.Shares. Only one transaction writes at a time, so what it reads of other
// servers does not change until it commits.
func (d accounts) Draw(ctx context.Context, server string, p berth.ProjectID,
	wants ...store.Want) (shares []store.Share, err error) {
	err = d.update(ctx, func(ctx context.Context, q *transaction) error {
		shares = make([]store.Share, len(wants)) // it may run again
		for i, want := range wants {
			draw := drawNumber
			if want.Kind.IsRate() {
				draw = drawRate
			}
			var err error
			if shares[i], err = draw(ctx, q, server, string(p), want); err != nil {
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

func drawNumber(ctx context.Context, q *transaction, server, p string, w store.Want) (s store.Share, err error) {
	others, err := q.OthersHold(ctx, query.OthersHoldParams{Project: p, Kind: string(w.Kind), Server: server,
		Silent: w.Kind == store.ShareContainers})
	if err != nil {
		return s, err
	}
	s.Got = w.Used + grant(w, float64(w.Limit-others-w.Used))
	s.Left = float64(w.Limit - others - s.Got)
	if s.Got == 0 {
		return s, q.DropHeld(ctx, query.DropHeldParams{Project: p, Kind: string(w.Kind), Server: server})
	}
	return s, q.SetHeld(ctx, query.SetHeldParams{Project: p, Kind: string(w.Kind), Server: server, Held: s.Got})
}

func drawRate(ctx context.Context, q *transaction, _, p string, w store.Want) (s store.Share, err error) {
	left, err := q.FillRate(ctx, query.FillRateParams{Project: p, Kind: string(w.Kind), Size: w.Limit})
	if err != nil {
		return s, err
	}
	left = min(left-float64(w.Used), float64(w.Limit))
	s.Got = grant(w, left)
	s.Left = left - float64(s.Got)
	if w.Used == 0 && s.Got == 0 {
		return s, nil
	}
	return s, q.UseRate(ctx, query.UseRateParams{Project: p, Kind: string(w.Kind), Used: float64(w.Used + s.Got)})
}

// ForgetShares implements store.Shares.
func (d accounts) ForgetShares(ctx context.Context, server string) error {
	return d.update(ctx, func(ctx context.Context, q *transaction) error {
		if err := q.ForgetRates(ctx); err != nil {
			return err
		}
		return q.ForgetShares(ctx, server)
	})
}
