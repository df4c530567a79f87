package audit

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/internal/clock"
	"github.com/berth-run/berth/internal/statefile"
)

// segmentSize is the size at which a segment is full.
const segmentSize = 64 << 20

// openWriter opens the record in dir at its last segment.
func openWriter(dir string, c clock.Clock) (*writer, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	lock, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	w := &writer{dir: dir, clock: c, lock: lock, limit: segmentSize, living: map[berth.ContainerID]Life{}}
	err = w.locked(func() (err error) {
		if w.signer, w.key, err = loadKey(dir); err != nil {
			return err
		}
		segments, err := listSegments(dir)
		if err != nil {
			return err
		}
		if len(segments) == 0 {
			return w.start()
		}
		return w.load(segments[len(segments)-1])
	})
	if err != nil {
		return nil, errors.Join(err, w.Close())
	}
	return w, nil
}

// locked calls f while it holds the lock against other processes.
func (w *writer) locked(f func() error) error {
	if err := flock(w.lock, unix.LOCK_EX); err != nil {
		return err
	}
	defer unix.Flock(int(w.lock.Fd()), unix.LOCK_UN)
	return f()
}

func flock(f *os.File, how int) error {
	for {
		err := unix.Flock(int(f.Fd()), how)
		if err == nil {
			return nil
		}
		if err != unix.EINTR {
			return fmt.Errorf("lock: %w", err)
		}
	}
}

// load makes a segment the one to append to. The first entry of a segment covers all
// entries before it.
func (w *writer) load(first int64) error {
	f, err := statefile.OpenFile(w.path(segmentName(first)), os.O_RDWR|os.O_APPEND)
	if err != nil {
		return err
	}
	e, err := firstEntry(f)
	if err != nil {
		f.Close()
		return &BrokenError{File: segmentName(first), Seq: first, Why: err.Error()}
	}
	if w.file != nil {
		w.file.Close()
	}
	w.file, w.name, w.size = f, segmentName(first), 0
	w.chain = chain{next: first, prev: e.Prev}
	w.checkpoint = nil
	return nil
}

// firstEntry returns the first entry of a segment.
func firstEntry(f *os.File) (*Entry, error) {
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	s := lines(f, nil)
	if !s.Scan() {
		return nil, errors.New("the segment has no entry")
	}
	e, err := parseEntry(s.Bytes())
	if err == nil && e.Action != SegmentStarted {
		err = fmt.Errorf("the segment does not start with %s", SegmentStarted)
	}
	return e, err
}

// write appends a batch and a checkpoint, and returns when they are durable. If it returns an
// error, the record holds nothing of the batch.
func (w *writer) write(batch []*pending) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.failed != nil {
		return w.failed
	}
	return w.locked(func() error {
		entries, err := w.catchUp()
		if err != nil {
			return err
		}
		for _, p := range batch {
			entries = append(entries, &p.entry)
		}
		if w.size >= w.limit {
			if err := w.start(); err != nil {
				return err
			}
		}
		return w.append(entries)
	})
}

// catchUp reads what other processes wrote and removes what a crash left. It returns the
// entries that record the removals.
func (w *writer) catchUp() (repaired []*Entry, err error) {
	for {
		rest, err := w.readOn()
		if err != nil {
			return nil, err
		}
		if rest > 0 {
			e, err := w.cut(rest)
			if err != nil {
				return nil, err
			}
			repaired = append(repaired, e)
		}
		_, err = os.Stat(w.path(segmentName(w.chain.next)))
		if errors.Is(err, os.ErrNotExist) {
			return repaired, nil
		}
		if err != nil {
			return nil, err
		}
		if err := w.load(w.chain.next); err != nil {
			return nil, err
		}
	}
}

