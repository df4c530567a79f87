package state

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/berth-run/berth/internal/statefile"
	"github.com/berth-run/berth/server/config"
	"github.com/berth-run/berth/store/sqlite"
)

// A restoring is the content of restoreFile.
type restoring struct {
	Sums  string `json:"sha256sums"` // of the backup
	State string `json:"state"`      // the id of the state, which owns the bucket that it is restored to
}

// keptAtRestore are the entries of a state directory that do not belong to a state.
var keptAtRestore = []string{"lock", "images", "bin", "spool", "reserve", "lost+found", restoreFile}

// Restore restores a backup to an empty state directory. If store is not empty, it is the URL of an
// empty PostgreSQL database for the database; if blobs is not empty, the URL of an empty bucket for
// the contents of blobs. It verifies all files. A restore that failed or was interrupted begins anew
// when it is repeated; until one is complete, no server starts in the directory.
func Restore(ctx context.Context, backup, state, store, blobs string) (*Manifest, error) {
	m, err := readManifest(ctx, backup)
	if err != nil {
		return nil, err
	}
	if err := sqlite.CheckSchema(ctx, filepath.Join(backup, "berth.db")); err != nil {
		return nil, err
	}
	unlock, err := lockState(state)
	if err != nil {
		return nil, err
	}
	return m, errors.Join(restore(ctx, m, backup, state, store, blobs), unlock())
}

func restore(ctx context.Context, m *Manifest, backup, state, store, blobs string) error {
	r, err := startRestore(m, state)
	if err != nil {
		return err
	}
	for file, err := range m.sums(backup) {
		if err != nil {
			return err
		}
		if err := restoreOne(ctx, filepath.Join(backup, file[0]), filepath.Join(state, file[0]), file[1]); err != nil {
			return fmt.Errorf("restore %s: %w", file[0], err)
		}
	}
	if err := restoreContents(ctx, r, state, blobs); err != nil {
		return fmt.Errorf("restore files and snapshots: %w", err)
	}
	if store != "" {
		c := &StoreCopy{Uses: config.Masked("store.url", store)}
		if err := c.fromFile(ctx, state, store); err != nil {
			return err
		}
		if err := os.Remove(c.Former); err != nil {
			return err
		}
	}
	return errors.Join(syncAll(state), os.Remove(filepath.Join(state, restoreFile)), syncAll(state))
}

// startRestore empties a state directory of what an interrupted restore left, and marks it.
func startRestore(m *Manifest, state string) (*restoring, error) {
	r := &restoring{Sums: m.Sums, State: newStateID()}
	path := filepath.Join(state, restoreFile)
	text, err := os.ReadFile(path)
	interrupted := err == nil
	if interrupted {
		former := &restoring{}
		if err := json.Unmarshal(text, former); err == nil && former.Sums != m.Sums {
			return nil, fmt.Errorf("%s has an incomplete restore of another backup; remove its content first", state)
		}
		if former.State != "" {
			r = former
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	entries, err := os.ReadDir(state)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if slices.Contains(keptAtRestore, e.Name()) {
			continue
		}
		if !interrupted {
			return nil, fmt.Errorf("the state directory %s is not empty (it has %s); nothing is ever replaced", state,
				e.Name())
		}
		if err := os.RemoveAll(filepath.Join(state, e.Name())); err != nil {
			return nil, err
		}
	}
	if interrupted {
		return r, nil
	}
	if text, err = json.Marshal(r); err != nil {
		return nil, err
	}
	return r, errors.Join(os.WriteFile(path, append(text, '\n'), 0o600), syncAll(state))
}

// restoreOne copies a file and verifies the copy.
func restoreOne(ctx context.Context, from, to, want string) error {
	if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		return err
	}
	if err := statefile.Copy(ctx, from, to); err != nil {
		return err
	}
	sum, _, err := sumFile(ctx, to)
	if err == nil && sum != want {
		err = errors.New("the backup is damaged: the file differs from its checksum")
	}
	return err
}

// restoreContents makes the restored state use its contents: where they are now, or in a bucket.
func restoreContents(ctx context.Context, r *restoring, state, blobs string) error {
	db, err := OpenDatabase(ctx, state, Use{restoring: true})
	if err != nil {
		return err
	}
	local := Place{}
	err = savePlace(ctx, db, local)
	if err == nil && blobs != "" {
		bucket := Place{State: r.State, URL: blobs, Claimed: true}
		if _, err = copyBlobContents(ctx, state, local, bucket); err == nil {
			err = savePlace(ctx, db, bucket)
		}
		for _, kind := range BlobKinds {
			if err == nil {
				err = os.RemoveAll(filepath.Join(state, kind))
			}
		}
	}
	return errors.Join(err, db.Close())
}
