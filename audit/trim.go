package audit

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/berth-run/berth/internal/statefile"
)

// trimmedSpan is how long a segment of a record that is trimmed grows: a segment is removed as a whole.
const trimmedSpan = 24 * time.Hour

// Trim removes the oldest segments of a record whose entries were all made before a moment and have numbers below upTo.
// Before that it adds an entry with the numbers of the removed entries and the hash of the last one, so the record
// still proves that it continues them. It returns how many entries it has removed. reason is for the entry.
func (l *Log) Trim(ctx context.Context, before time.Time, upTo int64, reason string) (removed int64, err error) {
	if l == nil {
		return 0, nil
	}
	plan, err := l.w.trimmable(before, upTo)
	if err != nil || plan == nil {
		return 0, err
	}
	last, err := l.lastTrimmed(ctx)
	if err != nil {
		return 0, err
	}
	if last < plan.last { // otherwise a crash came between the entry and the removal
		err := l.Commit(ctx, Entry{Action: Trimmed, Name: fmt.Sprintf("%d-%d", plan.segments[0], plan.last),
			Count: plan.last + 1 - plan.segments[0], Digest: "sha256:" + plan.hash.String(), Reason: reason})
		if err != nil {
			return 0, fmt.Errorf("record the trimming: %w", err)
		}
	}
	release, err := l.acquireSearch(ctx) // no search reads the removed segments
	if err != nil {
		return 0, err
	}
	defer release()
	for _, first := range plan.segments {
		if err := os.Remove(l.w.path(segmentName(first))); err != nil && !errors.Is(err, os.ErrNotExist) {
			return removed, fmt.Errorf("remove segment: %w", err)
		}
	}
	return plan.last + 1 - plan.segments[0], syncDir(l.w.dir)
}

// lastTrimmed returns the number of the last entry that the record says was removed, or -1.
func (l *Log) lastTrimmed(ctx context.Context) (int64, error) {
	found, _, err := l.Latest(ctx, Query{Action: Trimmed, Before: math.MaxInt64, Limit: 1})
	if err != nil || len(found) == 0 {
		return -1, err
	}
	_, text, _ := strings.Cut(found[0].Name, "-")
	last, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return -1, fmt.Errorf("entry %d: %q are no numbers of entries", found[0].Seq, found[0].Name)
	}
	return last, nil
}

// A trimPlan has the segments to remove.
type trimPlan struct {
	segments []int64
	last     int64 // number of the last entry in them
	hash     Hash  // of the last entry
}

// trimmable returns what Trim removes, or nil. It starts a new segment if the last one is old.
func (w *writer) trimmable(before time.Time, upTo int64) (plan *trimPlan, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.failed != nil {
		return nil, w.failed
	}
	err = w.locked(func() error {
		repaired, err := w.catchUp()
		if err == nil {
			err = w.append(repaired)
		}
		if err != nil {
			return err
		}
		e, err := firstEntry(w.file)
		if err != nil {
			return err
		}
		if w.clock.Now().Sub(e.Time) >= trimmedSpan && w.chain.next > e.Seq+1 {
			if err := w.start(); err != nil {
				return err
			}
		}
		segments, err := listSegments(w.dir)
		if err != nil {
			return err
		}
		for i := 1; i < len(segments) && segments[i] <= upTo; i++ {
			next, err := w.first(segments[i])
			if err != nil {
				return err
			}
			if !next.Time.Before(before) {
				break
			}
			plan = &trimPlan{segments[:i], segments[i] - 1, next.Prev}
		}
		return nil
	})
	return plan, err
}

// first returns the first entry of a segment, whose time no earlier entry exceeds.
func (w *writer) first(segment int64) (*Entry, error) {
	f, err := statefile.Open(w.path(segmentName(segment)))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return firstEntry(f)
}
