package backup

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// A Manifest describes a backup.
type Manifest struct {
	Format    int               `json:"format"`
	Name      string            `json:"name"`
	CreatedAt time.Time         `json:"created_at"` // it has everything that was acknowledged before
	Writer    string            `json:"writer"`
	Host      string            `json:"host"`
	Berth     string            `json:"berth"` // the version that made it
	Notes     map[string]string `json:"notes"` // of the caller
	Files     int               `json:"files"`
	Bytes     int64             `json:"bytes"`  // of all files
	Stored    int64             `json:"stored"` // bytes that it added to the repository

	Index []indexChunk     `json:"index"` // chunks of the list of files
	Packs map[string]int64 `json:"packs"` // that it uses, with their sizes
}

// An indexChunk is a chunk in a manifest.
type indexChunk struct{ chunk }

// MarshalText implements encoding.TextMarshaler.
func (c indexChunk) MarshalText() ([]byte, error) { return []byte(strings.TrimSpace(c.line())), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (c *indexChunk) UnmarshalText(text []byte) (err error) {
	c.chunk, err = parseChunk(string(text))
	return err
}

// A File is a file of a backup.
type File struct {
	Path    string    `json:"path"` // relative, with slashes
	Size    int64     `json:"size"`
	Changed time.Time `json:"changed,omitzero"` // when it was changed last; zero for a file that never changes

	chunks []chunk
}

// nameLayout begins the names of backups, so that they sort by time.
const nameLayout = "20060102T150405.000Z"

// Time returns the time of a backup with a name.
func Time(name string) (time.Time, error) {
	if len(name) < len(nameLayout) {
		return time.Time{}, fmt.Errorf("%q is not the name of a backup", name)
	}
	t, err := time.Parse(nameLayout, name[:len(nameLayout)])
	if err != nil {
		return t, fmt.Errorf("%q is not the name of a backup", name)
	}
	return t, nil
}

// List returns the names of all backups, the oldest first.
func (r *Repository) List(ctx context.Context) ([]string, error) {
	var names []string
	for stored, err := range r.at.Backups.All(ctx) {
		if err != nil {
			return nil, fmt.Errorf("list backups of %s: %w", r.at.Name, err)
		}
		if _, err := Time(stored.Key); err == nil && !strings.HasSuffix(stored.Key, ".tmp") {
			names = append(names, stored.Key)
		}
	}
	slices.Sort(names)
	return names, nil
}

// At returns the name of the last backup that was made at or before a time. It returns fs.ErrNotExist if there is
// none.
func (r *Repository) At(ctx context.Context, t time.Time) (string, error) {
	names, err := r.List(ctx)
	if err != nil {
		return "", err
	}
	for _, name := range slices.Backward(names) {
		if made, _ := Time(name); !made.After(t) { // List checked the name
			return name, nil
		}
	}
	if len(names) == 0 {
		return "", fmt.Errorf("%s has no backup: %w", r.at.Name, fs.ErrNotExist)
	}
	first, _ := Time(names[0])
	return "", fmt.Errorf("%s has no backup of %s or before, the oldest is of %s: %w", r.at.Name,
		t.UTC().Format(time.RFC3339), first.Format(time.RFC3339), fs.ErrNotExist)
}

// maxManifest is the size of the largest manifest: that of a backup of some 100 TB.
const maxManifest = 64 << 20

// Load returns the manifest of a backup. It returns ErrDamaged for one that was changed or has another name.
func (r *Repository) Load(ctx context.Context, name string) (*Manifest, error) {
	sealed, err := readWhole(ctx, r.at.Backups, name, maxManifest)
	if err != nil {
		return nil, err
	}
	text, err := r.open("backups/"+name, sealed)
	if err != nil {
		return nil, fmt.Errorf("%w: the manifest of the backup %s was changed, or is that of another one", ErrDamaged, name)
	}
	m := &Manifest{}
	if err := json.Unmarshal(text, m); err != nil {
		return nil, fmt.Errorf("%w: decode the manifest of the backup %s: %w", ErrDamaged, name, err)
	}
	if m.Format > format {
		return nil, fmt.Errorf("the backup %s was made by a later version of Berth (%s); use that version", name, m.Berth)
	}
	return m, nil
}

// Files yields the files of a backup.
func (r *Repository) Files(ctx context.Context, m *Manifest) iter.Seq2[*File, error] {
	return func(yield func(*File, error) bool) {
		index := newReader(r)
		defer index.end()
		lines := bufio.NewScanner(&indexReader{ctx: ctx, in: index, rest: m.Index})
		var f *File
		for lines.Scan() {
			text, isFile := strings.CutPrefix(lines.Text(), "F ")
			if !isFile {
				c, err := parseChunk(lines.Text())
				if err == nil && f == nil {
					err = fmt.Errorf("%w: the list of files of %s begins with a chunk", ErrDamaged, m.Name)
				}
				if err != nil {
					yield(nil, err)
					return
				}
				f.chunks = append(f.chunks, c)
				continue
			}
			if f != nil && !yield(f, nil) {
				return
			}
			f = &File{}
			err := json.Unmarshal([]byte(text), f)
			if err == nil && !filepath.IsLocal(filepath.FromSlash(f.Path)) {
				err = fmt.Errorf("it names the file %q", f.Path)
			}
			if err != nil {
				yield(nil, fmt.Errorf("%w: the list of files of %s: %w", ErrDamaged, m.Name, err))
				return
			}
		}
		if err := lines.Err(); err != nil {
			yield(nil, fmt.Errorf("read the list of files of %s: %w", m.Name, err))
			return
		}
		if f != nil {
			yield(f, nil)
		}
	}
}

// An indexReader reads the list of files.
type indexReader struct {
	ctx  context.Context
	in   *reader
	rest []indexChunk
	data []byte
}

func (x *indexReader) Read(p []byte) (int, error) {
	for len(x.data) == 0 {
		if len(x.rest) == 0 {
			return 0, io.EOF
		}
		data, err := x.in.read(x.ctx, x.rest[0].chunk)
		if err != nil {
			return 0, err
		}
		x.rest, x.data = x.rest[1:], data
	}
	n := copy(p, x.data)
	x.data = x.data[n:]
	return n, nil
}

// A Restorer reads files of a backup. Read them in the order of Files: those that were stored together are read
// together.
type Restorer struct{ in *reader }

// Restorer returns a Restorer, which must be closed.
func (r *Repository) Restorer() *Restorer { return &Restorer{newReader(r)} }

// Close closes the Restorer.
func (o *Restorer) Close() { o.in.end() }

// Read writes the content of a file. hole is called in place of writing many zeros.
func (o *Restorer) Read(ctx context.Context, f *File, w io.Writer, hole func(size int64) error) error {
	var size int64
	for _, c := range f.chunks {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		size += c.size
		if c.pack == "" {
			if err := hole(c.size); err != nil {
				return err
			}
			continue
		}
		data, err := o.in.read(ctx, c)
		if err != nil {
			return fmt.Errorf("%s: %w", f.Path, err)
		}
		if _, err := io.Copy(w, bytes.NewReader(data)); err != nil {
			return err
		}
	}
	if size != f.Size {
		return fmt.Errorf("%s: %w: its chunks have %d bytes, want %d", f.Path, ErrDamaged, size, f.Size)
	}
	return nil
}
