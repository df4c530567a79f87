package postgres

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
	"github.com/berth-run/berth/store/postgres/query"
)

func (d accounts) Usage(ctx context.Context, q store.UsageQuery) ([]*store.Usage, error) {
	args := query.AllUsageParams{Width: int64(q.Width / time.Second), Kind: string(q.Kind), First: q.From.Unix(),
		Before: q.To.Unix()}
	var rows []query.AllUsageRow
	var err error
	if q.Project == "" {
		rows, err = d.queries.AllUsage(ctx, args)
	} else {
		var own []query.ProjectUsageRow
		own, err = d.queries.ProjectUsage(ctx, query.ProjectUsageParams{Width: args.Width, Project: string(q.Project),
			Kind: args.Kind, First: args.First, Before: args.Before})
		for _, r := range own {
			rows = append(rows, query.AllUsageRow{Bucket: r.Bucket, Project: string(q.Project), Key: r.Key,
				Name: r.Name, Count: r.Count,
				InputTokens: r.InputTokens, CachedTokens: r.CachedTokens, OutputTokens: r.OutputTokens,
				ReasoningTokens: r.ReasoningTokens, Seconds: r.Seconds, Cost: r.Cost})
		}
	}
	if err != nil {
		return nil, wrap(err)
	}
	used := make([]*store.Usage, len(rows))
	for i, r := range rows {
		used[i] = &store.Usage{Project: berth.ProjectID(r.Project), Kind: q.Kind, Start: r.Bucket,
			Key: berth.KeyID(r.Key), Name: r.Name,
			Count: r.Count, InputTokens: r.InputTokens, CachedTokens: r.CachedTokens, OutputTokens: r.OutputTokens,
			ReasoningTokens: r.ReasoningTokens,
			Seconds:         r.Seconds, Cost: berth.Amount(r.Cost)}
	}
	return used, nil
}

func (d accounts) Spent(ctx context.Context, p berth.ProjectID, key berth.KeyID, month time.Time) (ofProject,
	ofKey berth.Amount, err error) {
	row, err := d.queries.Spent(ctx, query.SpentParams{Key: string(key), Project: string(p), Month: month.Unix()})
	return berth.Amount(row.OfProject), berth.Amount(row.OfKey), wrap(err)
}

func (d accounts) Spending(ctx context.Context, p berth.ProjectID, month time.Time) ([]*store.Spending, error) {
	var all []*store.Spending
	if p != "" {
		rows, err := d.queries.ProjectSpending(ctx, query.ProjectSpendingParams{Project: string(p),
			Month: month.Unix()})
		if err != nil {
			return nil, wrap(err)
		}
		for _, r := range rows {
			all = append(all, &store.Spending{Project: p, Key: berth.KeyID(r.Key), Cost: berth.Amount(r.Cost)})
		}
		return all, nil
	}
	rows, err := d.queries.AllSpending(ctx, month.Unix())
	if err != nil {
		return nil, wrap(err)
	}
	for _, r := range rows {
		all = append(all, &store.Spending{Project: berth.ProjectID(r.Project), Key: berth.KeyID(r.Key),
			Cost: berth.Amount(r.Cost)})
	}
	return all, nil
}

func (d accounts) AddUsage(ctx context.Context, u *store.Usage) error {
	now := *u
	return d.update(ctx, func(ctx context.Context, q *transaction) error {
		now.Start = store.UsageMinute(time.Now())
		return addUsage(ctx, q, &now)
	})
}

// addUsage adds to the usage of minutes and to the spending of months.
func addUsage(ctx context.Context, q *transaction, used ...*store.Usage) error {
	for _, u := range used {
		err := q.AddUsage(ctx, query.AddUsageParams{Project: string(u.Project), Start: u.Start, Kind: string(u.Kind),
			Key: string(u.Key), Name: u.Name,
			Count: u.Count, InputTokens: u.InputTokens, CachedTokens: u.CachedTokens, OutputTokens: u.OutputTokens,
			ReasoningTokens: u.ReasoningTokens,
			Seconds:         u.Seconds, Cost: int64(u.Cost)})
		if err != nil {
			return err
		}
		if s := u.Spending(); s.Cost != 0 {
			month, _ := store.Month(time.Unix(u.Start, 0))
			if err := q.AddSpending(ctx, query.AddSpendingParams{Project: string(s.Project), Month: month.Unix(),
				Key: string(s.Key), Cost: int64(s.Cost)}); err != nil {
				return err
			}
		}
	}
	return nil
}

// countResponse counts a response that ends as body.
func countResponse(ctx context.Context, q *transaction, p berth.ProjectID, key string, body *berth.Response) error {
	return addUsage(ctx, q, store.ResponseUsage(p, berth.KeyID(key), body, time.Now())...)
}

// countUnfinished counts a response that is deleted before its end. It does nothing if
// the response has ended or does not exist.
func (d responses) countUnfinished(ctx context.Context, q *transaction, p berth.ProjectID, id berth.ResponseID) error {
	row, err := q.Unfinished(ctx, query.UnfinishedParams{ID: string(id), Project: string(p)})
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	if err != nil {
		return err
	}
	body, err := d.keys.Opener().ResponseBody(ctx, row.Body)
	if err != nil {
		return err
	}
	return countResponse(ctx, q, p, row.Key, body)
}

// countContainer counts the seconds of a container that ends now. It does nothing if
// the container is not running.
func countContainer(ctx context.Context, q *transaction, p berth.ProjectID, id berth.ContainerID) error {
	row, err := q.CountedContainer(ctx, query.CountedContainerParams{ID: string(id), Project: string(p)})
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	if err != nil {
		return err
	}
	r := store.Running{Project: p, Key: berth.KeyID(row.Key), MemoryLimit: row.MemoryLimit, Counted: row.CountedUntil}
	return addUsage(ctx, q, r.Usage(time.Now().Unix())...)
}

func (d containers) CountContainers(ctx context.Context) error {
	return d.update(ctx, func(ctx context.Context, q *transaction) error {
		rows, err := q.CountedContainers(ctx)
		if err != nil {
			return err
		}
		now := time.Now().Unix()
		for _, row := range rows {
			r := store.Running{Project: berth.ProjectID(row.Project), Key: berth.KeyID(row.Key),
				MemoryLimit: row.MemoryLimit, Counted: row.CountedUntil}
			if err := addUsage(ctx, q, r.Usage(now)...); err != nil {
				return err
			}
		}
		return q.SetCounted(ctx, now)
	})
}

func (d files) FileBytes(ctx context.Context, p berth.ProjectID) (int64, error) {
	n, err := d.queries.FileBytes(ctx, string(p))
	return n, wrap(err)
}
