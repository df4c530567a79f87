package main

import (
	"context"
	"log/slog"
	"path/filepath"

	"gocloud.dev/blob"
	"gocloud.dev/blob/fileblob"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/internal/seal"
	"github.com/berth-run/berth/snapshot"
	"github.com/berth-run/berth/store"
)

// snapshots are a library with its bucket.
type snapshots struct {
	*snapshot.Library
	bucket *blob.Bucket
}

func (s snapshots) Close() error { return s.bucket.Close() }

// openSnapshots opens the library in the state directory and removes what a crash
// has left half made there.
func openSnapshots(ctx context.Context, state string, objects store.Objects, key [32]byte, log *slog.Logger, quota func(context.Context, berth.ProjectID, int64) error) (snapshots, error) {
	bucket, err := fileblob.OpenBucket(filepath.Join(state, "snapshots"), &fileblob.Options{CreateDir: true, NoTempDir: true, Metadata: fileblob.MetadataDontWrite})
	if err != nil {
		return snapshots{}, err
	}
	s := snapshots{snapshot.New(snapshot.Options{Objects: objects, Bucket: bucket, Seal: seal.New(key), Quota: quota}), bucket}
	if err := s.Sweep(ctx, log); err != nil {
		bucket.Close()
		return snapshots{}, err
	}
	return s, nil
}

// stored counts what projects store: uploaded files and snapshots.
type stored struct {
	store.Files
	snapshots *snapshot.Library
}

// FileBytes returns how many bytes a project stores.
func (s stored) FileBytes(ctx context.Context, p berth.ProjectID) (int64, error) {
	files, err := s.Files.FileBytes(ctx, p)
	if err != nil {
		return 0, err
	}
	kept, err := s.snapshots.Bytes(ctx, p)
	return files + kept, err
}
