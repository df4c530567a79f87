package seal

import (
	"bytes"
	"io"
	"os"
	"testing"
)

func TestSpool(t *testing.T) {
	dir := t.TempDir()
	s, err := NewSpool(dir)
	if err != nil {
		t.Fatal(err)
	}
	plain := bytes.Repeat([]byte("ballast "), 20_000)
	if n, err := s.Write(plain); err != nil || n != len(plain) || s.Size() != int64(n) {
		t.Fatalf("got %d, %v", n, err)
	}
	for range 2 {
		r, err := s.Content()
		if err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(r); err != nil || !bytes.Equal(got, plain) {
			t.Errorf("got %d bytes, %v", len(got), err)
		}
	}
	raw := make([]byte, len(plain))
	if _, err := s.file.ReadAt(raw, 0); err != nil || bytes.Contains(raw, []byte("ballast")) {
		t.Errorf("the file is not encrypted, or unreadable: %v", err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("directory: got %v, %v, want it empty", left, err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
