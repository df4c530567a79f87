package seal

import (
	"crypto/rand"
	"errors"
	"io"
	"os"
)

// A Spool is a file that is gone when it is closed, whose key nobody else has: what it
// held cannot be read off the disk. It is written first and then read. It is not for
// concurrent use.
type Spool struct {
	file *os.File
	key  [32]byte
	w    *Writer
	size int64
}

// NewSpool returns an empty spool in a directory; default os.TempDir().
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

// Size returns how many bytes were written.
func (s *Spool) Size() int64 { return s.size }

// Content returns what was written, from the beginning. Nothing may be written any more.
func (s *Spool) Content() (io.ReadSeeker, error) {
	if s.w != nil {
		if err := s.w.Close(); err != nil {
			return nil, err
		}
		s.w = nil
	}
	if _, err := s.file.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	return NewSeeker(s.file, s.key, s.size), nil
}

// Close removes the file.
func (s *Spool) Close() error { return s.file.Close() }
