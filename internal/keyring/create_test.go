package keyring

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// A copy is the same ring with some of its keys. It replaces the file that a link leads to, and only
// when it is complete.
func TestCopy(t *testing.T) {
	dir := t.TempDir()
	source, err := Open(filepath.Join(dir, "source"))
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close()
	var keys [4]Key // by number
	for range 3 {
		n, key, err := source.New()
		if err != nil {
			t.Fatal(err)
		}
		keys[n] = key
	}
	elsewhere, link := filepath.Join(t.TempDir(), "keys"), filepath.Join(dir, "link")
	if err := errors.Join(os.WriteFile(elsewhere, []byte("former"), 0o600), os.Symlink(elsewhere, link)); err != nil {
		t.Fatal(err)
	}
	for _, commit := range []bool{false, true} {
		c, err := Create(link, source.ID(), Tag{})
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(c.Put(3, keys[3]), c.Put(1, keys[1])); err != nil {
			t.Fatal(err)
		}
		if err := c.Put(0, keys[1]); err == nil {
			t.Error("a key got the number 0")
		}
		if !commit {
			if text, err := os.ReadFile(link); err != nil || string(text) != "former" {
				t.Errorf("before Commit: got %q, %v", text, err)
			}
			err = c.Abort()
		} else {
			err = c.Commit()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if info, err := os.Lstat(link); err != nil || info.Mode().Type() != os.ModeSymlink {
		t.Errorf("the link is %v, %v", info.Mode(), err)
	}
	got, err := Open(link)
	if err != nil {
		t.Fatal(err)
	}
	defer got.Close()
	if got.ID() != source.ID() {
		t.Error("the copy has another id")
	}
	for n := int64(1); n <= 4; n++ {
		key, err := got.Get(n)
		if exists := n == 1 || n == 3; exists && (err != nil || key != keys[n]) || !exists &&
			!errors.Is(err, ErrErased) {
			t.Errorf("key %d: got %v", n, err)
		}
	}
	if n, _, err := got.New(); err != nil || n != 4 {
		t.Errorf("the next key: got number %d, %v", n, err)
	}
}
