package server

import (
	"os"
	"sync"
)

// Bounds on what is kept of one stream of a command, in bytes: its beginning on
// disk, its end in memory. What lies between is counted and dropped, so that a
// flood costs neither.
const (
	spoolHead = 4 << 20
	spoolTail = 256 << 10
)

// A spool keeps what a command prints, apart from whoever reads it: a slow or
// absent reader never blocks the command.
type spool struct {
	dir  string
	ring func() // called after each change, without the lock

	mu     sync.Mutex
	file   *os.File // nameless; made by the first write
	head   int64    // bytes in file
	tail   []byte   // the last bytes behind the head
	total  int64
	failed bool // the disk is full: the head ends here
	closed bool
}

// Write takes output; it never fails.
func (s *spool) Write(p []byte) (int, error) {
	defer s.ring()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return len(p), nil
	}
	s.total += int64(len(p))
	rest := p
	if !s.failed && s.head < spoolHead {
		n := s.writeHead(p[:min(int64(len(p)), spoolHead-s.head)])
		rest = p[n:]
	}
	s.tail = append(s.tail, rest[max(0, len(rest)-spoolTail):]...)
	if over := len(s.tail) - spoolTail; over > spoolTail {
		s.tail = append(s.tail[:0], s.tail[over:]...)
	}
	return len(p), nil
}

func (s *spool) writeHead(p []byte) int {
	if s.file == nil {
		f, err := os.CreateTemp(s.dir, "out-*")
		if err != nil {
			s.failed = true
			return 0
		}
		os.Remove(f.Name()) // gone with its last reader, whatever happens
		s.file = f
	}
	n, err := s.file.WriteAt(p, s.head)
	s.head += int64(n)
	s.failed = err != nil
	return n
}

// close ends the stream: nothing more is taken, and the tail may be read.
func (s *spool) close() {
	s.mu.Lock()
	if len(s.tail) > spoolTail {
		s.tail = s.tail[len(s.tail)-spoolTail:]
	}
	s.closed = true
	s.mu.Unlock()
	s.ring()
}

// read fills buf with output from an offset on, or after the next gap. It
// returns the offset of what it read; n is 0 if there is nothing more for now, and
// end tells that there never will be.
func (s *spool) read(offset int64, buf []byte) (at int64, n int, end bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if offset < s.head {
		n, _ = s.file.ReadAt(buf[:min(int64(len(buf)), s.head-offset)], offset)
		return offset, n, false
	}
	if !s.closed {
		return offset, 0, false
	}
	at = max(offset, s.total-int64(len(s.tail)))
	n = copy(buf, s.tail[at-(s.total-int64(len(s.tail))):])
	return at, n, n == 0
}

// discard gives up what is kept.
func (s *spool) discard() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.file != nil {
		s.file.Close()
	}
	s.file, s.head, s.tail, s.closed = nil, 0, nil, true
}