// readOn reads the segment from the last known position. It returns the number of bytes after
// the last checkpoint.
func (w *writer) readOn() (rest int64, err error) {
	fi, err := w.file.Stat()
	if err != nil || fi.Size() == w.size {
		return 0, err
	}
	if fi.Size() < w.size {
		return 0, &BrokenError{File: w.name, Seq: w.chain.next - 1, Why: "signed, but missing"}
	}
	var entries []*Entry
	r := &segmentReader{key: w.key, name: w.name, chain: w.chain, signed: w.chain, checkpoint: w.checkpoint,
		each: func(e *Entry) error { entries = append(entries, e); return nil },
		seal: func() {
			lives := overlay{w.living, map[berth.ContainerID]Life{}}
			for _, e := range entries {
				lives.apply(e)
			}
			lives.merge()
			entries = nil
		}}
	rest, err = r.read(io.NewSectionReader(w.file, w.size, fi.Size()-w.size), w.size)
	if broken, ok := errors.AsType[*BrokenError](err); ok {
		if rest, err = w.torn(r.end); err != nil {
			return 0, err
		} else if rest == 0 {
			return 0, broken
		}
	} else if err != nil {
		return 0, err
	}
	if r.checkpoint == nil {
		return 0, &BrokenError{File: w.name, Seq: w.chain.next, Why: "the segment has no checkpoint"}
	}
	w.chain, w.checkpoint, w.size = r.signed, r.checkpoint, r.end
	return rest, nil
}

// torn returns the length of the text after the last valid checkpoint if a crash can have left
// it. It returns 0 if a further checkpoint follows: then signed text was changed.
func (w *writer) torn(end int64) (int64, error) {
	rest, err := w.tail(end)
	if err != nil || bytes.Contains(append([]byte("\n"), rest...), []byte("\n"+checkpointField)) {
		return 0, err
	}
	return int64(len(rest)), nil
}

func (w *writer) tail(from int64) ([]byte, error) {
	fi, err := w.file.Stat()
	if err != nil {
		return nil, err
	}
	return io.ReadAll(io.NewSectionReader(w.file, from, fi.Size()-from))
}

// cut removes the text after the last checkpoint and returns the entry that records this.
func (w *writer) cut(n int64) (*Entry, error) {
	rest, err := w.tail(w.size)
	if err != nil {
		return nil, err
	}
	if err := w.file.Truncate(w.size); err != nil {
		return nil, err
	}
	sum := sha256.Sum256(rest)
	return &Entry{Time: w.clock.Now().UTC(), Action: Repaired, Bytes: n, Name: hex.EncodeToString(sum[:])}, nil
}

// start starts the next segment. The segment appears together with its first batch.
func (w *writer) start() error {
	name := segmentName(w.chain.next)
	f, err := os.OpenFile(w.path(name)+".tmp", os.O_CREATE|os.O_TRUNC|os.O_RDWR|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	old, size := w.file, w.size
	w.file, w.size = f, 0
	err = w.append([]*Entry{{Time: w.clock.Now().UTC(), Action: SegmentStarted, Living: maps.Clone(w.living)}})
	if err == nil {
		err = os.Rename(f.Name(), w.path(name))
	}
	if err == nil {
		err = syncDir(w.dir)
	}
	if err != nil {
		w.file, w.size = old, size
		return errors.Join(err, f.Close())
	}
	w.name = name
	if old != nil {
		old.Close()
	}
	return nil
}

// append writes entries and a checkpoint after them. It skips the entries that
// overlay.apply rejects.
func (w *writer) append(entries []*Entry) error {
	var text []byte
	var err error
	at := w.chain
	lives := overlay{w.living, map[berth.ContainerID]Life{}}
	wrote := false
	for _, e := range entries {
		if !lives.apply(e) {
			continue
		}
		e.Seq, e.Prev = at.next, at.prev
		if text, err = appendEntry(text, e); err != nil {
			return err
		}
		at, wrote = chain{next: e.Seq + 1, prev: e.Hash}, true
	}
	if !wrote {
		return nil
	}
	signed, err := Checkpoint{Origin: w.key.Name(), Size: at.next, Hash: at.prev}.sign(w.signer)
	if err != nil {
		return err
	}
	if text, err = appendCheckpoint(text, signed); err != nil {
		return err
	}
	if err := w.put(text); err != nil {
		return err
	}
	w.chain, w.checkpoint, w.size = at, signed, w.size+int64(len(text))
	lives.merge()
	return nil
}

// put appends text to the segment durably. If it fails, it removes the text again.
func (w *writer) put(text []byte) error {
	if _, err := w.file.Write(text); err != nil {
		return errors.Join(err, w.file.Truncate(w.size))
	}
	if err := w.file.Sync(); err != nil {
		// After a failed sync, the content of the disk is unknown.
		w.failed = fmt.Errorf("sync audit record (no further entries until the next start): %w", err)
		return w.failed
	}
	return nil
}
