package server

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/berth-run/berth/container/snapshot"
	"github.com/berth-run/berth/internal/seal"
	"github.com/berth-run/berth/store/sqlite"
)

// A Records is what a state directory keeps, for commands beside a server: nothing
// is swept, which is the server's to do.
type Records struct {
	*snapshot.Service
	db    *sqlite.DB
	close func() error
}

// OpenRecords opens a state directory that is there.
func OpenRecords(ctx context.Context, state string) (*Records, error) {
	if _, err := os.Stat(filepath.Join(state, "berth.db")); err != nil {
		return nil, err
	}
	key, err := sealKey(state)
	if err != nil {
		return nil, err
	}
	db, err := OpenStore(ctx, state, sqlite.Options{})
	if err != nil {
		return nil, err
	}
	bucket, err := openBucket(state, "snapshots")
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return &Records{snapshot.New(snapshot.Options{Objects: db, Bucket: bucket, Seal: seal.New(key)}), db,
		func() error { return errors.Join(bucket.Close(), db.Close()) }}, nil
}

func (k *Records) Close() error { return k.close() }

// References returns the digests that containers and snapshots of a state
// directory refer to, whether or not a server runs on it.
func References(ctx context.Context, state string) (map[string]bool, error) {
	kept, err := OpenRecords(ctx, state)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer kept.Close()
	return references(ctx, kept.db, kept.Service)
}
