package state

import (
	"os"
	"path/filepath"
	"testing"
)

func TestSealKey(t *testing.T) {
	state := t.TempDir()
	first, err := ReadSealKeys(state)
	if err != nil || first.current == [32]byte{} || first.Oldest() != first.current {
		t.Fatalf("got %v, %v", first, err)
	}
	if again, err := ReadSealKeys(state); err != nil || again.current != first.current {
		t.Errorf("at the next start: got %v, %v, want %v", again, err, first)
	}
	path := filepath.Join(state, "seal.key")
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("got %v, %v, want a file readable by its owner only", info.Mode(), err)
	}
	if other, err := ReadSealKeys(t.TempDir()); err != nil || other.current == first.current {
		t.Errorf("another server has the same key %v: %v", other, err)
	}
	rotated := SealKeys{current: [32]byte{1}, former: [][32]byte{{2}, {3}}}
	if err := os.WriteFile(path, []byte(rotated.text()), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := ReadSealKeys(state); err != nil || got.current != rotated.current || got.Oldest() != [32]byte{3} {
		t.Errorf("with former keys: got %v, %v", got, err)
	}
	for _, text := range []string{"", "abc", "zz", "00\n", string(make([]byte, 64)), rotated.text() + "00\n"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if key, err := ReadSealKeys(state); err == nil {
			t.Errorf("%q: got the key %v, want an error", text, key)
		}
	}
}
