package backup

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/berth-run/berth/blob"
)

var (
	me    = Writer{ID: "me", Host: "here"}
	start = time.Date(2026, 11, 29, 0, 0, 0, 0, time.UTC)
	key   = Key{1}
)

// place returns a repository's place in a directory. Its operations that change something fail after a number of
// them, as those of a process that was killed; fewer than 0 means never.
func place(t testing.TB, dir string, left *int) Place {
	part := func(name string) blob.Storage {
		d, err := blob.OpenDirectory(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return mortal{d, left}
	}
	return Place{Packs: part("packs"), Backups: part("backups"), State: part("state"), Name: dir}
}

type mortal struct {
	blob.Storage
	left *int
}

var errKilled = errors.New("killed")

func (m mortal) dies() error {
	if m.left == nil || *m.left < 0 {
		return nil
	}
	if *m.left == 0 {
		return errKilled
	}
	*m.left--
	return nil
}

func (m mortal) Write(ctx context.Context, key string, write func(io.Writer) error) error {
	if err := m.dies(); err != nil {
		return err
	}
	return m.Storage.Write(ctx, key, write)
}

func (m mortal) Remove(ctx context.Context, key string) error {
	if err := m.dies(); err != nil {
		return err
	}
	return m.Storage.Remove(ctx, key)
}

// All makes everything older than the grace of a prune.
func (m mortal) All(ctx context.Context) iter.Seq2[blob.Stored, error] {
	return func(yield func(blob.Stored, error) bool) {
		for s, err := range m.Storage.All(ctx) {
			s.Written = start.Add(-2 * grace)
			if !yield(s, err) {
				return
			}
		}
	}
}

type tree map[string][]byte

func create(t testing.TB, at Place, files tree, now time.Time) (*Manifest, error) {
	t.Helper()
	r, err := Open(t.Context(), at, key, true)
	if err == nil {
		err = r.Claim(t.Context(), me, false)
	}
	if err != nil {
		return nil, err
	}
	d, err := r.Begin(t.Context(), me, "test", now)
	if err != nil {
		return nil, err
	}
	for _, path := range slices.Sorted(maps.Keys(files)) {
		if err := d.Add(t.Context(), &File{Path: path}, 4096, bytes.NewReader(files[path])); err != nil {
			return nil, err
		}
	}
	return d.Commit(t.Context())
}

func restore(t testing.TB, at Place, name string) (tree, error) {
	t.Helper()
	r, err := Open(t.Context(), at, key, false)
	if err != nil {
		return nil, err
	}
	m, err := r.Load(t.Context(), name)
	if err != nil {
		return nil, err
	}
	out := tree{}
	from := r.Restorer()
	defer from.Close()
	for f, err := range r.Files(t.Context(), m) {
		if err != nil {
			return nil, err
		}
		var content bytes.Buffer
		if err := from.Read(t.Context(), f, &content, func(n int64) error {
			content.Write(make([]byte, n))
			return nil
		}); err != nil {
			return nil, err
		}
		out[f.Path] = content.Bytes()
	}
	return out, nil
}

func same(a, b tree) bool {
	return maps.EqualFunc(a, b, func(x, y []byte) bool { return bytes.Equal(x, y) })
}

// filled returns random data with a hole in it.
func filled(random *rand.ChaCha8, size int) []byte {
	data := make([]byte, size)
	random.Read(data)
	clear(data[size/4 : size/2])
	return data
}

// A backup stores only what changed, and each one restores what it had.
func TestIncremental(t *testing.T) {
	at := place(t, t.TempDir(), nil)
	random := rand.NewChaCha8([32]byte{})
	files := tree{"berth.db": filled(random, 1<<20), "files/p/a": filled(random, 100_000), "empty": {}}
	var made []*Manifest
	var had []tree
	more := 0 // backups that stored much, because there were too many small packs
	for i := range 2 * maxSmall {
		m, err := create(t, at, files, start.Add(time.Duration(i)*time.Minute))
		if err != nil {
			t.Fatal(err)
		}
		made, had = append(made, m), append(had, maps.Clone(files))
		if i > 0 && m.Stored > 100<<10 {
			more++
		}
		if len(m.Packs) > 2*maxSmall {
			t.Errorf("backup %d uses %d packs", i, len(m.Packs))
		}
		db := slices.Clone(files["berth.db"])
		random.Read(db[i*4096 : i*4096+100])
		files["berth.db"] = db
	}
	if more > 2 {
		t.Errorf("%d backups stored more than changed", more)
	}
	for i, m := range made {
		if got, err := restore(t, at, m.Name); err != nil || !same(got, had[i]) {
			t.Fatalf("backup %d: %v", i, err)
		}
	}
}

// A process that is killed before any write or removal, in a backup or a prune, harms no backup, and the next
// process completes the work.
func TestKilledAnywhere(t *testing.T) {
	for n := range 40 {
		dir := t.TempDir()
		left := n
		random := rand.NewChaCha8([32]byte{})
		had := map[string]tree{}
		work := func(at Place, minutes int) error {
			files := tree{"a": filled(random, 30_000), "b": []byte("always the same")}
			now := start.Add(time.Duration(minutes) * time.Hour)
			m, err := create(t, at, files, now)
			if err != nil {
				return err
			}
			had[m.Name] = files
			r, err := Open(t.Context(), at, key, false)
			if err == nil {
				_, err = r.Prune(t.Context(), me, Keep{All: 2 * time.Hour}, nil, nil, now)
			}
			return err
		}
		var err error
		for i := 0; i < 6 && err == nil; i++ {
			err = work(place(t, dir, &left), i)
		}
		if err != nil && !errors.Is(err, errKilled) {
			t.Fatalf("killed at %d: %v", n, err)
		}
		check := func() {
			r, err := Open(t.Context(), place(t, dir, nil), key, true)
			if err != nil {
				t.Fatalf("killed at %d: %v", n, err)
			}
			names, err := r.List(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, name := range names {
				if got, err := restore(t, place(t, dir, nil), name); err != nil || !same(got, had[name]) {
					t.Errorf("killed at %d: backup %s: %v", n, name, err)
				}
			}
		}
		check()
		if err := work(place(t, dir, nil), 10); err != nil {
			t.Errorf("killed at %d, then: %v", n, err)
		}
		check()
	}
}

// A repository that lies is found out, and a wrong key or server is refused.
func TestLies(t *testing.T) {
	dir := t.TempDir()
	at := place(t, dir, nil)
	first, err := create(t, at, tree{"a": []byte("the first")}, start)
	if err != nil {
		t.Fatal(err)
	}
	second, err := create(t, at, tree{"a": []byte("the second"), "b": bytes.Repeat([]byte("x"), 9000)}, start.Add(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	if _, err := Open(ctx, at, Key{2}, true); !errors.Is(err, ErrKey) {
		t.Errorf("another key: got %v", err)
	}
	r, err := Open(ctx, at, key, false)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Claim(ctx, Writer{ID: "other"}, false); !errors.Is(err, ErrWriter) {
		t.Errorf("another server: got %v", err)
	}
	if _, err := r.Begin(ctx, Writer{ID: "other"}, "test", start.Add(time.Hour)); !errors.Is(err, ErrWriter) {
		t.Errorf("another server: got %v", err)
	}
	if _, err := r.Begin(ctx, me, "test", start.Add(-time.Hour)); err == nil || !strings.Contains(err.Error(), "clock") {
		t.Errorf("a clock that goes back: got %v", err)
	}
	if _, err := r.Prune(ctx, me, Keep{}, []string{"20261128T000000.000Z-lost"}, nil,
		start.Add(time.Hour)); !errors.Is(err,
		ErrDamaged) {
		t.Errorf("a backup that is not listed: got %v", err)
	}
	read := func(part blob.Storage, name string) []byte {
		text, err := readWhole(ctx, part, name, 1<<30)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	broken := func(name string) {
		t.Helper()
		if _, err := restore(t, at, second.Name); !errors.Is(err, ErrDamaged) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	whole := read(at.Backups, second.Name)
	if err := writeWhole(ctx, at.Backups, second.Name, read(at.Backups, first.Name)); err != nil {
		t.Fatal(err)
	}
	broken("an old manifest in the place of a new one")
	if _, err := r.Prune(ctx, me, Keep{}, nil, nil, start.Add(time.Hour)); !errors.Is(err, ErrDamaged) {
		t.Errorf("prune with a manifest that is not readable: got %v", err)
	}
	if err := writeWhole(ctx, at.Backups, second.Name, whole); err != nil {
		t.Fatal(err)
	}
	for pack := range second.Packs {
		sealed := read(at.Packs, pack)
		for _, bit := range []int{0, len(sealed) / 2, len(sealed) - 1} {
			flipped := slices.Clone(sealed)
			flipped[bit] ^= 1
			if err := writeWhole(ctx, at.Packs, pack, flipped); err != nil {
				t.Fatal(err)
			}
			if _, err := restore(t, at, second.Name); err == nil && !slices.Equal(flipped, sealed) {
				t.Errorf("bit %d of the pack %s was flipped, and the backup restored", bit, pack)
			}
		}
		if err := writeWhole(ctx, at.Packs, pack, sealed[:len(sealed)-1]); err != nil {
			t.Fatal(err)
		}
		broken("a pack that is cut off")
		if err := at.Packs.Remove(ctx, pack); err != nil {
			t.Fatal(err)
		}
		broken("a pack that is lost")
	}
	// The next backup stores anew what was lost.
	third, err := create(t, at, tree{"a": []byte("the second"), "b": bytes.Repeat([]byte("x"), 9000)}, start.Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := restore(t, at, third.Name); err != nil || string(got["a"]) != "the second" {
		t.Errorf("after a loss: got %q, %v", got["a"], err)
	}
}

func TestKeep(t *testing.T) {
	var names []string
	for i := range 60 * 24 * 3 { // each minute of three days
		names = append(names, start.Add(time.Duration(i)*time.Minute).Format(nameLayout)+fmt.Sprint("-", i))
	}
	now := start.Add(72 * time.Hour)
	k := Keep{All: time.Hour, Hourly: 24 * time.Hour, Daily: 72 * time.Hour}
	if got := len(names) - len(k.Expired(names, now)); got < 60+23+2 || got > 60+24+3 {
		t.Errorf("%d are retained", got)
	}
	if got := (Keep{}).Expired(names, now.Add(1000*time.Hour)); len(got) != len(names)-1 {
		t.Errorf("%d of %d have expired without a time", len(got), len(names))
	}
}

func TestAt(t *testing.T) {
	at := place(t, t.TempDir(), nil)
	m, err := create(t, at, tree{"a": {1}}, start)
	if err != nil {
		t.Fatal(err)
	}
	r, err := Open(t.Context(), at, key, false)
	if err != nil {
		t.Fatal(err)
	}
	if name, err := r.At(t.Context(), start.Add(time.Second)); err != nil || name != m.Name {
		t.Errorf("got %q, %v", name, err)
	}
	if _, err := r.At(t.Context(), start.Add(-time.Second)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}

// A chunk that is stored again may be packed in another way, by a later version. Under the nonce of the first time, its
// two forms would betray each other to the holder of the bucket.
func TestChunkSealedAgain(t *testing.T) {
	r, err := Open(t.Context(), place(t, t.TempDir(), nil), key, true)
	if err != nil {
		t.Fatal(err)
	}
	p, o := newPacker(r), newReader(r)
	defer o.end()
	data := bytes.Repeat([]byte("text"), 1000)
	c := chunk{id: r.id(data), size: int64(len(data))}
	first, again := r.sealChunk(nil, c.id, data, p.zstd), r.sealChunk(nil, c.id, data, p.zstd)
	if bytes.Equal(first[:12], again[:12]) {
		t.Error("the same chunk was sealed twice under one nonce")
	}
	for _, sealed := range [][]byte{first, again} {
		if got, err := r.openChunk(c, sealed, o.zstd); err != nil || !bytes.Equal(got, data) {
			t.Errorf("opened: %d bytes, %v", len(got), err)
		}
	}
}
