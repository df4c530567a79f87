package server

import (
	"context"
	"fmt"
	"path/filepath"

	"gocloud.dev/blob"
	"gocloud.dev/blob/fileblob"

	"github.com/berth-run/berth/container/snapshot"
	"github.com/berth-run/berth/container/volume"
	"github.com/berth-run/berth/diskspace"
	"github.com/berth-run/berth/files"
	"github.com/berth-run/berth/files/uploads"
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
	embedder  *embedder // of vectors; nil if none is configured
}

// openBlobs opens files, skills, snapshots and volumes, and removes the leftovers of a crash.
func (s *Server) openBlobs(ctx context.Context, b *base) (*blobs, error) {
	uploaded, err := s.openBucket(b.State, "files")
	if err != nil {
		return nil, err
	}
	contents, err := s.openBucket(b.State, "snapshots")
	if err != nil {
		return nil, err
	}
	parts, err := s.openBucket(b.State, "uploads")
	if err != nil {
		return nil, err
	}
	folders, err := s.openBucket(b.State, "skills")
	if err != nil {
		return nil, err
	}
	all := &blobs{}
	all.skills = skills.New(skills.Options{Objects: b.db, Bucket: folders, Seal: b.seal(), Audit: b.audit, Log: b.Log, Quota: within(b.space, diskspace.Skills, b.quota.Store)})
	all.files = files.New(files.Options{Store: b.db, Bucket: uploaded, Audit: b.audit, Log: b.Log, Quota: within(b.space, diskspace.Files, b.quota.Store)})
	all.uploads = uploads.New(uploads.Options{Objects: b.db, Bucket: parts, Seal: b.seal(), Files: all.files, Audit: b.audit, Log: b.Log,
		Quota: within(b.space, diskspace.Uploads, b.quota.Store)})
	all.snapshots = snapshot.New(snapshot.Options{Objects: b.db, Bucket: contents, Seal: b.seal(), Audit: b.audit, Log: b.Log,
		Count: b.quota.Snapshots, Quota: within(b.space, diskspace.Snapshots, b.quota.Store)})
	all.volumes, err = volume.New(volume.Options{Dir: filepath.Join(b.State, "volumes"), Objects: b.db, Seal: b.seal(), Audit: b.audit, Log: b.Log,
		Quota: within(b.space, diskspace.Volumes, b.quota.Store)})
	if err != nil {
		return nil, err
	}
	for _, sweep := range []func(context.Context) error{all.snapshots.Sweep, all.volumes.Sweep, all.files.Sweep, all.uploads.Sweep, all.skills.Sweep} {
		if err := sweep(ctx); err != nil {
			return nil, fmt.Errorf("sweep blobs: %w", err)
		}
	}
	openVectorStores(b, all)
	s.later(startWorker(0, sweepInterval, func(ctx context.Context) { expire(ctx, b.db, all, b.Log) }))
	return all, nil
}

// openBucket opens a bucket of the state directory.
func (s *Server) openBucket(state, name string) (*blob.Bucket, error) {
	bucket, err := openBucket(state, name)
	if err != nil {
		return nil, err
	}
	s.later(func(context.Context) error { return bucket.Close() })
	return bucket, nil
}

func openBucket(state, name string) (*blob.Bucket, error) {
	bucket, err := fileblob.OpenBucket(filepath.Join(state, name), &fileblob.Options{CreateDir: true, NoTempDir: true, Metadata: fileblob.MetadataDontWrite})
	if err != nil {
		return nil, fmt.Errorf("open directory of %s: %w", name, err)
	}
	return bucket, nil
}
