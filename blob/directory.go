package blob

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
)

// A Directory is a Storage with a file for each content.
type Directory struct{ path string }

// OpenDirectory returns a Directory, which is created if it does not exist.
func OpenDirectory(path string) (*Directory, error) {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, fmt.Errorf("create directory of contents: %w", err)
	}
	return &Directory{path}, nil
}

// file returns the path of a key's file.
func (d *Directory) file(key string) (string, error) {
	local, err := filepath.Localize(key)
	if err != nil {
		return "", fmt.Errorf("key %q is not a path below the directory", key)
	}
	return filepath.Join(d.path, local), nil
}

// Write implements Storage. A content is on disk when Write returns.
func (d *Directory) Write(ctx context.Context, key string, write func(io.Writer) error) error {
	path, err := d.file(key)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("create content: %w", err)
	}
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*.tmp")
	if err != nil {
		return fmt.Errorf("create content: %w", err)
	}
	err = write(f)
	if err == nil {
		err = context.Cause(ctx)
	}
	if err == nil {
		err = f.Sync()
	}
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return syncDir(filepath.Dir(path))
}

// syncDir writes the entries of a directory to the disk.
func syncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("sync directory of contents: %w", err)
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// Size implements Storage. It finds only regular files: a FIFO would block its reader.
func (d *Directory) Size(_ context.Context, key string) (int64, error) {
	path, err := d.file(key)
	if err != nil {
		return 0, err
	}
	info, err := os.Stat(path)
	if err != nil {
		return 0, fmt.Errorf("look up content: %w", err)
	}
	if !info.Mode().IsRegular() {
		return 0, fmt.Errorf("look up content: %s is not a file: %w", path, fs.ErrNotExist)
	}
	return info.Size(), nil
}

// Open implements Storage.
func (d *Directory) Open(_ context.Context, key string) (io.ReadSeekCloser, error) {
	path, err := d.file(key)
	if err != nil {
		return nil, err
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open content: %w", err)
	}
	return f, nil
}

// Remove implements Storage.
func (d *Directory) Remove(_ context.Context, key string) error {
	path, err := d.file(key)
	if err != nil {
		return err
	}
	if err := os.Remove(path); err != nil {
		return fmt.Errorf("remove content: %w", err)
	}
	return nil
}

// All implements Storage.
func (d *Directory) All(ctx context.Context) iter.Seq2[Stored, error] {
	return func(yield func(Stored, error) bool) {
		err := filepath.WalkDir(d.path, func(path string, e fs.DirEntry, err error) error {
			if err == nil {
				err = context.Cause(ctx)
			}
			if err != nil || e.IsDir() {
				return ignoreGone(err)
			}
			info, err := e.Info()
			if err != nil {
				return ignoreGone(err)
			}
			key, err := filepath.Rel(d.path, path)
			if err != nil {
				return err
			}
			if !yield(Stored{filepath.ToSlash(key), info.Size(), info.ModTime()}, nil) {
				return errStopped
			}
			return nil
		})
		if err != nil && !errors.Is(err, errStopped) {
			yield(Stored{}, fmt.Errorf("list contents: %w", err))
		}
	}
}

var errStopped = errors.New("the caller stopped")

// ignoreGone returns nil for a file that was removed during a listing.
func ignoreGone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
