package server

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/audit"
	"github.com/berth-run/berth/internal/statefile"
	"github.com/berth-run/berth/store/sqlite"
)

// Backup copies a state directory, in an order that makes the copy consistent while a server
// runs: a row of the database is written after the content that it refers to, and its key is
// erased before that content is removed.
func Backup(ctx context.Context, state, to string) error {
	if err := errNotAFile(state); err != nil {
		return err
	}
	if err := localOnly(ctx, state); err != nil {
		return err
	}
	if err := os.Mkdir(to, 0o700); err != nil {
		return err
	}
	for _, step := range []struct {
		what string
		do   func() error
	}{
		{"the database", func() error {
			return sqlite.Backup(ctx, filepath.Join(state, "berth.db"), filepath.Join(to, "berth.db"))
		}},
		{"files", func() error { return copyBlobs(ctx, filepath.Join(state, "files"), filepath.Join(to, "files")) }},
		{"uploads", func() error { return copyBlobs(ctx, filepath.Join(state, "uploads"), filepath.Join(to, "uploads")) }},
		{"skills", func() error { return copyBlobs(ctx, filepath.Join(state, "skills"), filepath.Join(to, "skills")) }},
		{"snapshots", func() error { return copyBlobs(ctx, filepath.Join(state, "snapshots"), filepath.Join(to, "snapshots")) }},
		{"volumes", func() error { return copyVolumes(ctx, filepath.Join(state, "volumes"), filepath.Join(to, "volumes")) }},
		{"the audit record", func() error {
			if err := os.Mkdir(filepath.Join(to, AuditDir), 0o700); err != nil {
				return err
			}
			return audit.Backup(ctx, filepath.Join(state, AuditDir), filepath.Join(to, AuditDir))
		}},
		{"keys", func() error {
			for _, name := range []string{"node_id", "seal.key", filepath.Base(sqlite.KeysPath("berth.db"))} { // the database's keys last
				if err := statefile.Copy(ctx, filepath.Join(state, name), filepath.Join(to, name)); err != nil {
					return err
				}
			}
			return nil
		}},
	} {
		if err := step.do(); err != nil {
			return fmt.Errorf("back up %s: %w; %s is incomplete", step.what, err, to)
		}
	}
	return nil
}

// localOnly returns an error if the blobs of a state are in a bucket.
func localOnly(ctx context.Context, state string) error {
	s, err := OpenExisting(ctx, state)
	if err != nil {
		return err
	}
	p, err := readPlace(ctx, s.Store)
	if err == nil && p.URL != "" {
		err = fmt.Errorf("the blobs of %s are in %s, which is not part of a backup yet", state, p.where())
	}
	return errors.Join(err, s.Close())
}

// copyBlobs copies the files below a directory. It skips files that are removed meanwhile.
func copyBlobs(ctx context.Context, from, to string) error {
	if err := os.MkdirAll(to, 0o700); err != nil {
		return err
	}
	return filepath.WalkDir(from, func(path string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		switch {
		case e.IsDir():
			return os.MkdirAll(filepath.Join(to, rel), 0o700)
		case !e.Type().IsRegular():
			return nil
		}
		if err := statefile.Copy(ctx, path, filepath.Join(to, rel)); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	})
}

// copyVolumes copies the file of each volume below a directory.
func copyVolumes(ctx context.Context, from, to string) error {
	images, err := filepath.Glob(filepath.Join(from, "*", "*.img"))
	if err != nil {
		return err
	}
	for _, image := range images {
		rel, err := filepath.Rel(from, image)
		if err != nil {
			return err
		}
		mount := strings.TrimSuffix(filepath.Join(to, rel), ".img")
		if err := os.MkdirAll(mount, 0o700); err != nil {
			return err
		}
		if err := copyVolume(ctx, image, strings.TrimSuffix(image, ".img"), filepath.Join(to, rel)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// ioctl requests from linux/fs.h.
const (
	fiFreeze = 0xC0045877
	fiThaw   = 0xC0045878
)

// copyVolume copies the file of a volume. A mounted volume is frozen meanwhile, which flushes
// earlier writes and blocks new ones.
func copyVolume(ctx context.Context, image, dir, to string) (err error) {
	mounted, err := isMount(dir)
	if err != nil {
		return err
	}
	if mounted {
		d, err := os.Open(dir)
		if err != nil {
			return err
		}
		defer d.Close()
		if err := unix.IoctlSetInt(int(d.Fd()), fiFreeze, 0); err != nil {
			return &os.PathError{Op: "freeze", Path: dir, Err: err}
		}
		defer func() {
			if terr := unix.IoctlSetInt(int(d.Fd()), fiThaw, 0); terr != nil {
				err = errors.Join(err, fmt.Errorf("thaw %s: %w; run fsfreeze --unfreeze on it", dir, terr))
			}
		}()
	}
	return statefile.Copy(ctx, image, to)
}

// isMount reports whether a directory is another file system than the one it is in.
func isMount(dir string) (bool, error) {
	var own, above unix.Stat_t
	if err := unix.Stat(dir, &own); errors.Is(err, unix.ENOENT) {
		return false, nil
	} else if err != nil {
		return false, &os.PathError{Op: "stat", Path: dir, Err: err}
	}
	if err := unix.Stat(filepath.Dir(dir), &above); err != nil {
		return false, &os.PathError{Op: "stat", Path: filepath.Dir(dir), Err: err}
	}
	return own.Dev != above.Dev, nil
}
