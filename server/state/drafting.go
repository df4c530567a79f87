package state

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/berth-run/berth/audit"
	"github.com/berth-run/berth/backup"
	"github.com/berth-run/berth/image"
	"github.com/berth-run/berth/store/postgres"
	"github.com/berth-run/berth/store/sqlite"
)

// Sizes of chunks: a database and a volume change in places, contents never do.
const (
	pageChunk    = 64 << 10
	contentChunk = 1 << 20
)

// templatesPart are the templates in a repository's backup: an archive for each, DIGEST/NAME.
const templatesPart = "templates"

// A drafting is a backup in a repository that is being made. What cannot be read in its place is copied first, as in
// a backup to a directory.
type drafting struct {
	*backup.Draft
	*copying
}

func (b *drafting) database(ctx context.Context) error {
	f := &backup.File{Path: "berth.db"}
	if _, ok := b.db.(*postgres.DB); !ok {
		b.Note("database", "sqlite")
		return sqlite.ReadPages(ctx, filepath.Join(b.state, "berth.db"), func(r io.Reader) error {
			return b.Add(ctx, f, pageChunk, r)
		})
	}
	if err := b.copyDatabase(ctx); err != nil {
		return err
	}
	b.Note("database", "postgres")
	return b.file(ctx, f, pageChunk)
}

// file adds a file that was copied, and removes the copy.
func (b *drafting) file(ctx context.Context, f *backup.File, chunk int) error {
	from := filepath.Join(b.to, filepath.FromSlash(f.Path))
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	if err := b.Add(ctx, f, chunk, in); err != nil {
		return err
	}
	return os.Remove(from)
}

// contents adds the contents of blobs. Those of the previous backup are not read again: contents never change.
func (b *drafting) contents(ctx context.Context) error {
	p, err := ReadPlace(ctx, b.db)
	if err != nil {
		return err
	}
	b.Note("blobs", p.Where())
	blobs, err := OpenPlace(p, b.state, false)
	if err != nil {
		return err
	}
	for _, kind := range BlobKinds {
		from, err := blobs.Open(kind)
		if err != nil {
			return err
		}
		for c, err := range from.All(ctx) {
			if err != nil {
				return err
			}
			f := &backup.File{Path: kind + "/" + c.Key}
			if is := b.Previous(f.Path); is != nil && is.Size == c.Size {
				err = b.Reuse(ctx, is)
			} else {
				var in io.ReadCloser
				if in, err = from.Open(ctx, c.Key); err == nil {
					err = errors.Join(b.Add(ctx, f, contentChunk, in), in.Close())
				}
			}
			if err != nil && !errors.Is(err, fs.ErrNotExist) { // else it was deleted just now
				return fmt.Errorf("%s: %w", f.Path, err)
			}
		}
	}
	return nil
}

// volumes adds the volumes. One that was not written since the previous backup is not read again.
func (b *drafting) volumes(ctx context.Context) error {
	images, err := filepath.Glob(filepath.Join(b.state, "volumes", "*", "*.img"))
	if err != nil {
		return err
	}
	for _, from := range images {
		rel, err := filepath.Rel(b.state, from)
		if err != nil {
			return err
		}
		info, err := os.Stat(from)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		} else if err != nil {
			return err
		}
		f := &backup.File{Path: filepath.ToSlash(rel), Changed: info.ModTime().UTC()}
		mount := strings.TrimSuffix(from, ".img")
		mounted, err := isMount(mount)
		if err != nil {
			return err
		}
		// What a mounted volume holds back is in its file only when it is frozen.
		if is := b.Previous(f.Path); is != nil && !mounted && is.Size == info.Size() && is.Changed.Equal(f.Changed) {
			if err := b.Reuse(ctx, is); err != nil {
				return err
			}
			continue
		}
		to := filepath.Join(b.to, rel)
		if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
			return err
		}
		if err := copyVolume(ctx, from, mount, to); err == nil {
			err = b.file(ctx, f, pageChunk)
			if err != nil {
				return err
			}
		} else if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// templates adds the templates that the previous backup does not have: their digests say that they are equal.
func (b *drafting) templates(ctx context.Context) error {
	store, err := image.Open(ImagesDir(b.state), slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	all, err := store.List()
	if err != nil {
		return err
	}
	for _, t := range all {
		name := t.Name
		if name == "" {
			name = restoredName(t.Digest)
		}
		f := &backup.File{Path: path.Join(templatesPart, strings.TrimPrefix(t.Digest, "sha256:"), name)}
		if is := b.Previous(f.Path); is != nil {
			if err := b.Reuse(ctx, is); err != nil {
				return err
			}
			continue
		}
		r, w := io.Pipe()
		saved := make(chan error, 1)
		go func() {
			err := store.Save(ctx, t.Digest, w, nil)
			w.CloseWithError(err)
			saved <- err
		}()
		err := b.Add(ctx, f, contentChunk, r)
		r.CloseWithError(errors.Join(err, io.ErrClosedPipe)) // ends Save
		if err := errors.Join(err, <-saved); err != nil && !errors.Is(err, image.ErrNotFound) {
			return fmt.Errorf("template %s: %w", name, err)
		}
	}
	return nil
}

// restoredName names a template that had no name.
func restoredName(digest string) string {
	return "restored-" + strings.TrimPrefix(digest, "sha256:")[:12]
}

func (b *drafting) audit(ctx context.Context) error {
	if err := os.Mkdir(filepath.Join(b.to, AuditDir), 0o700); err != nil {
		return err
	}
	if err := audit.Backup(ctx, filepath.Join(b.state, AuditDir), filepath.Join(b.to, AuditDir)); err != nil {
		return err
	}
	return b.below(ctx, AuditDir)
}

// keys adds the keys last, so that what was deleted since is unreadable.
func (b *drafting) keys(ctx context.Context) error {
	if err := b.copyKeys(ctx); err != nil {
		return err
	}
	return b.below(ctx, ".")
}

// below adds the files that were copied below a directory.
func (b *drafting) below(ctx context.Context, dir string) error {
	return filepath.WalkDir(filepath.Join(b.to, dir), func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		rel, err := filepath.Rel(b.to, path)
		if err != nil {
			return err
		}
		return b.file(ctx, &backup.File{Path: filepath.ToSlash(rel)}, pageChunk)
	})
}
