package server

import (
	"context"
	"log/slog"
	"path/filepath"

	"gocloud.dev/blob"
	"gocloud.dev/blob/fileblob"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/container/snapshot"
	"github.com/berth-run/berth/container/volume"
	"github.com/berth-run/berth/project"
	"github.com/berth-run/berth/store"
	"github.com/berth-run/berth/store/sqlite"
)

// snapshots are a library with its bucket.
type snapshots struct {
	*snapshot.Service
	bucket *blob.Bucket
}

func (s snapshots) Close() error { return s.bucket.Close() }

// openSnapshots opens the library in the state directory, whose bucket opts do not
// name, and removes what a crash has left half made there.
func openSnapshots(ctx context.Context, state string, opts snapshot.Options, log *slog.Logger) (snapshots, error) {
	bucket, err := fileblob.OpenBucket(filepath.Join(state, "snapshots"), &fileblob.Options{CreateDir: true, NoTempDir: true, Metadata: fileblob.MetadataDontWrite})
	if err != nil {
		return snapshots{}, err
	}
	opts.Bucket = bucket
	s := snapshots{snapshot.New(opts), bucket}
	if err := s.Sweep(ctx, log); err != nil {
		bucket.Close()
		return snapshots{}, err
	}
	return s, nil
}

// openVolumes opens the library in the state directory and removes what a crash has
// left half made or half removed there.
func openVolumes(ctx context.Context, state string, opts volume.Options, log *slog.Logger) (*volume.Service, error) {
	opts.Dir = filepath.Join(state, "volumes")
	l, err := volume.New(opts)
	if err != nil {
		return nil, err
	}
	return l, l.Sweep(ctx, log)
}

// newQuota returns the quota of projects. Everything that they store counts: rows of the
// database, uploaded files, snapshots and volumes.
func newQuota(db *sqlite.DB, config *Config) *project.Quota {
	sum := func(stored func(context.Context, store.Objects, berth.ProjectID) (int64, error)) project.Size {
		return func(ctx context.Context, p berth.ProjectID) (int64, error) { return stored(ctx, db, p) }
	}
	return project.NewQuota(project.QuotaOptions{Objects: db, Usages: db, Limits: config.limits(),
		Sizes: []project.Size{db.StoredBytes, db.FileBytes, sum(snapshot.StoredBytes), sum(volume.StoredBytes)}})
}
