package sealed

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
)

func open(t *testing.T) *Keys {
	t.Helper()
	ring, err := OpenFile(filepath.Join(t.TempDir(), "keys"))
	if err != nil {
		t.Fatal(err)
	}
	return NewKeys(ring, [32]byte{1})
}

// A box opens only with its own key and as its own kind of content.
func TestBoxes(t *testing.T) {
	k := open(t)
	defer k.Close()
	one, err1 := k.New(t.Context())
	two, err2 := k.New(t.Context())
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	secret := []byte(`"secret"`)
	o := k.Opener()
	for _, key := range []Key{one, two, one} {
		box := key.Event(secret)
		if sealed := !bytes.Contains(box, secret); sealed != (key.Number() != 0) {
			t.Errorf("key %d: sealed is %t", key.Number(), sealed)
		}
		if got, err := o.Event(t.Context(), bytes.Clone(box)); err != nil || !bytes.Equal(got, secret) ||
			o.Key().Number() != key.Number() {
			t.Errorf("key %d: got %q of key %d, %v", key.Number(), got, o.Key().Number(), err)
		}
	}
	if _, err := o.Object(t.Context(), one.Event(secret)); err == nil {
		t.Error("an event opens as an object")
	}
	other := one.Event(secret)
	other[8]++ // the key's number
	if _, err := o.Event(t.Context(), other); err == nil {
		t.Error("a box opens with another key")
	}
	hidden, box := one.Path("/a")
	if again, _ := one.Path("/a"); again != hidden || hidden == "/a" {
		t.Errorf("got the digests %q and %q for one path", hidden, again)
	}
	if path, err := o.Path(t.Context(), hidden, box); err != nil || path != "/a" {
		t.Errorf("got the path %q, %v", path, err)
	}
	if err := k.erase(t.Context(), []int64{one.Number()}); err != nil {
		t.Fatal(err)
	}
	if _, err := k.Opener().Event(t.Context(), one.Event(secret)); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("an erased key: got %v, want %v", err, store.ErrNotFound)
	}
}

// Keys of a new database open nothing that is not sealed, and give no key that seals nothing. Those of a database
// that has unsealed rows do, until Seal. A rotation changes neither.
func TestUnsealed(t *testing.T) {
	k := open(t)
	defer k.Close()
	strict := k.Mark()
	refused := func(when string) {
		t.Helper()
		_, err := k.Opener().Object(t.Context(), []byte(`{"a":1}`))
		if !errors.Is(err, ErrUnsealed) {
			t.Errorf("%s: an unsealed object: got %v, want %v", when, err, ErrUnsealed)
		}
		if _, err = k.Opener().Path(t.Context(), "/a", nil); !errors.Is(err, ErrUnsealed) {
			t.Errorf("%s: an unsealed path: got %v, want %v", when, err, ErrUnsealed)
		}
		if _, err = k.Get(t.Context(), 0); !errors.Is(err, ErrUnsealed) {
			t.Errorf("%s: the key with number 0: got %v, want %v", when, err, ErrUnsealed)
		}
	}
	refused("a new database")
	former := &generation{ring: k.now.Load().ring, root: [32]byte{1}}
	if err := k.Check(former.mark()); err != nil || k.Strict() {
		t.Fatalf("the mark of a former version: got %v, strict %t", err, k.Strict())
	}
	if got, err := k.Opener().Object(t.Context(), []byte(`{"a":1}`)); err != nil || string(got) != `{"a":1}` {
		t.Errorf("an unsealed object of a former version: got %q, %v", got, err)
	}
	if mark := k.Seal(); !bytes.Equal(mark, strict) || !k.Strict() {
		t.Errorf("Seal returns the mark %x, want %x", mark, strict)
	}
	refused("after Seal")
	r := k.Rotate([32]byte{2})
	r.Commit()
	refused("after a rotation")
	if err := k.Check(k.Mark()); err != nil || !k.Strict() {
		t.Errorf("after a rotation: got %v, strict %t", err, k.Strict())
	}
}

func TestFileHasItsKey(t *testing.T) {
	k := open(t)
	defer k.Close()
	key, err := k.New(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	box, err := key.File(&berth.File{ID: "file-1", Filename: "a"}, []byte("key"))
	if err != nil {
		t.Fatal(err)
	}
	if f, secret, err := k.Opener().File(t.Context(), box); err != nil || f.Filename != "a" || string(secret) != "key" {
		t.Errorf("got %+v, %q, %v", f, secret, err)
	}
}

// A table is an in-memory list of doomed keys that records its calls.
type table struct {
	mu    sync.Mutex
	keys  []int64
	steps []string
	err   error
	check func()
}

func (d *table) List(context.Context) ([]int64, error) { return d.keys, nil }

func (d *table) Sync() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.steps = append(d.steps, "sync")
	d.check()
	return d.err
}

func (d *table) Remove(_ context.Context, keys []int64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.steps = append(d.steps, "remove")
	d.keys = slices.DeleteFunc(d.keys, func(n int64) bool { return slices.Contains(keys, n) })
	return nil
}

// Keys are destroyed after their deletion is durable, and are removed from the list
// after that. Keys that could not be destroyed are destroyed with the next ones.
func TestEraserOrder(t *testing.T) {
	k := open(t)
	defer k.Close()
	var numbers []int64
	for range 3 {
		key, err := k.New(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		numbers = append(numbers, key.Number())
	}
	has := func(n int64) bool { _, err := k.Get(t.Context(), n); return err == nil }
	list := &table{keys: slices.Clone(numbers[:1]), check: func() {}}
	list.check = func() {
		if !has(numbers[0]) {
			t.Error("a key was destroyed before its deletion was durable")
		}
	}
	e, err := NewEraser(t.Context(), k, list, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if has(numbers[0]) || len(list.keys) != 0 || !slices.Equal(list.steps, []string{"sync", "remove"}) {
		t.Errorf("after the start: key %t, list %v, steps %v", has(numbers[0]), list.keys, list.steps)
	}
	list.check = func() {}
	list.err = errors.New("disk on fire")
	list.keys = slices.Clone(numbers[1:])
	if err := e.Erase(numbers[1:2]); !errors.Is(err, list.err) || !has(numbers[1]) {
		t.Errorf("without a sync: got %v, key %t", err, has(numbers[1]))
	}
	list.mu.Lock()
	list.err = nil
	list.mu.Unlock()
	if err := e.Erase(numbers[2:]); err != nil || has(numbers[1]) || has(numbers[2]) {
		t.Errorf("after the next erasure: got %v, keys %t and %t", err, has(numbers[1]), has(numbers[2]))
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	if len(list.keys) != 0 {
		t.Errorf("keys %v are still in the list", list.keys)
	}
	if err := e.Erase(numbers); !errors.Is(err, store.ErrClosed) {
		t.Errorf("after Close: got %v, want %v", err, store.ErrClosed)
	}
}
