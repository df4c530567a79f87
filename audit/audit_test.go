package audit

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/internal/clock"
)

func open(t testing.TB, dir string) *Log {
	t.Helper()
	l, err := Open(dir, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

func commit(t testing.TB, l *Log, entries ...Entry) {
	t.Helper()
	if err := l.Commit(t.Context(), entries...); err != nil {
		t.Fatalf("Commit: %v", err)
	}
}

func created(id berth.ContainerID) Entry {
	return Entry{Project: "proj_a", Action: ContainerCreated, Container: id}
}

func ended(id berth.ContainerID, reason string) Entry {
	return Entry{Project: "proj_a", Action: ContainerEnded, Container: id, Reason: reason}
}

func erased(id berth.ContainerID) Entry {
	return Entry{Project: "proj_a", Action: ContainerErased, Container: id}
}

// actions returns the record's actions.
func actions(t testing.TB, dir string) []string {
	t.Helper()
	var got []string
	for e, err := range Entries(dir, "") {
		if err != nil {
			t.Fatalf("Entries: %v", err)
		}
		got = append(got, strings.TrimSpace(fmt.Sprintf("%s %s %s", e.Action, e.Container, e.Reason)))
	}
	return got
}

func verified(t testing.TB, dir string) *Report {
	t.Helper()
	key, err := PublicKey(dir)
	if err != nil {
		t.Fatal(err)
	}
	r, err := Verify(dir, key, "")
	if err != nil {
		t.Fatalf("Verify: %v", err)
	}
	return r
}

func TestRecord(t *testing.T) {
	dir := t.TempDir()
	l := open(t, dir)
	l.Record(created("c1"), created("c2"))
	commit(t, l, ended("c1", "deleted"))
	l.Record(Entry{Action: EgressRefused, Container: "c2", Host: "evil\n{\"checkpoint\":\"x\"}\xff" +
		strings.Repeat("x", 1000)})
	if err := l.Close(); err != nil {
		t.Fatalf("Close: %v", err)
	}
	want := []string{"audit.segment", "container.created c1", "container.created c2", "container.ended c1 deleted",
		"egress.refused c2"}
	if diff := cmp.Diff(want, actions(t, dir)); diff != "" {
		t.Errorf("the record (-want +got):\n%s", diff)
	}
	if r := verified(t, dir); r.Entries != 5 || r.Checkpoint != l.Checkpoint() {
		t.Errorf("Verify: got %+v, want 5 entries and the checkpoint %q", r, l.Checkpoint())
	}
	if err := l.Commit(t.Context(), created("c3")); err == nil {
		t.Error("Commit after Close: got no error")
	}
}

// A container's end is recorded once, even if it is reported again after a crash.
func TestSecondEnd(t *testing.T) {
	dir := t.TempDir()
	l := open(t, dir)
	commit(t, l, created("c1"), ended("c1", "deleted"), ended("c1", "host"))
	commit(t, l, ended("c1", "host"))
	l.Close()
	l = open(t, dir)
	commit(t, l, ended("c1", "host"), erased("c2"), ended("c2", "host"), created("c2"), erased("c2"))
	want := []string{"audit.segment", "container.created c1", "container.ended c1 deleted", "container.created c2"}
	if diff := cmp.Diff(want, actions(t, dir)); diff != "" {
		t.Errorf("the record (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[berth.ContainerID]Life{"c1": {"proj_a", true}, "c2": {"proj_a", false}},
		l.Living()); diff != "" {
		t.Errorf("Living (-want +got):\n%s", diff)
	}
}

func TestSegments(t *testing.T) {
	dir := t.TempDir()
	l := open(t, dir)
	l.w.limit = 2000
	for i := range 20 {
		commit(t, l, created(berth.ContainerID(fmt.Sprintf("c%d", i))))
		if i > 0 {
			id := berth.ContainerID(fmt.Sprintf("c%d", i))
			commit(t, l, ended(id, "expired"), erased(id), erased(id))
		}
	}
	l.Close()
	if r := verified(t, dir); r.Segments < 5 || r.Entries != int64(58+r.Segments) {
		t.Errorf("Verify: got %+v, want 58 entries and one more for each segment", r)
	}
	l = open(t, dir) // reads the last segment only
	if diff := cmp.Diff(map[berth.ContainerID]Life{"c0": {"proj_a", false}}, l.Living()); diff != "" {
		t.Errorf("Living (-want +got):\n%s", diff)
	}
	if err := os.Remove(filepath.Join(dir, segmentName(0))); err != nil { // as an operator may
		t.Fatal(err)
	}
	if r := verified(t, dir); r.First == 0 {
		t.Errorf("Verify without the oldest segment: got %+v, want a later start", r)
	}
}

// Two processes can write, each after the other's batches.
func TestTwoWriters(t *testing.T) {
	dir := t.TempDir()
	a, b := open(t, dir), open(t, dir)
	a.w.limit, b.w.limit = 3000, 3000
	const each = 50
	var g sync.WaitGroup
	for i, l := range []*Log{a, b} {
		for j := range each {
			g.Go(func() {
				id := berth.ContainerID(fmt.Sprintf("c%d-%d", i, j))
				if err := l.Commit(t.Context(), created(id)); err != nil {
					t.Errorf("Commit: %v", err)
				}
				other := []*Log{b, a}[i]
				if err := other.Commit(t.Context(), ended(id, "deleted")); err != nil {
					t.Errorf("Commit: %v", err)
				}
			})
		}
	}
	g.Wait()
	if r := verified(t, dir); r.Entries != int64(4*each+r.Segments) {
		t.Errorf("Verify: got %+v, want %d entries and one for each segment", r, 4*each)
	}
}

// A crash may leave any prefix of a batch.
func TestTorn(t *testing.T) {
	dir := t.TempDir()
	l := open(t, dir)
	commit(t, l, created("c1"))
	name := filepath.Join(dir, segmentName(0))
	before, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	commit(t, l, ended("c1", "oom"), created("c2"))
	l.Close()
	whole, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	key, _ := PublicKey(dir)
	for n := len(before) + 1; n < len(whole); n += 7 {
		if err := os.WriteFile(name, whole[:n], 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Verify(dir, key, ""); !Broken(err) {
			t.Errorf("Verify of %d of %d bytes: got %v, want a BrokenError", n, len(whole), err)
		}
		l := open(t, dir)
		if l.Living()["c1"].Ended {
			t.Errorf("with %d of %d bytes: an unsigned end was accepted", n, len(whole))
		}
		commit(t, l, ended("c1", "oom"))
		l.Close()
		want := []string{"audit.segment", "container.created c1", "audit.repaired", "container.ended c1 oom"}
		if diff := cmp.Diff(want, actions(t, dir)); diff != "" {
			t.Errorf("the record after %d of %d bytes (-want +got):\n%s", n, len(whole), diff)
		}
		verified(t, dir)
	}
}

// Once the log has settled, everything that was recorded is written, also if it was closed.
func TestSettled(t *testing.T) {
	dir := t.TempDir()
	l := open(t, dir)
	begin := len(actions(t, dir))
	for n := range 3 {
		l.Record(created(berth.ContainerID(fmt.Sprint("cntr_", n))))
		l.Settled()
		if got := len(actions(t, dir)); got != begin+n+1 {
			t.Errorf("got %d entries, want %d", got, begin+n+1)
		}
	}
	l.Record(created("cntr_last"))
	go l.Close()
	l.Settled()
	if got := len(actions(t, dir)); got != begin+4 {
		t.Errorf("after Close: got %d entries, want %d", got, begin+4)
	}
}

// A nil Log does nothing.
func TestNil(t *testing.T) {
	var l *Log
	l.Record(created("c1"))
	if err := l.Commit(t.Context(), created("c1")); err != nil {
		t.Errorf("Commit: %v", err)
	}
	if err := l.Close(); err != nil || l.Living() != nil {
		t.Errorf("Close, Living: got %v, %v", err, l.Living())
	}
}

func TestOfContainer(t *testing.T) {
	dir := t.TempDir()
	l := open(t, dir)
	l.w.limit = 2000
	ids := make([]berth.ContainerID, 20)
	for i := range ids {
		ids[i] = berth.ContainerID(berth.NewID(berth.PrefixContainer))
		commit(t, l, created(ids[i]), ended(ids[i], "deleted"))
	}
	for _, id := range []berth.ContainerID{ids[0], ids[19]} {
		got, err := l.OfContainer(t.Context(), "proj_a", id, 10)
		if err != nil || len(got) != 2 || got[1].Reason != "deleted" {
			t.Errorf("OfContainer(%s): got %d entries, %v, want 2", id, len(got), err)
		}
		if got, err := l.OfContainer(t.Context(), "proj_b", id, 10); err != nil || len(got) != 0 {
			t.Errorf("OfContainer of another project: got %d entries, %v, want none", len(got), err)
		}
		if got, err := l.OfContainer(t.Context(), "proj_a", id, 1); err != nil || len(got) != 1 ||
			got[0].Action != ContainerEnded {
			t.Errorf("OfContainer, one: got %v, %v, want the last", got, err)
		}
	}
}

func TestFollow(t *testing.T) {
	dir := t.TempDir()
	l := open(t, dir)
	l.w.limit = 1500
	commit(t, l, created("c0"))
	n := 0
	for e, err := range Follow(t.Context(), dir, "") {
		if err != nil {
			t.Fatalf("Follow: %v", err)
		}
		if e.Seq != int64(n) {
			t.Fatalf("Follow: got entry %d, want %d", e.Seq, n)
		}
		if n++; n == 12 {
			return
		}
		if e.Action == ContainerCreated {
			l.Record(created(berth.ContainerID(fmt.Sprintf("c%d", n))))
		}
	}
}

// FollowFrom begins with an entry in the middle of a segment, or with the first that is left.
func TestFollowFrom(t *testing.T) {
	dir := t.TempDir()
	l := open(t, dir)
	l.w.limit = 1500
	for i := range 20 {
		commit(t, l, created(berth.ContainerID(fmt.Sprintf("c%d", i))))
	}
	end := l.Size()
	check := func(next, first int64) {
		t.Helper()
		for e, err := range FollowFrom(t.Context(), clock.System, dir, next) {
			if err != nil || e.Seq != first {
				t.Fatalf("from %d: got %+v, %v, want entry %d", next, e, err, first)
			}
			if first++; first == end {
				break
			}
		}
	}
	for next := range end {
		check(next, next)
	}
	segments, _, err := extent(dir)
	if err != nil || len(segments) < 4 {
		t.Fatalf("got the segments %v, %v", segments, err)
	}
	for _, first := range segments[:2] {
		if err := os.Remove(filepath.Join(dir, segmentName(first))); err != nil {
			t.Fatal(err)
		}
	}
	check(1, segments[2])
	check(segments[2]+1, segments[2]+1)
}

// A failed write is repeated after a time, and nothing is lost.
func TestWriteAgain(t *testing.T) {
	c := clock.NewManual(time.Unix(1_800_000_000, 0))
	l, err := openAt(t.TempDir(), slog.New(slog.DiscardHandler), c)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	file := func(f *os.File) {
		l.w.mu.Lock()
		defer l.w.mu.Unlock()
		l.w.file = f
	}
	whole := l.w.file
	unwritable, err := os.Open(l.w.path(l.w.name))
	if err != nil {
		t.Fatal(err)
	}
	defer unwritable.Close()
	file(unwritable)
	l.Record(created("c1"))
	for _, wait := range []time.Duration{gatherTime, retryTime} {
		if entries, _ := l.Written(); entries != 0 {
			t.Fatalf("%d entries are written", entries)
		}
		if err := c.Await(t.Context(), wait); err != nil {
			t.Fatal(err)
		}
		if wait == retryTime {
			file(whole)
		}
		c.Advance(wait)
	}
	l.Settled()
	if entries, failures := l.Written(); entries != 1 || failures != 1 {
		t.Errorf("%d entries are written, %d failures", entries, failures)
	}
}

func TestKeyLost(t *testing.T) {
	dir := t.TempDir()
	open(t, dir).Close()
	if err := os.Remove(filepath.Join(dir, keyFile)); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir, slog.Default()); err == nil {
		t.Error("Open of a record without its key: got no error")
	}
}

func BenchmarkCommit(b *testing.B) {
	l := open(b, b.TempDir())
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if err := l.Commit(b.Context(),
				created("cntr_0123456789abcdef0123456789abcdef0123456789abcdef")); err != nil {
				b.Error(err)
			}
		}
	})
}

func BenchmarkRecord(b *testing.B) {
	l := open(b, b.TempDir())
	for b.Loop() {
		l.Record(Entry{Project: "proj_default", Action: EgressConnected, Container: "cntr_0123456789abcdef",
			Host: "registry.npmjs.org", Port: 443, Sent: 1, Received: 2})
	}
}
