package state

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/berth-run/berth/internal/statefile"
)

// manifestFormat is the format of backups that this version makes, and the latest that it restores.
const manifestFormat = 1

// Files of a backup besides those of the state.
const (
	manifestFile = "backup.json"
	sumsFile     = "SHA256SUMS" // in the format of sha256sum
)

// A Manifest describes a complete backup.
type Manifest struct {
	Format    int       `json:"format"`
	Berth     string    `json:"berth"` // the version that made it
	CreatedAt time.Time `json:"created_at"`
	Database  string    `json:"database"` // sqlite or postgres: where the server had it
	Blobs     string    `json:"blobs"`    // where the server had them
	Files     int       `json:"files"`
	Bytes     int64     `json:"bytes"`
	Gone      int       `json:"gone"`       // contents deleted while the backup was made
	Sums      string    `json:"sha256sums"` // the SHA-256 of the file SHA256SUMS
}

// write writes the checksums of all files below a directory, and then the manifest.
func (m *Manifest) write(ctx context.Context, dir string) error {
	f, err := os.OpenFile(filepath.Join(dir, sumsFile), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	all := sha256.New()
	out := bufio.NewWriter(io.MultiWriter(f, all))
	err = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() || path == f.Name() {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		sum, size, err := sumFile(ctx, path)
		if err != nil {
			return err
		}
		m.Files++
		m.Bytes += size
		_, _ = fmt.Fprintf(out, "%s  %s\n", sum, rel) // Flush returns its error
		return nil
	})
	if err := errors.Join(err, out.Flush(), f.Sync()); err != nil {
		return err
	}
	m.Sums = hex.EncodeToString(all.Sum(nil))
	text, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, manifestFile), append(text, '\n'), 0o600)
}

// sumFile returns the SHA-256 of a file in hexadecimal digits, and its size.
func sumFile(ctx context.Context, path string) (sum string, size int64, err error) {
	f, err := statefile.Open(path)
	if err != nil {
		return "", 0, err
	}
	defer f.Close()
	h := sha256.New()
	if size, err = io.Copy(h, cancelled{ctx, f}); err != nil {
		return "", 0, err
	}
	return hex.EncodeToString(h.Sum(nil)), size, nil
}

// cancelled is a Reader that fails when its context ends.
type cancelled struct {
	ctx context.Context
	r   io.Reader
}

func (c cancelled) Read(p []byte) (int, error) {
	if err := context.Cause(c.ctx); err != nil {
		return 0, err
	}
	return c.r.Read(p)
}

// readManifest reads and checks the manifest of a backup, and the file of its checksums.
func readManifest(ctx context.Context, dir string) (*Manifest, error) {
	text, err := os.ReadFile(filepath.Join(dir, manifestFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s is not a complete backup: it has no %s", dir, manifestFile)
	}
	if err != nil {
		return nil, err
	}
	m := &Manifest{}
	if err := json.Unmarshal(text, m); err != nil {
		return nil, fmt.Errorf("%s of %s is damaged: %w", manifestFile, dir, err)
	}
	if m.Format > manifestFormat {
		return nil, fmt.Errorf("the backup was made by a later version of Berth (%s); restore it with that version",
			m.Berth)
	}
	sum, _, err := sumFile(ctx, filepath.Join(dir, sumsFile))
	if err != nil {
		return nil, err
	}
	if sum != m.Sums {
		return nil, fmt.Errorf("the backup %s is damaged: %s was changed", dir, sumsFile)
	}
	return m, nil
}

// sums returns the path of each file of a backup, relative to its directory, and its checksum.
func (m *Manifest) sums(dir string) iter.Seq2[[2]string, error] {
	return func(yield func([2]string, error) bool) {
		f, err := os.Open(filepath.Join(dir, sumsFile))
		if err != nil {
			yield([2]string{}, err)
			return
		}
		defer f.Close()
		lines := bufio.NewScanner(f)
		for lines.Scan() {
			sum, path, _ := strings.Cut(string(bytes.TrimSpace(lines.Bytes())), "  ")
			if !filepath.IsLocal(path) {
				yield([2]string{}, fmt.Errorf("%s names the file %q", sumsFile, path))
				return
			}
			if !yield([2]string{path, sum}, nil) {
				return
			}
		}
		if err := lines.Err(); err != nil {
			yield([2]string{}, err)
		}
	}
}
