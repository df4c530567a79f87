package state

import (
	"os"
	"path/filepath"
	"testing"
)

func TestSealKey(t *testing.T) {
	state := t.TempDir()
	first, err := SealKey(state)
	if err != nil || first == [32]byte{} {
		t.Fatalf("got %x, %v", first, err)
	}
	if again, err := SealKey(state); err != nil || again != first {
		t.Errorf("at the next start: got %x, %v, want %x", again, err, first)
	}
	path := filepath.Join(state, "seal.key")
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("got %v, %v, want a file readable by its owner only", info.Mode(), err)
	}
	if other, err := SealKey(t.TempDir()); err != nil || other == first {
		t.Errorf("another server has the same key %x: %v", other, err)
	}
	for _, text := range []string{"", "abc", "zz", "00\n", string(make([]byte, 64))} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if key, err := SealKey(state); err == nil {
			t.Errorf("%q: got the key %x, want an error", text, key)
		}
	}
}
