package state

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/berth-run/berth/audit"
	"github.com/berth-run/berth/backup"
	"github.com/berth-run/berth/image"
)

// A From names a backup of a repository.
type From struct {
	URL string // a directory or the URL of a bucket
	Key backup.Key
	At  time.Time // the last backup that was made at or before it
}

// RestoreFrom restores a backup of a repository to an empty state directory, as Restore does, with its templates. It
// needs space for two copies in the directory that has the state directory.
func RestoreFrom(ctx context.Context, from From, state, store, blobs string) (_ *backup.Manifest, err error) {
	state, err = filepath.Abs(state)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Dir(state), 0o700); err != nil {
		return nil, err
	}
	work, err := os.MkdirTemp(filepath.Dir(state), "."+filepath.Base(state)+".fetching-*")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	r, err := OpenRepository(ctx, from.URL, from.Key, false)
	if err != nil {
		return nil, err
	}
	name, err := r.At(ctx, from.At)
	if err != nil {
		return nil, err
	}
	m, err := r.Load(ctx, name)
	if err != nil {
		return nil, err
	}
	to, templates := filepath.Join(work, "state"), filepath.Join(work, templatesPart)
	if err := fetch(ctx, r, m, work, to); err != nil {
		return nil, fmt.Errorf("fetch the backup %s: %w", name, err)
	}
	if _, err := Restore(ctx, to, state, store, blobs); err != nil {
		return nil, err
	}
	return m, loadTemplates(ctx, templates, state)
}

// fetch writes a backup as one to a directory, and its templates beside it.
func fetch(ctx context.Context, r *backup.Repository, m *backup.Manifest, work, to string) error {
	in := r.Restorer()
	defer in.Close()
	for f, err := range r.Files(ctx, m) {
		if err != nil {
			return err
		}
		path := filepath.Join(to, filepath.FromSlash(f.Path))
		if strings.HasPrefix(f.Path, templatesPart+"/") {
			path = filepath.Join(work, filepath.FromSlash(f.Path))
		}
		if err := fetchFile(ctx, in, f, path); err != nil {
			return err
		}
	}
	d := &Manifest{Format: manifestFormat, Berth: m.Berth, CreatedAt: m.CreatedAt.Truncate(time.Second),
		Database: m.Notes["database"], Blobs: m.Notes["blobs"]}
	return d.write(ctx, to)
}

func fetchFile(ctx context.Context, in *backup.Restorer, f *backup.File, path string) (err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	out, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	if err := in.Read(ctx, f, out, func(size int64) error {
		_, err := out.Seek(size, 1)
		return err
	}); err != nil {
		return err
	}
	return out.Truncate(f.Size)
}

// loadTemplates makes the templates from their archives, and verifies their digests.
func loadTemplates(ctx context.Context, from, state string) error {
	archives, err := filepath.Glob(filepath.Join(from, "*", "*"))
	if err != nil || len(archives) == 0 {
		return err
	}
	store, err := image.Open(ImagesDir(state), slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	for _, archive := range archives {
		name, want := filepath.Base(archive), "sha256:"+filepath.Base(filepath.Dir(archive))
		if is, err := store.Get(name); err == nil && is.Digest == want {
			continue // of an interrupted restore
		}
		in, err := os.Open(archive)
		if err != nil {
			return err
		}
		t, err := store.Load(ctx, in, image.LoadOptions{Name: name})
		if err := errors.Join(err, in.Close()); err != nil {
			return fmt.Errorf("restore the template %s: %w", name, err)
		}
		if t.Digest != want {
			return fmt.Errorf("restore the template %s: its digest is %s, want %s; build it again", name, t.Digest, want)
		}
	}
	return nil
}

// VerifyBackup restores a backup of a repository to a temporary directory in a directory, opens it, checks its
// database and its audit record, and removes it.
func VerifyBackup(ctx context.Context, from From, in string) (_ *backup.Manifest, err error) {
	work, err := os.MkdirTemp(in, "berth-verify-*")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	dir := filepath.Join(work, "state")
	m, err := RestoreFrom(ctx, from, dir, "", "")
	if err != nil {
		return nil, err
	}
	s, err := OpenExisting(ctx, dir)
	if err != nil {
		return nil, fmt.Errorf("open the restored state: %w", err)
	}
	_, err = TemplateReferences(ctx, s.Store, s.Snapshots)
	if err = errors.Join(err, s.Close()); err != nil {
		return nil, fmt.Errorf("read the restored state: %w", err)
	}
	public, err := audit.PublicKey(filepath.Join(dir, AuditDir))
	if err == nil {
		_, err = audit.Verify(filepath.Join(dir, AuditDir), public, "")
	}
	if err != nil {
		return nil, fmt.Errorf("verify the restored audit record: %w", err)
	}
	return m, nil
}
