package audit

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/note"

	"github.com/berth-run/berth"
)

// victim returns a record of a few batches, and its public key.
func victim(t *testing.T) (dir, key string) {
	t.Helper()
	dir = t.TempDir()
	l := open(t, dir)
	for _, id := range []string{"c1", "c2", "c3"} {
		l.Record(Entry{Project: "proj_a", Action: EgressConnected, Container: "c1", Host: "example.com", Object: id})
		commit(t, l, created("c1"), ended("c1", "deleted"))
	}
	l.Close()
	key, err := PublicKey(dir)
	if err != nil {
		t.Fatal(err)
	}
	return dir, key
}

// rehash replaces the hash of a changed line with the right one.
func rehash(t *testing.T, line []byte) []byte {
	t.Helper()
	body := append(slices.Clone(line[:len(line)-hashTail]), '}')
	i := bytes.Index(body, []byte(`"prev":`))
	if i < 0 {
		t.Fatalf("not an entry: %s", line)
	}
	return hashed(body)
}

func hashed(body []byte) []byte { return appendHash(nil, body, sha256.Sum256(body)) }

// Verify detects any change by an attacker who has the disk but not the key.
func TestAttacks(t *testing.T) {
	isEntry := func(l []byte) bool { return !bytes.HasPrefix(l, []byte(checkpointField)) }
	for _, tt := range []struct {
		name   string
		change func(t *testing.T, lines [][]byte) [][]byte
		want   string // in the error
	}{
		{"Edit", func(_ *testing.T, l [][]byte) [][]byte {
			l[3] = bytes.Replace(l[3], []byte("proj_a"), []byte("proj_b"), 1)
			return l
		}, "entry 2: content does not match hash"},
		{"EditAndHash", func(t *testing.T, l [][]byte) [][]byte {
			l[3] = rehash(t, bytes.Replace(l[3], []byte("proj_a"), []byte("proj_b"), 1))
			return l
		}, "entry 2"},
		{"EditAndHashAll", func(t *testing.T, l [][]byte) [][]byte {
			l[2] = bytes.Replace(l[2], []byte("proj_a"), []byte("proj_b"), 1)
			return chained(t, l)
		}, "differ from the 4 that were signed"},
		{"Drop", func(_ *testing.T, l [][]byte) [][]byte { return slices.Delete(l, 3, 4) }, "entry 2"},
		{"DropBatch", func(_ *testing.T, l [][]byte) [][]byte { return slices.Delete(l, 2, 5) }, "entry 1"},
		{"Swap", func(_ *testing.T, l [][]byte) [][]byte { l[2], l[3] = l[3], l[2]; return l }, "entry 1"},
		{"Twice", func(_ *testing.T, l [][]byte) [][]byte { return slices.Insert(l, 3, l[2]) }, "entry 2"},
		{"CutInsideBatch", func(_ *testing.T, l [][]byte) [][]byte { return l[:len(l)-1] }, "are not signed"},
		{"Garbage", func(_ *testing.T, l [][]byte) [][]byte { return append(l, []byte("{}")) }, "not an entry"},
		{"GarbageInside", func(_ *testing.T, l [][]byte) [][]byte {
			return slices.Insert(l, 4, bytes.Repeat([]byte("x"), maxLine+1))
		}, "too long"},
		{"OldCheckpointAtEnd", func(_ *testing.T, l [][]byte) [][]byte {
			i := slices.IndexFunc(l, func(l []byte) bool { return !isEntry(l) })
			l[len(l)-1] = l[i]
			return l
		}, "differ from the 1 that were signed"},
		{"NoCheckpoints", func(_ *testing.T, l [][]byte) [][]byte {
			return slices.DeleteFunc(l, func(l []byte) bool { return !isEntry(l) })
		}, "are not signed"},
		{"Empty", func(*testing.T, [][]byte) [][]byte { return nil }, "not an entry"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir, key := victim(t)
			name := filepath.Join(dir, segmentName(0))
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			changed := tt.change(t, bytes.Split(bytes.TrimSuffix(text, []byte("\n")), []byte("\n")))
			text = append(bytes.Join(changed, []byte("\n")), '\n')
			if err := os.WriteFile(name, text, 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := Verify(dir, key, ""); !Broken(err) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Verify: got %v, want a BrokenError with %q", err, tt.want)
			}
			// A server does not sign changed entries: it refuses to start, or removes and records them.
			l, err := Open(dir, slog.New(slog.DiscardHandler))
			if err != nil {
				if !Broken(err) {
					t.Errorf("Open: got %v, want a BrokenError", err)
				}
				return
			}
			l.Close()
			if _, err := Verify(dir, key, ""); err != nil || !slices.Contains(actions(t, dir), string(Repaired)) {
				t.Errorf("after Open: got %v and no entry %s", err, Repaired)
			}
		})
	}
}

// chained recomputes the hashes and predecessors of all entries.
func chained(t *testing.T, lines [][]byte) [][]byte {
	t.Helper()
	var prev Hash
	for i, l := range lines {
		if bytes.HasPrefix(l, []byte(checkpointField)) {
			continue
		}
		at := bytes.Index(l, []byte(`"prev":"`)) + len(`"prev":"`)
		copy(l[at:], prev.String())
		lines[i] = rehash(t, l)
		e, err := parseEntry(lines[i])
		if err != nil {
			t.Fatal(err)
		}
		prev = e.Hash
	}
	return lines
}

