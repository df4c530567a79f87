package audit

import (
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/berth-run/berth"
)

// TestLatest pages through a record of several segments from its end.
func TestLatest(t *testing.T) {
	dir := t.TempDir()
	l, err := Open(dir, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	l.w.limit = 2000
	for i := range 60 {
		p := berth.ProjectID(fmt.Sprintf("proj_%d", i%2))
		if err := l.Commit(t.Context(), Entry{Action: KeyCreated, Project: p, Object: fmt.Sprint(i)}); err != nil {
			t.Fatal(err)
		}
	}
	if segments, err := listSegments(dir); err != nil || len(segments) < 3 {
		t.Fatalf("got %d segments, %v", len(segments), err)
	}
	var got, want []string
	q := Query{Project: "proj_1", Before: math.MaxInt64, Limit: 7}
	for more := true; more; {
		var found []*Entry
		if found, more, err = l.Latest(t.Context(), q); err != nil {
			t.Fatal(err)
		}
		for _, e := range found {
			got = append(got, e.Object)
		}
		q.Before = found[len(found)-1].Seq
	}
	for i := 59; i >= 0; i -= 2 {
		want = append(want, fmt.Sprint(i))
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if found, more, err := l.Latest(t.Context(), Query{Action: KeyRevoked, Before: math.MaxInt64,
		Limit: 5}); err != nil || more || len(found) > 0 {
		t.Errorf("got %v, %v, %v", found, more, err)
	}
	if err := l.Commit(t.Context(), Entry{Action: KeyRevoked, Key: "key_1", Object: "7"}); err != nil {
		t.Fatal(err)
	}
	for i, of := range []struct {
		q    Query
		want int
	}{{Query{Key: "key_1"}, 1}, {Query{Key: "key_2"}, 0}, {Query{Object: "7"}, 2}, {Query{Object: "7", Key: "key_1"}, 1},
		{Query{Object: "7", To: time.Unix(1, 0)}, 0}, {Query{Object: "7", From: time.Unix(1, 0)}, 2}} {
		of.q.Before, of.q.Limit = math.MaxInt64, 5
		if found, _, err := l.Latest(t.Context(), of.q); err != nil || len(found) != of.want {
			t.Errorf("query %d: got %d entries, want %d: %v", i, len(found), of.want, err)
		}
	}
	report, err := l.Verify(t.Context())
	if err != nil || report.Entries < 60 {
		t.Errorf("got %+v, %v", report, err)
	}
	name := filepath.Join(dir, segmentName(0))
	raw, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	i := slices.Index(raw, 'K') // of a hash or a note; any change is found
	if i < 0 {
		i = len(raw) / 2
	}
	raw[i] ^= 1
	if err := os.WriteFile(name, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Verify(t.Context()); !Broken(err) {
		t.Errorf("a changed record: got %v", err)
	}
}
