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
	"github.com/berth-run/berth/store"
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

// stored counts what projects store: uploaded files, snapshots and volumes.
type stored struct {
	store.Files
	snapshots *snapshot.Service
	volumes   *volume.Service
}

// FileBytes returns how many bytes a project stores.
func (s stored) FileBytes(ctx context.Context, p berth.ProjectID) (int64, error) {
	files, err := s.Files.FileBytes(ctx, p)
	if err != nil {
		return 0, err
	}
	kept, err := s.snapshots.Bytes(ctx, p)
	if err != nil {
		return 0, err
	}
	volumes, err := s.volumes.Bytes(ctx, p)
	return files + kept + volumes, err
}
