package keyring_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"github.com/berth-run/berth/internal/keyring"
)

func open(t *testing.T, path string) *keyring.Ring {
	t.Helper()
	r, err := keyring.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestRing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys")
	r := open(t, path)
	keys := map[int64]keyring.Key{}
	for range 3000 {
		n, k, err := r.New()
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := keys[n]; ok || n < 1 || k == (keyring.Key{}) {
			t.Fatalf("got key %d: %x", n, k)
		}
		keys[n] = k
	}
	if err := r.Erase(7, 2999, 7); err != nil {
		t.Fatal(err)
	}
	id := r.ID()
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	file, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if want := 4096 + 32*3000; len(file) != want {
		t.Errorf("the file has %d bytes, want %d: unused keys must be released", len(file), want)
	}
	r = open(t, path)
	defer r.Close()
	if r.ID() != id {
		t.Error("the reopened ring has another id")
	}
	for n, want := range keys {
		got, err := r.Get(n)
		erased := n == 7 || n == 2999
		if erased != errors.Is(err, keyring.ErrErased) || erased == bytes.Contains(file, want[:]) || !erased &&
			got != want {
			t.Errorf("key %d: got %x, %v", n, got, err)
		}
	}
	for _, n := range []int64{-1, 0, 3001, 1 << 40} {
		if _, err := r.Get(n); !errors.Is(err, keyring.ErrErased) {
			t.Errorf("key %d: got %v", n, err)
		}
		if err := r.Erase(n); err == nil {
			t.Errorf("Erase of missing key %d: got no error", n)
		}
	}
	if n, _, err := r.New(); err != nil || n != 3001 {
		t.Errorf("next key: got %d, %v; numbers must not be reused", n, err)
	}
}

// Processes that share a ring get distinct keys and see each other's erasures.
func TestShared(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys")
	rings := []*keyring.Ring{open(t, path), open(t, path), open(t, path)}
	var mu sync.Mutex
	keys := map[int64]bool{}
	var wg sync.WaitGroup
	for _, r := range rings {
		wg.Go(func() {
			for range 2000 {
				n, _, err := r.New()
				mu.Lock()
				if err != nil || keys[n] {
					t.Errorf("got key %d, %v", n, err)
				}
				keys[n] = true
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if err := rings[0].Erase(1); err != nil {
		t.Fatal(err)
	}
	if _, err := rings[1].Get(1); !errors.Is(err, keyring.ErrErased) {
		t.Errorf("key erased by another process: got %v", err)
	}
	for _, r := range rings {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
	r := open(t, path)
	defer r.Close()
	if n, _, err := r.New(); err != nil || keys[n] {
		t.Errorf("got key %d, %v, which another ring returned", n, err)
	}
}

// A ring releases the space of erased keys.
func TestReleasesSpace(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys")
	r := open(t, path)
	defer r.Close()
	var numbers []int64
	for range 10_000 {
		n, _, err := r.New()
		if err != nil {
			t.Fatal(err)
		}
		numbers = append(numbers, n)
	}
	blocks := func() int64 {
		var st syscall.Stat_t
		if err := syscall.Stat(path, &st); err != nil {
			t.Fatal(err)
		}
		return st.Blocks / 8
	}
	before := blocks()
	if err := r.Erase(numbers...); err != nil {
		t.Fatal(err)
	}
	if after := blocks(); before < 70 || after > 20 {
		t.Errorf("got %d blocks, want at most %d", after, before)
	}
}

// Open refuses a file that is not a ring.
func TestRefuses(t *testing.T) {
	for name, text := range map[string]string{"Short": "berth keys 1\n", "Other": string(make([]byte, 8192))} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "keys")
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := keyring.Open(path); err == nil {
				t.Error("Open: got no error")
			}
		})
	}
}

// BenchmarkNew makes a key; BenchmarkErase overwrites one.
func BenchmarkNew(b *testing.B) {
	r, err := keyring.Open(filepath.Join(b.TempDir(), "keys"))
	if err != nil {
		b.Fatal(err)
	}
	defer r.Close()
	for b.Loop() {
		if _, _, err := r.New(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkErase(b *testing.B) {
	r, err := keyring.Open(filepath.Join(b.TempDir(), "keys"))
	if err != nil {
		b.Fatal(err)
	}
	defer r.Close()
	for b.Loop() {
		n, _, err := r.New()
		if err == nil {
			err = r.Erase(n)
		}
		if err != nil {
			b.Fatal(err)
		}
	}
}
