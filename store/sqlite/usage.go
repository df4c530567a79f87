package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
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
				InputTokens: r.InputTokens, CachedTokens: r.CachedTokens, OutputTokens: r.OutputTokens, ReasoningTokens: r.ReasoningTokens, Seconds: r.Seconds})
		}
	}
	if err != nil {
		return nil, d.wrap(err)
	}
	used := make([]*store.Usage, len(rows))
	for i, r := range rows {
		used[i] = &store.Usage{Project: berth.ProjectID(r.Project), Kind: q.Kind, Start: r.Bucket, Key: berth.KeyID(r.Key), Name: r.Name,
			Count: r.Count, InputTokens: r.InputTokens, CachedTokens: r.CachedTokens, OutputTokens: r.OutputTokens, ReasoningTokens: r.ReasoningTokens,
			Seconds: r.Seconds}
	}
	return used, nil
}

// addUsage counts what was used now.
func addUsage(ctx context.Context, q *query.Queries, u store.Usage) error {
	now := time.Now().Unix()
	return q.AddUsage(ctx, query.AddUsageParams{Project: string(u.Project), Start: now - now%60, Kind: string(u.Kind), Key: string(u.Key), Name: u.Name,
		Count: u.Count, InputTokens: u.InputTokens, CachedTokens: u.CachedTokens, OutputTokens: u.OutputTokens, ReasoningTokens: u.ReasoningTokens,
		Seconds: u.Seconds})
}

// countResponse counts a response that ends as body.
func countResponse(ctx context.Context, q *query.Queries, p berth.ProjectID, key string, body *berth.Response) error {
	u := store.Usage{Project: p, Kind: store.UsageResponse, Key: berth.KeyID(key), Name: body.Model, Count: 1}
	if t := body.Usage; t != nil {
		u.InputTokens, u.CachedTokens = int64(t.InputTokens), int64(t.InputTokenDetails.CachedTokens)
		u.OutputTokens, u.ReasoningTokens = int64(t.OutputTokens), int64(t.OutputTokenDetails.ReasoningTokens)
	}
	return addUsage(ctx, q, u)
}

// countUnfinished counts a response that is deleted before its end. One that has
// ended, or is not there, is no matter.
func countUnfinished(ctx context.Context, q *query.Queries, p berth.ProjectID, id berth.ResponseID) error {
	row, err := q.Unfinished(ctx, query.UnfinishedParams{ID: string(id), Project: string(p)})
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	}
	if err != nil {
		return err
	}
	var body berth.Response
	if err := json.Unmarshal(row.Body, &body); err != nil {
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
	return addUsage(ctx, q, store.Usage{Project: p, Kind: store.UsageContainer, Key: berth.KeyID(row.Key), Name: row.MemoryLimit,
		Seconds: max(0, time.Now().Unix()-row.CountedUntil)})
}

func (d *DB) CountContainers(ctx context.Context) error {
	return d.update(ctx, func(ctx context.Context, q *query.Queries) error {
		rows, err := q.CountedContainers(ctx)
		if err != nil {
			return err
		}
		now := time.Now().Unix()
		for _, r := range rows {
			err := addUsage(ctx, q, store.Usage{Project: berth.ProjectID(r.Project), Kind: store.UsageContainer, Key: berth.KeyID(r.Key), Name: r.MemoryLimit,
				Seconds: max(0, now-r.CountedUntil)})
			if err != nil {
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
