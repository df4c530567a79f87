package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
	"github.com/berth-run/berth/store/sqlite/query"
)

func (d *DB) Usage(ctx context.Context, q store.UsageQuery) ([]*store.Usage, error) {
	args := query.AllUsageParams{Width: int64(q.Width / time.Second), Kind: string(q.Kind), First: q.From.Unix(), Before: q.To.Unix()}
	var rows []query.AllUsageRow
	var err error
	if q.Project == "" {
		rows, err = d.queries.AllUsage(ctx, args)
	} else {
		var own []query.ProjectUsageRow
		own, err = d.queries.ProjectUsage(ctx, query.ProjectUsageParams{Width: args.Width, Project: string(q.Project), Kind: args.Kind, First: args.First, Before: args.Before})
		for _, r := range own {
			rows = append(rows, query.AllUsageRow{Bucket: r.Bucket, Project: string(q.Project), Key: r.Key, Name: r.Name, Count: r.Count,
				InputTokens: r.InputTokens, CachedTokens: r.CachedTokens, OutputTokens: r.OutputTokens, ReasoningTokens: r.ReasoningTokens, Seconds: r.Seconds, Cost: r.Cost})
		}
	}
	if err != nil {
		return nil, d.wrap(err)
	}
	used := make([]*store.Usage, len(rows))
	for i, r := range rows {
		used[i] = &store.Usage{Project: berth.ProjectID(r.Project), Kind: q.Kind, Start: r.Bucket, Key: berth.KeyID(r.Key), Name: r.Name,
			Count: r.Count, InputTokens: r.InputTokens, CachedTokens: r.CachedTokens, OutputTokens: r.OutputTokens, ReasoningTokens: r.ReasoningTokens,
			Seconds: r.Seconds, Cost: berth.Amount(r.Cost)}
	}
	return used, nil
}

func (d *DB) AddUsage(ctx context.Context, u *store.Usage) error {
	return d.update(ctx, func(ctx context.Context, q *query.Queries) error { return addUsage(ctx, q, u, time.Now().Unix()) })
}

// addUsage counts what was used at a time.
func addUsage(ctx context.Context, q *query.Queries, u *store.Usage, at int64) error {
	return q.AddUsage(ctx, query.AddUsageParams{Project: string(u.Project), Start: at - at%60, Kind: string(u.Kind), Key: string(u.Key), Name: u.Name,
		Count: u.Count, InputTokens: u.InputTokens, CachedTokens: u.CachedTokens, OutputTokens: u.OutputTokens, ReasoningTokens: u.ReasoningTokens,
		Seconds: u.Seconds, Cost: int64(u.Cost)})
}

// addSeconds counts the life of a container from one time to another, to the hours
// that it was in: a server that has not run does not find all of it in the present.
func addSeconds(ctx context.Context, q *query.Queries, u store.Usage, from, to int64) error {
	const hour, month = 3600, 31 * 24 * 3600
	for from = max(from, to-month); from < to; {
		end := min(to, from-from%hour+hour)
		u.Seconds = end - from
		if err := addUsage(ctx, q, &u, from); err != nil {
			return err
		}
		from = end
	}
	return nil
}

// countResponse counts a response that ends as body.
func countResponse(ctx context.Context, q *query.Queries, p berth.ProjectID, key string, body *berth.Response) error {
	for _, u := range store.ResponseUsage(p, berth.KeyID(key), body) {
		if err := addUsage(ctx, q, u, time.Now().Unix()); err != nil {
			return err
		}
	}
	return nil
}

// countUnfinished counts a response that is deleted before its end. One that has
// ended, or is not there, is no matter.
func (d *DB) countUnfinished(ctx context.Context, q *query.Queries, p berth.ProjectID, id berth.ResponseID) error {
	row, err := q.Unfinished(ctx, query.UnfinishedParams{ID: string(id), Project: string(p)})
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	}
	if err != nil {
		return err
	}
	var body berth.Response
	if err := d.opener().openJSON(boxBody, row.Body, &body); err != nil {
		return err
	}
	return countResponse(ctx, q, p, row.Key, &body)
}

// countContainer counts the seconds of a container that has not been counted to
// its end, which is now. One that does not run is no matter.
func countContainer(ctx context.Context, q *query.Queries, p berth.ProjectID, id berth.ContainerID) error {
	row, err := q.CountedContainer(ctx, query.CountedContainerParams{ID: string(id), Project: string(p)})
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	}
	if err != nil {
		return err
	}
	u := store.Usage{Project: p, Kind: store.UsageContainer, Key: berth.KeyID(row.Key), Name: row.MemoryLimit}
	return addSeconds(ctx, q, u, row.CountedUntil, time.Now().Unix())
}

func (d *DB) CountContainers(ctx context.Context) error {
	return d.update(ctx, func(ctx context.Context, q *query.Queries) error {
		rows, err := q.CountedContainers(ctx)
		if err != nil {
			return err
		}
		now := time.Now().Unix()
		for _, r := range rows {
			u := store.Usage{Project: berth.ProjectID(r.Project), Kind: store.UsageContainer, Key: berth.KeyID(r.Key), Name: r.MemoryLimit}
			if err := addSeconds(ctx, q, u, r.CountedUntil, now); err != nil {
				return err
			}
		}
		return q.SetCounted(ctx, now)
	})
}

func (d *DB) FileBytes(ctx context.Context, p berth.ProjectID) (int64, error) {
	n, err := d.queries.FileBytes(ctx, string(p))
	return n, d.wrap(err)
}