// Forging a whole record requires the key.
func TestForgedKey(t *testing.T) {
	dir, key := victim(t)
	forged, _ := victim(t)
	if _, err := Verify(forged, key, ""); !Broken(err) {
		t.Errorf("Verify of another record: got %v, want a BrokenError", err)
	}
	// A key of the same name is another key.
	verifier, err := note.NewVerifier(key)
	if err != nil {
		t.Fatal(err)
	}
	_, other, err := note.GenerateKey(rand.Reader, verifier.Name())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Verify(dir, other, ""); !Broken(err) {
		t.Errorf("Verify with another key of the same name: got %v, want a BrokenError", err)
	}
}

// Only an older checkpoint reveals a record that was rolled back as a whole.
func TestRollBack(t *testing.T) {
	dir, key := victim(t)
	name := filepath.Join(dir, segmentName(0))
	old, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	earlier := verified(t, dir).Checkpoint
	l := open(t, dir)
	commit(t, l, created("c9"))
	later := l.Checkpoint()
	l.Close()
	for _, since := range []string{earlier, later} {
		if _, err := Verify(dir, key, since); err != nil {
			t.Errorf("Verify since its own checkpoint: %v", err)
		}
	}
	if err := os.WriteFile(name, old, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Verify(dir, key, later); !Broken(err) || !strings.Contains(err.Error(), "missing") {
		t.Errorf("Verify of a record that was rolled back: got %v, want an error about missing entries", err)
	}
	// After the rollback, the record continues with other entries.
	l = open(t, dir)
	commit(t, l, created("c9"))
	l.Close()
	if _, err := Verify(dir, key, later); !Broken(err) || !strings.Contains(err.Error(), "older checkpoint") {
		t.Errorf("Verify of a forked record: got %v, want an error about the older checkpoint", err)
	}
	if _, err := Verify(dir, key, strings.Replace(later, "\n", "\n1", 1)); err == nil || Broken(err) {
		t.Errorf("Verify since a changed checkpoint: got %v, want an error that is not about the record", err)
	}
}

func FuzzParse(f *testing.F) {
	e := created("c1")
	line, err := appendEntry(nil, &e)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(bytes.TrimSuffix(line, []byte("\n")))
	f.Add([]byte(`{"checkpoint":"a\n1\nAA==\n\n— a AAAA\n"}`))
	f.Add([]byte(`,"hash":"`))
	whole := bytes.TrimSuffix(line, []byte("\n"))
	head := len(whole) - hashTail + len(hashField)
	f.Add(append(slices.Clone(whole[:head]), bytes.ToUpper(whole[head:])...)) // the same hash in upper case
	f.Fuzz(func(t *testing.T, line []byte) {
		e, err := parseEntry(line)
		if err == nil && !bytes.Equal(hashed(append(slices.Clone(line[:len(line)-hashTail]), '}')), line) {
			t.Errorf("parseEntry(%q): got %+v, whose hash does not match the line", line, e)
		}
		parseCheckpoint(line)
	})
}

// Verify detects a record that combines two forks signed with the same key.
func TestSpliced(t *testing.T) {
	dir, key := victim(t)
	name := filepath.Join(dir, segmentName(0))
	fork, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	// extend appends batches to the fork and returns the new lines.
	extend := func(ids ...berth.ContainerID) []byte {
		t.Helper()
		if err := os.WriteFile(name, fork, 0o600); err != nil {
			t.Fatal(err)
		}
		l := open(t, dir)
		for _, id := range ids {
			commit(t, l, created(id), ended(id, "deleted"))
		}
		l.Close()
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		return text[len(fork):]
	}
	one, other := extend("c7", "c8"), extend("c7", "c9")
	batch := func(story []byte, n int) []byte {
		t.Helper()
		lines := bytes.SplitAfter(story, []byte("\n"))
		if len(lines) != 7 { // two batches of two entries and a checkpoint, and the text after the last line feed
			t.Fatalf("a fork has %d lines", len(lines)-1)
		}
		return bytes.Join(lines[3*n:3*n+3], nil)
	}
	for what, text := range map[string][]byte{
		"the first half of one, the second of the other": slices.Concat(fork, batch(one, 0), batch(other, 1)),
		"one after the other":                            slices.Concat(fork, one, other),
		"the second half alone":                          slices.Concat(fork, batch(one, 1)),
		"a checkpoint of the other": slices.Concat(fork, batch(one, 0),
			batch(one, 1)[:bytes.LastIndex(batch(one, 1)[:len(batch(one, 1))-1], []byte("\n"))+1],
			other[bytes.LastIndex(other[:len(other)-1], []byte("\n"))+1:]),
	} {
		if err := os.WriteFile(name, text, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Verify(dir, key, ""); !Broken(err) {
			t.Errorf("%s: got %v, want a BrokenError", what, err)
		}
	}
	for _, story := range [][]byte{one, other} { // each fork alone is valid
		if err := os.WriteFile(name, slices.Concat(fork, story), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Verify(dir, key, ""); err != nil {
			t.Error(err)
		}
	}
}

// A clock that is set back does not change the order of entries.
func TestClockSetBack(t *testing.T) {
	dir, key := victim(t)
	l := open(t, dir)
	early, late := created("c7"), ended("c7", "deleted")
	early.Time, late.Time = time.Now().Add(48*time.Hour).UTC(), time.Now().Add(-48*time.Hour).UTC()
	commit(t, l, early)
	commit(t, l, late)
	l.Close()
	if _, err := Verify(dir, key, ""); err != nil {
		t.Error(err)
	}
	var seen []Action
	for e, err := range Entries(dir, "c7") {
		if err != nil {
			t.Fatal(err)
		}
		seen = append(seen, e.Action)
	}
	if !slices.Equal(seen, []Action{ContainerCreated, ContainerEnded}) {
		t.Errorf("got %v, want its creation, then its end", seen)
	}
}
