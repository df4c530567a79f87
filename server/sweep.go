package server

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/berth-run/berth/api"
	"github.com/berth-run/berth/files"
	"github.com/berth-run/berth/store"
)

// swept are the kinds of objects that are nobody's when they have expired.
var swept = []store.Kind{api.KindIdempotency}

const (
	sweepEvery = time.Minute
	sweepBatch = 1000 // objects of a kind at once
)

// startSweeping deletes expired objects and files from now on. stop waits for its end.
func startSweeping(objects store.Objects, uploads *files.Service, log *slog.Logger) (stop func(context.Context) error) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(sweepEvery)
		defer tick.Stop()
		for {
			for _, kind := range swept {
				if err := sweep(ctx, objects, kind, time.Now()); err != nil && ctx.Err() == nil {
					log.Error("expired objects were not removed", "kind", kind, "err", err)
				}
			}
			if err := uploads.Expire(ctx, time.Now()); err != nil && ctx.Err() == nil {
				log.Error("expired files were not removed; this will be tried again", "err", err)
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
		}
	})
	return func(context.Context) error {
		cancel()
		wg.Wait()
		return nil
	}
}

// sweep deletes the objects of a kind that have expired by now.
func sweep(ctx context.Context, objects store.Objects, kind store.Kind, now time.Time) error {
	for {
		refs, err := objects.ExpiredObjects(ctx, kind, now, sweepBatch)
		if err != nil {
			return err
		}
		for _, ref := range refs {
			if err := objects.DeleteObject(ctx, ref.Project, ref.ObjectKey); err != nil && !errors.Is(err, store.ErrNotFound) {
				return err
			}
		}
		if len(refs) < sweepBatch {
			return nil
		}
	}
}
