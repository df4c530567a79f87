package audit

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/statefile"
)

// A Report says what of a record was checked and found whole.
type Report struct {
	Origin     string // the key's name
	First      int64  // the number of the first entry; above 0 if older segments were put away
	Entries    int64
	Segments   int
	Checkpoint string // the last, as signed; to be kept elsewhere as a witness
}

// Verify checks the record in dir against its public key: that no entry was
// changed, left out, added or moved, and that the last one was signed. Errors about
// the record are *BrokenError. With the text of an older checkpoint it also checks
// that the record is a continuation of what it was then; without one, a record that
// was set back to an older state as a whole is whole.
func Verify(dir, publicKey, since string) (*Report, error) {
	key, err := note.NewVerifier(publicKey)
	if err != nil {
		return nil, fmt.Errorf("the public key: %w", err)
	}
	v := &verifier{dir: dir, key: key}
	if since != "" {
		c, err := OpenCheckpoint([]byte(since), key)
		if err != nil {
			return nil, fmt.Errorf("the older checkpoint: %w", err)
		}
		v.since = &c
	}
	return v.verify()
}

type verifier struct {
	dir   string
	key   note.Verifier
	since *Checkpoint
	seen  bool // since was passed
}

// extent returns the segments of a record and the size of the last, as it is while
// nobody writes.
func extent(dir string) (segments []int64, size int64, err error) {
	if lock, err := os.Open(filepath.Join(dir, lockFile)); err == nil {
		defer lock.Close()
		if err := flock(lock, unix.LOCK_SH); err != nil {
			return nil, 0, err
		}
	}
	if segments, err = listSegments(dir); err != nil {
		return nil, 0, err
	}
	if len(segments) == 0 {
		return nil, 0, fmt.Errorf("%s holds no record", dir)
	}
	fi, err := os.Stat(filepath.Join(dir, segmentName(segments[len(segments)-1])))
	if err != nil {
		return nil, 0, err
	}
	return segments, fi.Size(), nil
}

func (v *verifier) verify() (*Report, error) {
	segments, size, err := extent(v.dir)
	if err != nil {
		return nil, err
	}
	report := &Report{Origin: v.key.Name(), First: segments[0], Segments: len(segments)}
	at := chain{next: segments[0]}
	for i, first := range segments {
		if first != at.next {
			return nil, &BrokenError{File: segmentName(first), Seq: at.next, Why: "it is missing, with all before this segment"}
		}
		limit := int64(math.MaxInt64)
		if i == len(segments)-1 {
			limit = size
		}
		if at, report.Checkpoint, err = v.segment(at, i == 0, limit); err != nil {
			return nil, err
		}
	}
	report.Entries = at.next - report.First
	if v.since != nil && !v.seen {
		if v.since.Size <= report.First {
			return nil, fmt.Errorf("the older checkpoint is of entry %d, and the record begins with entry %d", v.since.Size-1, report.First)
		}
		return nil, &BrokenError{File: segmentName(segments[len(segments)-1]), Seq: at.next, Why: fmt.Sprintf("it and all up to entry %d were there and are gone", v.since.Size-1)}
	}
	return report, nil
}

// segment checks the segment that begins at a place in the chain. What came before
// the first one is not known.
func (v *verifier) segment(at chain, oldest bool, limit int64) (chain, string, error) {
	f, err := statefile.Open(filepath.Join(v.dir, segmentName(at.next)))
	if err != nil {
		return at, "", err
	}
	defer f.Close()
	e, err := firstEntry(f)
	if err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		return at, "", &BrokenError{File: segmentName(at.next), Seq: at.next, Why: err.Error()}
	}
	if oldest && at.next > 0 {
		at.prev = e.Prev
	}
	r := &segmentReader{key: v.key, name: filepath.Base(f.Name()), chain: at, signed: at, each: v.each}
	rest, err := r.read(io.LimitReader(f, limit), 0)
	if err != nil {
		return at, "", err
	}
	if rest > 0 {
		return at, "", r.broken(r.signed.next, "it and what follows, %d bytes, is not signed. A crash leaves this until the next start; else somebody has changed it", rest)
	}
	return r.chain, string(r.checkpoint), nil
}

// each compares the record with the older checkpoint where it has come to it.
func (v *verifier) each(e *Entry) error {
	if v.since == nil || e.Seq != v.since.Size-1 {
		return nil
	}
	v.seen = true
	if e.Hash != v.since.Hash {
		return &BrokenError{File: v.dir, Seq: e.Seq, Why: "it or one before it is not what the older checkpoint was made of"}
	}
	return nil
}

// Broken reports whether an error is about what a record holds.
func Broken(err error) bool {
	_, ok := errors.AsType[*BrokenError](err)
	return ok
}
