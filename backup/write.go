package backup

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"time"
)

// Packs that are used by little are left: the next backup stores what it needs of them anew. So a Prune only removes
// whole packs, and space that is used by nothing is at most as much as the space that is used.
const (
	smallPack  = packSize / 4 // there are at most maxSmall
	maxSmall   = 64
	smallUsage = 2 // the least share that is used, as its inverse
)

// A Draft is a backup that is being made.
type Draft struct {
	r        *Repository
	m        Manifest
	previous string // its manifest must exist until this one does

	known  map[chunkID]chunk // by the previous backup
	files  map[string]*File  // of the previous backup
	packs  map[string]int64  // of the previous backup, with their sizes
	leave  map[string]bool   // packs whose chunks are stored anew
	packer *packer

	line  bytes.Buffer // of the index, since the last cut
	lines int
	used  map[string]bool // packs
}

// Begin begins a backup. Only the chunks that the last backup has are not stored again. The caller is the writer.
func (r *Repository) Begin(ctx context.Context, w Writer, version string, now time.Time) (*Draft, error) {
	if err := r.check(ctx, w.ID); err != nil {
		return nil, err
	}
	var unique [4]byte
	rand.Read(unique[:]) // never fails
	now = now.UTC()
	d := &Draft{r: r, m: Manifest{Format: format, CreatedAt: now, Writer: w.ID, Host: w.Host, Berth: version,
		Name:  now.Format(nameLayout) + "-" + hex.EncodeToString(unique[:]),
		Notes: map[string]string{}, Packs: map[string]int64{}}, known: map[chunkID]chunk{}, files: map[string]*File{},
		leave: map[string]bool{}, used: map[string]bool{}, packer: newPacker(r)}
	names, err := r.List(ctx)
	if err != nil || len(names) == 0 {
		return d, err
	}
	d.previous = names[len(names)-1]
	return d, d.learn(ctx)
}

// learn reads the chunks of the previous backup. One that is damaged is not built on: all is stored anew.
func (d *Draft) learn(ctx context.Context) error {
	m, err := d.r.Load(ctx, d.previous)
	if err == nil && !m.CreatedAt.Before(d.m.CreatedAt) {
		return fmt.Errorf("the clock of this server is wrong: the last backup of %s is of %s, and now it is %s",
			d.r.at.Name, m.CreatedAt.Format(time.RFC3339), d.m.CreatedAt.Format(time.RFC3339))
	}
	var files []*File
	if err == nil {
		for f, ferr := range d.r.Files(ctx, m) {
			if err = ferr; err != nil {
				break
			}
			files = append(files, f)
		}
	}
	var packs map[string]int64
	if err == nil {
		packs, err = d.existing(ctx, m)
	}
	switch {
	case errors.Is(err, ErrDamaged):
		d.m.Notes["anew"] = err.Error()
		return nil
	case err != nil:
		return err
	}
	d.packs = packs
	d.choose(packs, m, files)
	for _, f := range files {
		whole := true
		for _, c := range f.chunks {
			if c.pack == "" {
				continue
			}
			if _, ok := packs[c.pack]; !ok || d.leave[c.pack] {
				whole = false
				continue
			}
			d.known[c.id] = c
		}
		if whole {
			d.files[f.Path] = f
		}
	}
	for _, c := range m.Index {
		if _, ok := packs[c.pack]; ok && !d.leave[c.pack] {
			d.known[c.id] = c.chunk
		}
	}
	return nil
}

// existing returns the packs of a backup that are there, whole.
func (d *Draft) existing(ctx context.Context, m *Manifest) (map[string]int64, error) {
	packs := map[string]int64{}
	for stored, err := range d.r.at.Packs.All(ctx) {
		if err != nil {
			return nil, fmt.Errorf("list packs of %s: %w", d.r.at.Name, err)
		}
		if size, ok := m.Packs[stored.Key]; ok && size == stored.Size {
			packs[stored.Key] = size
		}
	}
	return packs, nil
}

// choose chooses the packs to leave.
func (d *Draft) choose(packs map[string]int64, m *Manifest, files []*File) {
	used := map[string]int64{}
	seen := map[chunkID]bool{}
	add := func(c chunk) {
		if c.pack != "" && !seen[c.id] {
			seen[c.id] = true
			used[c.pack] += c.stored
		}
	}
	for _, f := range files {
		for _, c := range f.chunks {
			add(c)
		}
	}
	for _, c := range m.Index {
		add(c.chunk)
	}
	var small []string
	for name, size := range packs {
		if used[name] < size/smallUsage {
			d.leave[name] = true
		} else if size < smallPack {
			small = append(small, name)
		}
	}
	if len(small) > maxSmall {
		for _, name := range small {
			d.leave[name] = true
		}
	}
}

