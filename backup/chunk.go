package backup

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/klauspost/compress/zstd"
)

// A chunkID is a keyed hash of a chunk's plain data. Equal data has equal ids.
type chunkID [32]byte

// A chunk is where a part of a file is. The zero pack means a hole: size zeros, which are stored nowhere.
type chunk struct {
	id     chunkID
	pack   string
	at     int64 // offset in the pack
	stored int64 // bytes in the pack
	size   int64 // of the plain data
}

// line returns the chunk as a line of a manifest's index.
func (c chunk) line() string {
	if c.pack == "" {
		return fmt.Sprintf("Z %d\n", c.size)
	}
	return fmt.Sprintf("C %s %s %d %d %d\n",
		base64.RawURLEncoding.EncodeToString(c.id[:]), c.pack, c.at, c.stored, c.size)
}

// parseChunk parses a line without its end.
func parseChunk(line string) (c chunk, err error) {
	if _, err := fmt.Sscanf(line, "Z %d", &c.size); err == nil {
		return c, nil
	}
	var id string
	if _, err := fmt.Sscanf(line, "C %s %s %d %d %d", &id, &c.pack, &c.at, &c.stored, &c.size); err != nil {
		return c, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	raw, err := base64.RawURLEncoding.DecodeString(id)
	if err != nil || len(raw) != len(c.id) || c.at < 0 || c.stored < 0 || c.stored > maxChunk+overhead {
		return c, fmt.Errorf("%w: a chunk is malformed", ErrDamaged)
	}
	c.id = chunkID(raw)
	return c, nil
}

// Sizes.
const (
	maxChunk = 4 << 20  // of a chunk's plain data
	packSize = 16 << 20 // of a pack that is full
	overhead = 64       // of a sealed chunk, at most
)

// The first byte of a chunk's data before it is sealed.
const (
	plain      = 0
	compressed = 1
)

// id returns the id of plain data.
func (r *Repository) id(data []byte) chunkID { return chunkID(r.ids.derive("", data)) }

// sealChunk appends the sealed data to a buffer.
func (r *Repository) sealChunk(to []byte, id chunkID, data []byte, packer *zstd.Encoder) []byte {
	text := append(make([]byte, 0, len(data)+overhead), compressed)
	if text = packer.EncodeAll(data, text); len(text) > len(data) {
		text = append(append(text[:0], plain), data...)
	}
	return r.chunks.Seal(to, nil, text, id[:])
}

// openChunk returns the plain data of a sealed chunk.
func (r *Repository) openChunk(c chunk, sealed []byte, unpacker *zstd.Decoder) ([]byte, error) {
	text, err := r.chunks.Open(nil, nil, sealed, c.id[:])
	if err != nil || len(text) == 0 {
		return nil, fmt.Errorf("%w: a chunk of the pack %s was changed", ErrDamaged, c.pack)
	}
	data := text[1:]
	if text[0] == compressed {
		if data, err = unpacker.DecodeAll(data, nil); err != nil {
			return nil, fmt.Errorf("%w: a chunk of the pack %s: %w", ErrDamaged, c.pack, err)
		}
	}
	if int64(len(data)) != c.size {
		return nil, fmt.Errorf("%w: a chunk of the pack %s has %d bytes, want %d", ErrDamaged, c.pack, len(data), c.size)
	}
	return data, nil
}

// A packer collects sealed chunks and writes them in packs.
type packer struct {
	r    *Repository
	zstd *zstd.Encoder
	name string // of the pack that is being filled
	buf  []byte

	sizes map[string]int64 // of the packs that were written
	bytes int64            // written
}

func newPacker(r *Repository) *packer {
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1))
	if err != nil {
		panic(err) // the options are valid
	}
	return &packer{r: r, zstd: enc, sizes: map[string]int64{}}
}

// add adds a chunk, which is stored when flush has returned.
func (p *packer) add(ctx context.Context, id chunkID, data []byte) (chunk, error) {
	if p.name == "" {
		var name [12]byte
		rand.Read(name[:]) // never fails
		p.name = hex.EncodeToString(name[:])
	}
	at := int64(len(p.buf))
	p.buf = p.r.sealChunk(p.buf, id, data, p.zstd)
	c := chunk{id, p.name, at, int64(len(p.buf)) - at, int64(len(data))}
	if len(p.buf) < packSize {
		return c, nil
	}
	return c, p.flush(ctx)
}

// flush writes the chunks that were added.
func (p *packer) flush(ctx context.Context) error {
	if p.name == "" {
		return nil
	}
	if err := writeWhole(ctx, p.r.at.Packs, p.name, p.buf); err != nil {
		return err
	}
	p.sizes[p.name] = int64(len(p.buf))
	p.bytes += int64(len(p.buf))
	p.name, p.buf = "", p.buf[:0]
	return nil
}

// A reader reads chunks. Those that follow each other in a pack are read by one request.
type reader struct {
	r    *Repository
	zstd *zstd.Decoder

	pack string // that is open
	in   io.ReadSeekCloser
	at   int64
}

func newReader(r *Repository) *reader {
	dec, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(2*maxChunk))
	if err != nil {
		panic(err) // the options are valid
	}
	return &reader{r: r, zstd: dec}
}

// skip is how much of a pack is read and dropped in place of a further request.
const skip = 256 << 10

// read returns the plain data of a chunk that is not a hole.
func (o *reader) read(ctx context.Context, c chunk) ([]byte, error) {
	data, err := o.stored(ctx, c)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
		err = fmt.Errorf("%w: the pack %s is lost or cut off: %w", ErrDamaged, c.pack, err)
	}
	if err != nil {
		return nil, err
	}
	return o.r.openChunk(c, data, o.zstd)
}

func (o *reader) stored(ctx context.Context, c chunk) ([]byte, error) {
	if o.pack != c.pack {
		o.close()
		in, err := o.r.at.Packs.Open(ctx, c.pack)
		if err != nil {
			return nil, fmt.Errorf("open pack %s: %w", c.pack, err)
		}
		o.pack, o.in, o.at = c.pack, in, 0
	}
	var err error
	if gap := c.at - o.at; gap >= 0 && gap <= skip {
		_, err = io.CopyN(io.Discard, o.in, gap)
	} else {
		_, err = o.in.Seek(c.at, io.SeekStart)
	}
	data := make([]byte, c.stored)
	if err == nil {
		_, err = io.ReadFull(o.in, data)
	}
	if err != nil {
		o.close()
		return nil, fmt.Errorf("read pack %s: %w", c.pack, err)
	}
	o.at = c.at + c.stored
	return data, nil
}

func (o *reader) close() {
	if o.in != nil {
		_ = o.in.Close() // it was read
	}
	o.in, o.pack = nil, ""
}

func (o *reader) end() {
	o.close()
	o.zstd.Close()
}
