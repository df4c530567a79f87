package server

import (
	"context"
	"os"
	"path/filepath"

	"github.com/berth-run/berth/store/sqlite"
)

// OpenStore opens the store of a state directory, which it makes, with its key.
func OpenStore(ctx context.Context, state string, opts sqlite.Options) (_ *sqlite.DB, err error) {
	if err := os.MkdirAll(state, 0o700); err != nil {
		return nil, err
	}
	if opts.Key, err = sealKey(state); err != nil {
		return nil, err
	}
	return sqlite.Open(ctx, filepath.Join(state, "berth.db"), &opts)
}
