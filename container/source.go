package container

import (
	"io"
	"sync"
)

// A source counts the bytes that are read from r and records r's error, which is the sender's
// and not the container's.
type source struct {
	r io.Reader

	mu   sync.Mutex
	n    int64
	err  error
	over bool
}

func (s *source) Read(p []byte) (int, error) {
	s.mu.Lock()
	over := s.over
	s.mu.Unlock()
	if over {
		return 0, io.ErrClosedPipe
	}
	n, err := s.r.Read(p)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.n += int64(n)
	if err != nil && err != io.EOF {
		s.err = err
	}
	return n, err
}

// finish ends reading and returns the count and the error. The transport may otherwise continue
// to read after the guest has answered.
func (s *source) finish() (int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
	return s.n, s.err
}
