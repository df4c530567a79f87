package seal

import (
	"crypto/aes"
	"crypto/cipher"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// A sealed stream consists of chunks of chunkSize bytes, each sealed with AES-256-GCM under its
// number. The last chunk is marked and may be shorter, so that a truncated, extended or reordered
// stream does not open. A key must seal only one stream.
const (
	chunkSize = 64 << 10
	overhead  = 16 // of a chunk
	partSize  = chunkSize + overhead
)

// ErrBroken is returned for a stream that was changed.
var ErrBroken = errors.New("seal: stored data was changed or damaged")

// Size returns the sealed size of a stream of n bytes.
func Size(n int64) int64 { return n + max(1, (n+chunkSize-1)/chunkSize)*overhead }

// nonce returns the nonce of a chunk.
func nonce(number int64, last bool) []byte {
	var n [12]byte
	binary.BigEndian.PutUint64(n[:8], uint64(number))
	if last {
		n[8] = 1
	}
	return n[:]
}

func newGCM(key [32]byte) cipher.AEAD {
	block, err := aes.NewCipher(key[:])
	if err != nil {
		panic(err) // 32 bytes are a key
	}
	gcm, err := cipher.NewGCM(block)
	if err != nil {
		panic(err) // AES has GCM's block size
	}
	return gcm
}

// A Writer seals a stream. It is not safe for concurrent use.
type Writer struct {
	w      io.Writer
	gcm    cipher.AEAD
	number int64
	chunk  []byte // not written yet
	out    []byte
}

// NewWriter returns a Writer that writes the sealed stream to w.
func NewWriter(w io.Writer, key [32]byte) *Writer {
	return &Writer{w: w, gcm: newGCM(key), chunk: make([]byte, 0, chunkSize), out: make([]byte, 0, partSize)}
}

func (s *Writer) Write(p []byte) (n int, err error) {
	for len(p) > 0 {
		if len(s.chunk) == chunkSize { // more data follows, so this chunk is not the last
			if err := s.flush(false); err != nil {
				return n, err
			}
		}
		m := min(len(p), chunkSize-len(s.chunk))
		s.chunk = append(s.chunk, p[:m]...)
		p, n = p[m:], n+m
	}
	return n, nil
}

// Close writes the last chunk. It does not close the underlying writer.
func (s *Writer) Close() error { return s.flush(true) }

func (s *Writer) flush(last bool) error {
	_, err := s.w.Write(s.gcm.Seal(s.out, nonce(s.number, last), s.chunk, nil))
	s.chunk = s.chunk[:0]
	s.number++
	return err
}

// A Reader opens a stream. It returns only verified data, and io.EOF only after the last chunk. It is
// not safe for concurrent use.
type Reader struct {
	r      io.Reader
	gcm    cipher.AEAD
	number int64
	ahead  []byte // the next sealed chunk; nil before the first
	spare  []byte // buffer for the chunk after it
	chunk  []byte // opened data, not read yet
	last   bool
	err    error
}

// NewReader returns a Reader of the sealed stream in r.
func NewReader(r io.Reader, key [32]byte) *Reader { return &Reader{r: r, gcm: newGCM(key)} }

func (o *Reader) Read(p []byte) (int, error) {
	for len(o.chunk) == 0 && o.err == nil {
		o.err = o.next()
	}
	if len(o.chunk) == 0 {
		return 0, o.err
	}
	n := copy(p, o.chunk)
	o.chunk = o.chunk[n:]
	return n, nil
}

// next opens the next chunk. A chunk is the last if no other follows.
func (o *Reader) next() (err error) {
	if o.last {
		return io.EOF
	}
	if o.ahead == nil {
		o.spare = make([]byte, partSize)
		if o.ahead, err = o.fetch(make([]byte, partSize)); err != nil {
			return err
		}
	}
	sealed := o.ahead
	if o.ahead, err = o.fetch(o.spare[:partSize]); err != nil {
		return err
	}
	o.spare = sealed
	o.last = len(o.ahead) == 0
	if o.chunk, err = o.gcm.Open(sealed[:0], nonce(o.number, o.last), sealed, nil); err != nil {
		o.chunk = nil
		return ErrBroken
	}
	o.number++
	return nil
}

// fetch reads a sealed chunk. It returns no bytes after the last one.
func (o *Reader) fetch(buf []byte) ([]byte, error) {
	n, err := io.ReadFull(o.r, buf)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, err
	}
	return buf[:n], nil
}

// A Seeker opens any part of a stream of known size. It returns only data verified for its position. It
// is not safe for concurrent use.
type Seeker struct {
	r        io.ReadSeeker
	gcm      cipher.AEAD
	size, at int64
	below    int64 // position of r
	buf      []byte
	number   int64 // of chunk
	chunk    []byte
}

// NewSeeker returns a Seeker of the sealed stream in r, which must start at its beginning. size is the
// size of the plain data.
func NewSeeker(r io.ReadSeeker, key [32]byte, size int64) *Seeker {
	return &Seeker{r: r, gcm: newGCM(key), size: size, number: -1}
}

func (s *Seeker) Read(p []byte) (int, error) {
	if s.at >= s.size {
		return 0, io.EOF
	}
	if n := s.at / chunkSize; n != s.number {
		if err := s.load(n); err != nil {
			return 0, err
		}
	}
	n := copy(p, s.chunk[s.at%chunkSize:])
	s.at += int64(n)
	return n, nil
}

// load opens a chunk.
func (s *Seeker) load(number int64) error {
	s.number = -1
	if s.buf == nil {
		s.buf = make([]byte, partSize)
	}
	if from := number * partSize; from != s.below {
		at, err := s.r.Seek(from, io.SeekStart)
		if err != nil {
			return err
		}
		s.below = at
	}
	last := number == (s.size-1)/chunkSize
	sealed := s.buf
	if last {
		sealed = sealed[:s.size-number*chunkSize+overhead]
	}
	n, err := io.ReadFull(s.r, sealed)
	s.below += int64(n)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return ErrBroken
	}
	if err != nil {
		return err
	}
	if s.chunk, err = s.gcm.Open(sealed[:0], nonce(number, last), sealed, nil); err != nil {
		return ErrBroken
	}
	s.number = number
	return nil
}

// Seek implements io.Seeker.
func (s *Seeker) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += s.at
	case io.SeekEnd:
		offset += s.size
	}
	if offset < 0 {
		return s.at, fmt.Errorf("seal: seek to %d", offset)
	}
	s.at = offset
	return offset, nil
}
