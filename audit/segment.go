package audit

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/mod/sumdb/note"
)

const segmentSuffix = ".log"

// segmentName returns the name of the segment with a first entry.
func segmentName(first int64) string { return fmt.Sprintf("%012d%s", first, segmentSuffix) }

// listSegments returns the numbers of the first entries of the segments in dir, sorted.
func listSegments(dir string) ([]int64, error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var firsts []int64
	for _, e := range entries {
		name, ok := strings.CutSuffix(e.Name(), segmentSuffix)
		n, err := strconv.ParseInt(name, 10, 64)
		if ok && err == nil && segmentName(n) == e.Name() {
			firsts = append(firsts, n)
		}
	}
	slices.Sort(firsts)
	return firsts, nil
}

// A BrokenError reports that a record differs from what was signed.
type BrokenError struct {
	File string // the segment
	Seq  int64  // the first invalid entry
	Why  string
}

func (e *BrokenError) Error() string {
	return fmt.Sprintf("%s: entry %d: %s", e.File, e.Seq, e.Why)
}

// A chain is the position up to which a record is verified.
type chain struct {
	next int64 // number of the next entry
	prev Hash  // hash of the last entry
}

// lines returns a scanner of the complete lines of in. It skips text after the last line feed
// and stores its length in rest, which may be nil.
func lines(in io.Reader, rest *int64) *bufio.Scanner {
	s := bufio.NewScanner(in)
	s.Buffer(make([]byte, 0, 64<<10), maxLine)
	s.Split(func(data []byte, atEOF bool) (int, []byte, error) {
		if i := bytes.IndexByte(data, '\n'); i >= 0 {
			return i + 1, data[:i], nil
		}
		if atEOF && rest != nil {
			*rest = int64(len(data))
		}
		return 0, nil, nil
	})
	return s
}

// A segmentReader reads and verifies a segment.
type segmentReader struct {
	key   note.Verifier
	name  string
	each  func(*Entry) error // called for each valid entry; may be nil
	seal  func()             // called when a checkpoint confirms the entries so far; may be nil
	chain chain              // up to the last valid entry

	signed     chain  // up to the last checkpoint
	checkpoint []byte // the last checkpoint, as signed
	end        int64  // offset after its line
}

// read reads in, which starts at offset in the segment, to its end. It returns the number of
// bytes after the last checkpoint, or a *BrokenError if a line is invalid.
func (r *segmentReader) read(in io.Reader, offset int64) (rest int64, err error) {
	r.end = offset
	s := lines(in, &rest)
	for s.Scan() {
		line := s.Bytes()
		offset += int64(len(line)) + 1
		if err := r.line(line, offset); err != nil {
			return 0, err
		}
	}
	if err := s.Err(); errors.Is(err, bufio.ErrTooLong) {
		return 0, r.broken(r.chain.next, "line too long")
	} else if err != nil {
		return 0, err
	}
	return offset + rest - r.end, nil
}

func (r *segmentReader) line(line []byte, end int64) error {
	if signed, ok := parseCheckpoint(line); ok {
		c, err := OpenCheckpoint(signed, r.key)
		if err != nil {
			return r.broken(r.chain.next-1, "invalid checkpoint after it: %v", err)
		}
		if c.Size != r.chain.next || c.Hash != r.chain.prev {
			return r.broken(min(r.signed.next, c.Size-1),
				"from here on, the entries differ from the %d that were signed", c.Size)
		}
		r.signed, r.checkpoint, r.end = r.chain, signed, end
		if r.seal != nil {
			r.seal()
		}
		return nil
	}
	e, err := parseEntry(line)
	switch {
	case err != nil:
		return r.broken(r.chain.next, "%v", err)
	case e.Seq != r.chain.next:
		return r.broken(r.chain.next, "found entry %d instead", e.Seq)
	case e.Prev != r.chain.prev && e.Seq > 0:
		return r.broken(e.Seq-1, "entry %d has another predecessor", e.Seq)
	case e.Prev != r.chain.prev:
		return r.broken(e.Seq, "it is not the first of a record")
	}
	r.chain.next, r.chain.prev = e.Seq+1, e.Hash
	if r.each != nil {
		return r.each(e)
	}
	return nil
}

func (r *segmentReader) broken(seq int64, format string, args ...any) error {
	return &BrokenError{File: r.name, Seq: seq, Why: fmt.Sprintf(format, args...)}
}
