package snapshot

import (
	"crypto/aes"
	"crypto/cipher"
	"encoding/binary"
	"errors"
	"io"
)

// A box is a stream that only its key opens: chunks of chunkSize bytes, each sealed
// with AES-256-GCM under its number. The last one is marked and may be shorter, so
// that a box that was cut, added to or put in another order does not open. A key is
// for one box.
const (
	chunkSize = 64 << 10
	overhead  = 16 // of a chunk
)

// errBroken is the error of a box that is not as it was written.
var errBroken = errors.New("snapshot: what is stored is not what was written")

// nonce returns the nonce of a chunk.
func nonce(number uint64, last bool) []byte {
	var n [12]byte
	binary.BigEndian.PutUint64(n[:8], number)
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

// A sealer writes a box.
type sealer struct {
	w      io.Writer
	gcm    cipher.AEAD
	number uint64
	chunk  []byte // not written yet
	out    []byte
}

func newSealer(w io.Writer, key [32]byte) *sealer {
	return &sealer{w: w, gcm: newGCM(key), chunk: make([]byte, 0, chunkSize), out: make([]byte, 0, chunkSize+overhead)}
}

func (s *sealer) Write(p []byte) (n int, err error) {
	for len(p) > 0 {
		if len(s.chunk) == chunkSize { // there is more, so that this is not the last
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

// Close writes the last chunk. It does not close the writer below.
func (s *sealer) Close() error { return s.flush(true) }

func (s *sealer) flush(last bool) error {
	_, err := s.w.Write(s.gcm.Seal(s.out, nonce(s.number, last), s.chunk, nil))
	s.chunk = s.chunk[:0]
	s.number++
	return err
}

// An opener reads a box. It yields nothing that was not sealed so, and the end only
// after the last chunk.
type opener struct {
	r      io.Reader
	gcm    cipher.AEAD
	number uint64
	ahead  []byte // the next chunk, sealed; nil before the first
	chunk  []byte // opened and not read yet
	last   bool
	err    error
}

func newOpener(r io.Reader, key [32]byte) *opener { return &opener{r: r, gcm: newGCM(key)} }

func (o *opener) Read(p []byte) (int, error) {
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

// next opens the next chunk. One is the last if nothing follows.
func (o *opener) next() error {
	if o.last {
		return io.EOF
	}
	if o.ahead == nil {
		if err := o.fetch(); err != nil {
			return err
		}
	}
	sealed := o.ahead
	if err := o.fetch(); err != nil {
		return err
	}
	o.last = len(o.ahead) == 0
	chunk, err := o.gcm.Open(nil, nonce(o.number, o.last), sealed, nil)
	if err != nil {
		return errBroken
	}
	o.number++
	o.chunk = chunk
	return nil
}

// fetch reads a sealed chunk, of which there is none after the last.
func (o *opener) fetch() error {
	buf := make([]byte, chunkSize+overhead)
	n, err := io.ReadFull(o.r, buf)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return err
	}
	o.ahead = buf[:n]
	return nil
}