// Note adds a note to the manifest.
func (d *Draft) Note(key, value string) { d.m.Notes[key] = value }

// Previous returns a file of the previous backup, or nil.
func (d *Draft) Previous(path string) *File { return d.files[path] }

// Reuse adds a file as the previous backup has it.
func (d *Draft) Reuse(ctx context.Context, f *File) error {
	if err := d.begin(ctx, f); err != nil {
		return err
	}
	for _, c := range f.chunks {
		if err := d.chunk(ctx, c); err != nil {
			return err
		}
	}
	return nil
}

// Add adds a file, whose Size it sets. It reads it in chunks of a size.
func (d *Draft) Add(ctx context.Context, f *File, size int, from io.Reader) error {
	f.Size, f.chunks = 0, nil
	buf := make([]byte, size)
	for {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		n, err := io.ReadFull(from, buf)
		if n > 0 {
			if err := d.data(ctx, f, buf[:n]); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			break
		}
		if err != nil {
			return err
		}
	}
	return d.Reuse(ctx, f)
}

// data adds data to a file.
func (d *Draft) data(ctx context.Context, f *File, data []byte) error {
	f.Size += int64(len(data))
	if isZero(data) {
		if last := len(f.chunks) - 1; last >= 0 && f.chunks[last].pack == "" {
			f.chunks[last].size += int64(len(data))
			return nil
		}
		f.chunks = append(f.chunks, chunk{size: int64(len(data))})
		return nil
	}
	c, err := d.store(ctx, data)
	f.chunks = append(f.chunks, c)
	return err
}

// isZero reports whether data has only zeros.
func isZero(data []byte) bool {
	return data[0] == 0 && bytes.Equal(data[:len(data)-1], data[1:])
}

// store stores a chunk unless it is known.
func (d *Draft) store(ctx context.Context, data []byte) (chunk, error) {
	id := d.r.id(data)
	if c, ok := d.known[id]; ok {
		return c, nil
	}
	c, err := d.packer.add(ctx, id, data)
	if err == nil {
		d.known[id] = c
	}
	return c, err
}

// begin adds a file to the index.
func (d *Draft) begin(ctx context.Context, f *File) error {
	text, err := json.Marshal(f)
	if err != nil {
		return err
	}
	d.m.Files++
	d.m.Bytes += f.Size
	return d.add(ctx, "F "+string(text)+"\n")
}

func (d *Draft) chunk(ctx context.Context, c chunk) error {
	if c.pack != "" {
		d.used[c.pack] = true
	}
	return d.add(ctx, c.line())
}

// The index is cut after lines whose sum has some bits, so that a change of a line changes few chunks.
const (
	cutMask  = 1<<8 - 1
	maxLines = 4096
	maxIndex = maxChunk / 2 // bytes
)

// add adds a line to the index.
func (d *Draft) add(ctx context.Context, line string) error {
	d.line.WriteString(line)
	d.lines++
	if crc32.ChecksumIEEE([]byte(line))&cutMask != 0 && d.lines < maxLines && d.line.Len() < maxIndex {
		return nil
	}
	return d.cut(ctx)
}

// cut stores the lines since the last cut.
func (d *Draft) cut(ctx context.Context) error {
	if d.line.Len() == 0 {
		return nil
	}
	c, err := d.store(ctx, d.line.Bytes())
	if err != nil {
		return err
	}
	d.used[c.pack] = true
	d.m.Index = append(d.m.Index, indexChunk{c})
	d.line.Reset()
	d.lines = 0
	return nil
}

// Commit completes the backup: from then on it exists. It returns ErrWriter if another server has become the writer.
func (d *Draft) Commit(ctx context.Context) (*Manifest, error) {
	if err := errors.Join(d.cut(ctx), d.packer.flush(ctx)); err != nil {
		return nil, err
	}
	for name := range d.used {
		size, ok := d.packer.sizes[name]
		if !ok {
			size = d.packs[name] // of the previous backup
		}
		d.m.Packs[name] = size
	}
	d.m.Stored = d.packer.bytes
	if err := d.r.check(ctx, d.m.Writer); err != nil {
		return nil, err
	}
	if d.previous != "" {
		// A server that was the writer for a while may have removed it with its packs.
		if _, err := d.r.at.Backups.Size(ctx, d.previous); err != nil {
			return nil, fmt.Errorf("look up the previous backup %s: %w", d.previous, err)
		}
	}
	text, err := json.Marshal(&d.m)
	if err != nil {
		return nil, err
	}
	if err := writeWhole(ctx, d.r.at.Backups, d.m.Name, d.r.seal("backups/"+d.m.Name, text)); err != nil {
		return nil, err
	}
	return &d.m, nil
}
