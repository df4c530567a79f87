package server

import (
	"context"
	"math"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/batch"
	"github.com/berth-run/berth/project"
	"github.com/berth-run/berth/webhook"
)

// newBatches opens the batches. Their Run executes them.
func newBatches(b *base, data *blobs, hooks *webhook.Service) *batch.Service {
	return batch.New(batch.Options{Objects: b.db, Files: data.files, Concurrency: b.Config.Batches.Concurrency,
		Log: b.Log, Ended: hooks.BatchEnded,
		Pace: func(ctx context.Context, p berth.ProjectID) (batch.Pace, error) { return pace(ctx, b.quota, p) }})
}

// pace leaves half of a project's limits to its other requests.
func pace(ctx context.Context, q *project.Quota, p berth.ProjectID) (batch.Pace, error) {
	if err := q.Check(ctx, p); err != nil {
		return batch.Pace{}, err
	}
	limits, err := q.Limits(ctx, p)
	if err != nil {
		return batch.Pace{}, err
	}
	now := batch.Pace{Requests: math.MaxInt}
	if n := limits.Responses; n != nil && *n >= 0 {
		now.Requests = int(max(1, min(*n, math.MaxInt32)/2))
	}
	requests, tokens := q.Rates(p)
	now.Wait = max(untilHalf(requests), untilHalf(tokens))
	return now, nil
}

// untilHalf returns the time until half of a rate is free.
func untilHalf(r *project.Rate) time.Duration {
	if r == nil || r.Limit <= 0 || r.Remaining >= r.Limit/2 {
		return 0
	}
	return time.Duration(float64(r.Limit/2-r.Remaining) / float64(r.Limit) * float64(time.Minute))
}
