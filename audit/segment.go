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

// segmentName returns the name of the segment whose first entry has that number.
func segmentName(first int64) string { return fmt.Sprintf("%012d%s", first, segmentSuffix) }

// listSegments returns the numbers of the first entries of the segments in dir, in
// order.
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

// A BrokenError says that a record is not what was written and signed.
type BrokenError struct {
	File string // the segment
	Seq  int64  // the first entry that is not to be trusted
	Why  string
}

func (e *BrokenError) Error() string {
	return fmt.Sprintf("%s: entry %d: %s", e.File, e.Seq, e.Why)
}

// A chain is how far a record has been read and found whole.
type chain struct {
	next int64 // the number of the next entry
	prev Hash  // of the last one
}

// lines returns a scanner of the complete lines of in. What follows the last line
// feed is left out, and added to rest, which may be nil.
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

// A segmentReader checks a segment as it reads it.
type segmentReader struct {
	key   note.Verifier
	name  string
	each  func(*Entry) error // told of each entry that fits; may be nil
	seal  func()             // told when those so far are found to be signed; may be nil
	chain chain              // up to the last entry that fits

	signed     chain  // up to the last checkpoint
	checkpoint []byte // the last one, as signed
	end        int64  // behind its line
}

// read reads in, which stands at an offset in the segment, to its end. It returns
// how many bytes follow the last checkpoint, or a *BrokenError if one of the lines
// does not fit.
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
		return 0, r.broken(r.chain.next, "its line has no end")
	} else if err != nil {
		return 0, err
	}
	return offset + rest - r.end, nil
}

func (r *segmentReader) line(line []byte, end int64) error {
	if signed, ok := parseCheckpoint(line); ok {
		c, err := OpenCheckpoint(signed, r.key)
		if err != nil {
			return r.broken(r.chain.next-1, "the checkpoint behind it is %v", err)
		}
		if c.Size != r.chain.next || c.Hash != r.chain.prev {
			return r.broken(min(r.signed.next, c.Size-1), "from here on the entries are not the %d that were signed", c.Size)
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
		return r.broken(r.chain.next, "in its place is entry %d", e.Seq)
	case e.Prev != r.chain.prev && e.Seq > 0:
		return r.broken(e.Seq-1, "it is not the one that entry %d follows", e.Seq)
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
