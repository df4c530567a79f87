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

// A Report summarizes a verified record.
type Report struct {
	Origin     string // the key's name
	First      int64  // number of the first entry; above 0 if older segments were removed
	Entries    int64
	Segments   int
	Checkpoint string // the last checkpoint, as signed; stored elsewhere, it proves a later rollback
}

// Verify verifies the record in dir against its public key: no entry was changed, removed,
// added or moved, and the last one is signed. It returns a *BrokenError if the record is
// invalid. Given an older checkpoint in since, it also checks that the record continues it.
// Without one, a record that was rolled back as a whole is valid.
func Verify(dir, publicKey, since string) (*Report, error) {
	key, err := note.NewVerifier(publicKey)
	if err != nil {
		return nil, fmt.Errorf("invalid public key: %w", err)
	}
	v := &verifier{dir: dir, key: key}
	if since != "" {
		c, err := OpenCheckpoint([]byte(since), key)
		if err != nil {
			return nil, fmt.Errorf("invalid older checkpoint: %w", err)
		}
		v.since = &c
	}
	return v.verify()
}

type verifier struct {
	dir   string
	key   note.Verifier
	since *Checkpoint
	seen  bool // the entry of since was read
}

// extent returns the segments of a record, and the size of the last one at a moment when no
// process writes.
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
		return nil, 0, fmt.Errorf("%s holds no audit record", dir)
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
			return nil, &BrokenError{File: segmentName(first), Seq: at.next,
				Why: "missing, like all entries up to this segment"}
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
			return nil, fmt.Errorf("the older checkpoint is for entry %d, but the record starts at entry %d",
				v.since.Size-1, report.First)
		}
		return nil, &BrokenError{File: segmentName(segments[len(segments)-1]), Seq: at.next,
			Why: fmt.Sprintf("the older checkpoint covers entries up to %d, which are missing", v.since.Size-1)}
	}
	return report, nil
}

// segment verifies the segment that starts at a position in the chain. The predecessor of the
// oldest segment is unknown.
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
		return at, "", r.broken(r.signed.next,
			"the last %d bytes are not signed: a crash leaves this until the next start, otherwise the record was changed",
			rest)
	}
	return r.chain, string(r.checkpoint), nil
}

// each compares the record with the older checkpoint at the checkpoint's entry.
func (v *verifier) each(e *Entry) error {
	if v.since == nil || e.Seq != v.since.Size-1 {
		return nil
	}
	v.seen = true
	if e.Hash != v.since.Hash {
		return &BrokenError{File: v.dir, Seq: e.Seq,
			Why: "this entry, or one before it, differs from the older checkpoint"}
	}
	return nil
}

// Broken reports whether an error means that a record is invalid.
func Broken(err error) bool {
	_, ok := errors.AsType[*BrokenError](err)
	return ok
}
