package audit

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/berth-run/berth/internal/clock"
)

// A trimmed record begins later, is valid, and says what was removed, once, also after a crash at any step.
func TestTrim(t *testing.T) {
	const day = 24 * time.Hour
	for name, crash := range map[string]func(l *Log, dir string, segments []int64){
		"no crash": func(*Log, string, []int64) {},
		"after the entry": func(l *Log, _ string, s []int64) {
			commit(t, l, Entry{Action: Trimmed, Name: fmt.Sprintf("0-%d", s[2]-1)})
		},
		"after the first removal": func(l *Log, dir string, s []int64) {
			commit(t, l, Entry{Action: Trimmed, Name: fmt.Sprintf("0-%d", s[2]-1)})
			if err := os.Remove(filepath.Join(dir, segmentName(s[0]))); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			start := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
			c := clock.NewManual(start)
			l, err := openAt(dir, slog.New(slog.DiscardHandler), c)
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			trim := func(before time.Time, upTo int64) int64 {
				t.Helper()
				n, err := l.Trim(t.Context(), before, upTo, "30 days")
				if err != nil {
					t.Fatal(err)
				}
				return n
			}
			checkpoint := ""
			for i := range 4 { // each day has a segment
				commit(t, l, Entry{Action: FileDeleted, Count: int64(i)})
				if i == 1 {
					checkpoint = l.Checkpoint()
				}
				c.Advance(day)
				if n := trim(start, 1<<60); n != 0 {
					t.Fatalf("%d entries were removed before their time", n)
				}
			}
			segments, err := listSegments(dir)
			if err != nil || len(segments) != 5 {
				t.Fatalf("the segments are %v, %v", segments, err)
			}
			if n := trim(start.Add(100*day), segments[1]-1); n != 0 {
				t.Errorf("%d entries were removed that a target has not got", n)
			}
			crash(l, dir, segments)
			trim(start.Add(2*day+time.Second), 1<<60)
			left, err := listSegments(dir)
			if err != nil || left[0] != segments[2] {
				t.Errorf("left are %v, %v, want those of %v from %d on", left, err, segments, segments[2])
			}
			if r := verified(t, dir); r.First != segments[2] {
				t.Errorf("the record starts at %d", r.First)
			}
			if key, err := PublicKey(dir); err != nil {
				t.Error(err)
			} else if _, err := Verify(dir, key, checkpoint); err == nil || Broken(err) {
				t.Errorf("against a checkpoint before: got %v, want that it is too old", err)
			}
			entries := 0
			for e, err := range Entries(dir, "") {
				if err != nil {
					t.Fatal(err)
				}
				if e.Action == Trimmed {
					entries++
					if e.Name != fmt.Sprintf("0-%d", segments[2]-1) {
						t.Errorf("the entry is %+v", e)
					}
				}
			}
			if entries != 1 {
				t.Errorf("%d entries say what was removed", entries)
			}
			if n := trim(start.Add(100*day), 1<<60); n == 0 {
				t.Error("later nothing was removed")
			}
			verified(t, dir)
		})
	}
}

// Whoever follows a record goes on while the oldest segments are removed.
func TestFollowTrimmed(t *testing.T) {
	dir := t.TempDir()
	c := clock.NewManual(time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC))
	l, err := openAt(dir, slog.New(slog.DiscardHandler), c)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	add := func(i int64) {
		commit(t, l, Entry{Action: FileDeleted, Count: i})
		c.Advance(25 * time.Hour)
		if _, err := l.Trim(t.Context(), c.Now().Add(-time.Hour), 1<<60, "1 hour"); err != nil {
			t.Fatal(err)
		}
	}
	commit(t, l, Entry{Action: FileDeleted, Count: 1})
	want := int64(1)
	for e, err := range FollowFrom(t.Context(), clock.System, dir, 0) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Action != FileDeleted {
			continue
		}
		if e.Count != want {
			t.Fatalf("got entry %d, want %d", e.Count, want)
		}
		if want++; want == 6 {
			break
		}
		add(want)
	}
}
