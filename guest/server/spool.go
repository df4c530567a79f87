package server

import (
	"os"
	"sync"
)

// Bounds on the recorded output of one stream of a command, in bytes. The caller gets
// the start and the end; a file may hold more of the start. The part between is counted and
// dropped, so that memory and disk are bounded.
const (
	spoolMemory = 64 << 10  // in memory; more goes to a file
	spoolHead   = 4 << 20   // sent of the start
	spoolTail   = 256 << 10 // sent of the end
	spoolFile   = 64 << 20
)

// A spool records the output of a command, independent of its readers: a slow or absent
// reader never blocks the command.
type spool struct {
	name string // of the file, if one is needed; its directory exists
	ring func() // called after each change, without the lock

	mu     sync.Mutex
	memory []byte   // the start, while there is no file
	file   *os.File // the start, readable for all users of the sandbox
	stored int64    // bytes of the start, in memory or in the file
	tail   []byte   // the last bytes after head
	total  int64
	failed bool // the disk is full: the start ends here
	closed bool
}

// head returns the bytes of the start that are sent. The caller holds s.mu.
func (s *spool) head() int64 { return min(s.stored, spoolHead) }

// Write records output. It never fails.
func (s *spool) Write(p []byte) (int, error) {
	defer s.ring()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return len(p), nil
	}
	s.total += int64(len(p))
	head := s.head()
	s.store(p)
	rest := p[s.head()-head:]
	s.tail = append(s.tail, rest[max(0, len(rest)-spoolTail):]...)
	if over := len(s.tail) - spoolTail; over > spoolTail {
		s.tail = append(s.tail[:0], s.tail[over:]...)
	}
	return len(p), nil
}

// store appends to the start as much as there is room for.
func (s *spool) store(p []byte) {
	if s.failed || s.stored == spoolFile {
		return
	}
	if s.file == nil && len(s.memory)+len(p) <= spoolMemory {
		s.memory = append(s.memory, p...)
		s.stored += int64(len(p))
		return
	}
	if !s.spill() {
		return
	}
	n, err := s.file.WriteAt(p[:min(int64(len(p)), spoolFile-s.stored)], s.stored)
	s.stored += int64(n)
	s.failed = err != nil
}

// spill moves the start from memory into the file.
func (s *spool) spill() bool {
	if s.file != nil {
		return true
	}
	f, err := os.OpenFile(s.name, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o644)
	if err == nil {
		_, err = f.Write(s.memory)
	}
	if err != nil {
		s.failed = true
		if f != nil {
			f.Close()
			os.Remove(s.name)
		}
		return false
	}
	s.file, s.memory = f, nil
	return true
}

// close ends the stream: it accepts no more output, and the tail may be read.
func (s *spool) close() {
	s.mu.Lock()
	if len(s.tail) > spoolTail {
		s.tail = s.tail[len(s.tail)-spoolTail:]
	}
	s.closed = true
	s.mu.Unlock()
	s.ring()
}

// read fills buf with output from an offset on, or after the next gap. It returns the
// offset of that output. n is 0 if there is no more for now; end reports that none will
// follow.
func (s *spool) read(offset int64, buf []byte) (at int64, n int, end bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if head := s.head(); offset < head {
		buf = buf[:min(int64(len(buf)), head-offset)]
		if s.file == nil {
			return offset, copy(buf, s.memory[offset:]), false
		}
		if n, _ = s.file.ReadAt(buf, offset); n > 0 {
			return offset, n, false
		}
		offset = head // the file was truncated
	}
	if !s.closed {
		return offset, 0, false
	}
	at = max(offset, s.total-int64(len(s.tail)))
	n = copy(buf, s.tail[at-(s.total-int64(len(s.tail))):])
	return at, n, n == 0
}

// size returns the bytes of all output.
func (s *spool) size() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.total
}

// keep makes the file permanent and returns its name and size. It returns an empty name if
// there was no output or the disk is full.
func (s *spool) keep() (name string, size int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.total == 0 || !s.spill() {
		return "", 0
	}
	return s.name, s.stored
}

// discard drops the memory, and removes the file unless it is permanent.
func (s *spool) discard(stays bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.file != nil {
		s.file.Close()
		if !stays {
			os.Remove(s.name)
		}
	}
	s.file, s.memory, s.stored, s.tail, s.closed = nil, nil, 0, nil, true
}
