package seal

import (
	"crypto/rand"
	"errors"
	"io"
	"math"
	"os"
)

// A Spool is an unlinked temporary file, encrypted with a key in memory, so that its content cannot be
// recovered from the disk. It is first written, then read. After the first call of
// Content it is safe for concurrent use.
type Spool struct {
	file *os.File
	key  [32]byte
	w    *Writer
	size int64
}

// NewSpool returns an empty spool in dir, or in os.TempDir() if dir is "".
func NewSpool(dir string) (*Spool, error) {
	f, err := os.CreateTemp(dir, "berth-spool-")
	if err != nil {
		return nil, err
	}
	if err := os.Remove(f.Name()); err != nil { // the open file remains
		return nil, errors.Join(err, f.Close())
	}
	s := &Spool{file: f}
	rand.Read(s.key[:])
	s.w = NewWriter(f, s.key)
	return s, nil
}

func (s *Spool) Write(p []byte) (int, error) {
	n, err := s.w.Write(p)
	s.size += int64(n)
	return n, err
}

// Size returns the number of bytes written.
func (s *Spool) Size() int64 { return s.size }

// Content returns a reader of the written data, from the start. The spool must not be written to afterwards.
func (s *Spool) Content() (io.ReadSeeker, error) {
	if s.w != nil {
		if err := s.w.Close(); err != nil {
			return nil, err
		}
		s.w = nil
	}
	return NewSeeker(io.NewSectionReader(s.file, 0, math.MaxInt64), s.key, s.size), nil
}

// Close removes the file.
func (s *Spool) Close() error { return s.file.Close() }
