package server

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/blob"
	"github.com/berth-run/berth/container/snapshot"
	"github.com/berth-run/berth/container/volume"
	"github.com/berth-run/berth/diskspace"
	"github.com/berth-run/berth/engine"
	"github.com/berth-run/berth/files"
	"github.com/berth-run/berth/files/uploads"
	"github.com/berth-run/berth/server/state"
	"github.com/berth-run/berth/skills"
	"github.com/berth-run/berth/vectorstore"
)

// blobs holds the services that store data too large for the database.
type blobs struct {
	files     *files.Service
	uploads   *uploads.Service
	snapshots *snapshot.Service
	volumes   *volume.Service
	vectors   *vectorstore.Service
	skills    *skills.Service

	contents *state.Blobs
	totals   func(context.Context) (count int, bytes int64, err error) // of snapshots
}

// openBlobs opens files, skills, snapshots, volumes and vector stores, whose texts models embed, and removes
// the leftovers of a crash.
func (s *Server) openBlobs(ctx context.Context, b *base, models *engine.Forwarder) (*blobs, error) {
	contents, err := state.AdoptBlobs(ctx, b.db, b.State, b.Config.Blobs, b.Log)
	if err != nil {
		return nil, b.Config.In(err)
	}
	buckets := map[string]blob.Storage{}
	for _, name := range state.BlobKinds {
		bucket, err := contents.Open(name)
		if err != nil {
			return nil, err
		}
		buckets[name] = bucket
	}
	all := &blobs{contents: contents}
	all.skills = skills.New(skills.Options{Objects: b.db, Contents: buckets["skills"], Seal: b.keys, Audit: b.audit,
		Log: b.Log, Quota: within(b.space, diskspace.Skills, b.quota.Store)})
	all.files = files.New(files.Options{Life: func(ctx context.Context, p berth.ProjectID) (time.Duration, error) {
		return b.retention.Life(ctx, p, berth.RetainedFiles)
	}, Store: b.db, Contents: buckets["files"], Audit: b.audit, Log: b.Log,
		Quota: within(b.space, diskspace.Files, b.quota.Store)})
	all.uploads = uploads.New(uploads.Options{Objects: b.db, Contents: buckets["uploads"], Seal: b.keys,
		Files: all.files, Audit: b.audit, Log: b.Log,
		Quota: within(b.space, diskspace.Uploads, b.quota.Store)})
	all.snapshots = snapshot.New(snapshot.Options{Objects: b.db, Contents: buckets["snapshots"], Seal: b.keys,
		Audit: b.audit, Log: b.Log,
		Count: b.quota.Snapshots, Quota: within(b.space, diskspace.Snapshots, b.quota.Store)})
	all.volumes, err = volume.New(volume.Options{Dir: filepath.Join(b.State, "volumes"), Objects: b.db, Seal: b.keys,
		Audit: b.audit, Log: b.Log,
		Space: func() error {
			return b.space.Admit(diskspace.Volumes)
		}, Quota: within(b.space, diskspace.Volumes, b.quota.Store)})
	if err != nil {
		return nil, err
	}
	sweeps := []func(context.Context) error{all.volumes.Sweep}
	if contents.Bucket == nil {
		sweeps = append(sweeps, all.snapshots.Sweep, all.files.Sweep, all.uploads.Sweep, all.skills.Sweep)
	}
	for _, sweep := range sweeps {
		if err := sweep(ctx); err != nil {
			return nil, fmt.Errorf("sweep blobs: %w", err)
		}
	}
	all.totals = all.snapshots.Totals
	if contents.Bucket != nil {
		all.totals = cached(all.snapshots.Totals, totalsEvery)
		s.later(b.startOneWorker("blobs", collectDelay, collectEvery, func(ctx context.Context) {
			if err := all.collect(ctx, time.Now().Add(-orphanAge)); err != nil && ctx.Err() == nil {
				b.Log.Error("failed to collect orphaned blobs; will retry", "bucket", contents.Bucket.String(), "err",
					err)
			}
		}))
	}
	all.vectors = openVectorStores(b, all.files, models)
	s.later(b.startOneWorker("expiry", 0, sweepInterval, func(ctx context.Context) { expire(ctx, b.db, all, b.Log) }))
	return all, nil
}

// Collection of orphans in a bucket: contents without a record.
const (
	collectDelay = 10 * time.Minute // after the start
	collectEvery = 6 * time.Hour
	orphanAge    = 24 * time.Hour // far longer than a content is written before its record is saved
)

// collect removes the contents of the bucket that have no record and were complete before a time,
// and uploads that were started before it. It removes nothing unless the bucket is still the state's.
func (all *blobs) collect(ctx context.Context, before time.Time) error {
	bucket := all.contents.Bucket
	if err := bucket.Check(ctx); err != nil {
		return err
	}
	err := bucket.AbortUploads(ctx, before)
	for _, collect := range []func(context.Context, time.Time) error{all.files.Collect, all.uploads.Collect,
		all.skills.Collect, all.snapshots.Collect} {
		err = errors.Join(err, collect(ctx, before))
	}
	return err
}

// totalsEvery is how often the snapshots of a bucket are counted, which lists them.
const totalsEvery = time.Hour

// cached returns count with a cache of its last result.
func cached(count func(context.Context) (int, int64, error), lifetime time.Duration) func(context.Context) (int, int64,
	error) {
	var mu sync.Mutex
	var at time.Time
	var n int
	var bytes int64
	return func(ctx context.Context) (int, int64, error) {
		mu.Lock()
		defer mu.Unlock()
		if !at.IsZero() && time.Since(at) < lifetime {
			return n, bytes, nil
		}
		newN, newBytes, err := count(ctx)
		if err == nil {
			n, bytes, at = newN, newBytes, time.Now()
		}
		return newN, newBytes, err
	}
}
