package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/berth-run/berth/idempotency"
	"github.com/berth-run/berth/store"
)

// sweptKinds are the kinds of objects that are deleted here after their expiry. The services of
// other kinds expire their own objects. What ends because of the retention of its project is package retention's.
var sweptKinds = []store.Kind{idempotency.Kind, store.KindEndUserUsage, store.KindApproval}

const (
	sweepInterval = time.Minute
	sweepBatch    = 1000 // objects per query
)

// expire deletes expired objects, files, uploads and vector stores.
func expire(ctx context.Context, objects store.Objects, data *blobs, log *slog.Logger) {
	for _, kind := range sweptKinds {
		if err := sweep(ctx, objects, kind, time.Now()); err != nil && ctx.Err() == nil {
			log.Error("failed to delete expired objects; will retry", "kind", kind, "err", err)
		}
	}
	// Package retention has ended the traces of all projects that have a key or a record by then.
	if err := sweep(ctx, objects, store.KindTrace, time.Now().Add(-24*time.Hour)); err != nil && ctx.Err() == nil {
		log.Error("failed to delete expired traces; will retry", "err", err)
	}
	if err := data.files.Expire(ctx, time.Now()); err != nil && ctx.Err() == nil {
		log.Error("failed to delete expired files; will retry", "err", err)
	}
	if err := data.uploads.Expire(ctx, time.Now()); err != nil && ctx.Err() == nil {
		log.Error("failed to delete expired uploads; will retry", "err", err)
	}
	if err := data.skills.Expire(ctx, time.Now()); err != nil && ctx.Err() == nil {
		log.Error("failed to delete expired inline skills; will retry", "err", err)
	}
	if err := data.vectors.Expire(ctx); err != nil && ctx.Err() == nil {
		log.Error("failed to delete the content of expired vector stores; will retry", "err", err)
	}
}

// sweep deletes the objects of a kind that have expired by now.
func sweep(ctx context.Context, objects store.Objects, kind store.Kind, now time.Time) error {
	for {
		refs, err := objects.ExpiredObjects(ctx, kind, now, sweepBatch)
		if err != nil {
			return fmt.Errorf("list expired objects: %w", err)
		}
		for _, ref := range refs {
			if err := objects.DeleteObject(ctx, ref.Project, ref.ObjectKey); err != nil &&
				!errors.Is(err, store.ErrNotFound) {
				return fmt.Errorf("delete expired object %s: %w", ref.ID, err)
			}
		}
		if len(refs) < sweepBatch {
			return nil
		}
	}
}
