package audit

import (
	"bytes"
	"context"
	"errors"
	"io"
	"iter"
	"path/filepath"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/internal/clock"
	"github.com/berth-run/berth/internal/statefile"
)

// followEvery is how often Follow polls for new entries.
const followEvery = 200 * time.Millisecond

// Entries returns the entries of the record in dir in order. If container is not empty, it
// returns only that container's entries. It checks each entry's own hash, but not the chain:
// that is Verify's task.
func Entries(dir string, container berth.ContainerID) iter.Seq2[*Entry, error] {
	return func(yield func(*Entry, error) bool) {
		segments, size, err := extent(dir)
		if err != nil {
			yield(nil, err)
			return
		}
		start := firstSegment(dir, segments, container)
		for i := start; i < len(segments); i++ {
			limit := int64(-1)
			if i == len(segments)-1 {
				limit = size
			}
			if _, more := entries(dir, segments[i], 0, limit, container, yield); !more {
				return
			}
		}
	}
}

// Follow is like Entries, but continues with new entries until ctx ends.
func Follow(ctx context.Context, dir string, container berth.ContainerID) iter.Seq2[*Entry, error] {
	return follow(ctx, clock.System, dir, container, 0)
}

// FollowFrom returns the entries of the record in dir from the number next on, in order, and continues with new ones
// until ctx ends. If segments with earlier entries were moved away, it begins with the first entry that is left.
func FollowFrom(ctx context.Context, c clock.Clock, dir string, next int64) iter.Seq2[*Entry, error] {
	return func(yield func(*Entry, error) bool) {
		for e, err := range follow(ctx, c, dir, "", next) {
			if err == nil && e.Seq < next {
				continue
			}
			if !yield(e, err) {
				return
			}
		}
	}
}

func follow(ctx context.Context, c clock.Clock, dir string, container berth.ContainerID,
	next int64) iter.Seq2[*Entry, error] {
	return func(yield func(*Entry, error) bool) {
		current, offset := int64(-1), int64(0) // the segment that is read
		for {
			segments, size, err := extent(dir)
			if err != nil {
				yield(nil, err)
				return
			}
			at := slices.Index(segments, current)
			if at < 0 { // none yet, or it was moved away
				offset = 0
				if current < 0 {
					at = firstSegment(dir, segments, container)
					current = next
				}
				at = max(at, 0)
				for at+1 < len(segments) && segments[at+1] <= current {
					at++
				}
			}
			for ; at < len(segments); at++ {
				last := at == len(segments)-1
				current = segments[at]
				limit := int64(-1)
				if last {
					limit = size
				}
				read, more := entries(dir, segments[at], offset, limit, container, yield)
				if !more {
					return
				}
				if last {
					offset = read
					break
				}
				offset = 0
			}
			select {
			case <-c.After(followEvery):
			case <-ctx.Done():
				return
			}
		}
	}
}

// entries yields the entries of a segment from offset up to limit, or to the end if limit is
// negative. It returns the offset where it stopped, and whether the caller wants more.
func entries(dir string, segment, offset, limit int64, container berth.ContainerID,
	yield func(*Entry, error) bool) (int64, bool) {
	f, err := statefile.Open(filepath.Join(dir, segmentName(segment)))
	if err != nil {
		return offset, yield(nil, err)
	}
	defer f.Close()
	if limit < 0 {
		limit = 1<<63 - 1
	}
	s := lines(io.NewSectionReader(f, offset, limit-offset), nil)
	about := []byte(`"container":` + strconv.Quote(string(container)))
	for s.Scan() {
		line := s.Bytes()
		offset += int64(len(line)) + 1
		if bytes.HasPrefix(line, []byte(checkpointField)) || container != "" && !bytes.Contains(line, about) {
			continue
		}
		e, err := parseEntry(line)
		if err == nil && container != "" && e.Container != container {
			continue
		}
		if !yield(e, err) {
			return offset, false
		}
	}
	if err := s.Err(); err != nil {
		return offset, yield(nil, err)
	}
	return offset, true
}

// clockSlack bounds the difference between the time in a container's id and that of its first
// entry: clocks may be set back.
const clockSlack = time.Hour

// firstSegment returns the index of the first segment that can mention a container. The
// container's id holds its creation time.
func firstSegment(dir string, segments []int64, container berth.ContainerID) int {
	digits := strings.TrimPrefix(string(container), berth.PrefixContainer)
	if len(digits) < 12 {
		return 0
	}
	ms, err := strconv.ParseInt(digits[:12], 16, 64)
	if err != nil {
		return 0
	}
	made := time.UnixMilli(ms).Add(-clockSlack)
	later := sort.Search(len(segments), func(i int) bool {
		f, err := statefile.Open(filepath.Join(dir, segmentName(segments[i])))
		if err != nil {
			return true
		}
		defer f.Close()
		e, err := firstEntry(f)
		return err != nil || e.Time.After(made)
	})
	return max(0, later-1)
}

// OfContainer returns the latest entries, at most limit, about one of a project's containers.
// It reads the record from the container's creation on. One search runs at a time.
func (l *Log) OfContainer(ctx context.Context, p berth.ProjectID, id berth.ContainerID, limit int) ([]*Entry, error) {
	if l == nil {
		return nil, nil
	}
	release, err := l.acquireSearch(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	var found []*Entry
	for e, err := range Entries(l.w.dir, id) {
		if err = errors.Join(err, ctx.Err()); err != nil {
			return nil, err
		}
		if e.Project != p {
			continue
		}
		if len(found) == limit {
			found = append(found[:0], found[1:]...)
		}
		found = append(found, e)
	}
	return found, nil
}
