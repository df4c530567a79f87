package snapshot

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"testing"
	"testing/iotest"
)

func box(t testing.TB, plain []byte, piece int) []byte {
	t.Helper()
	var out bytes.Buffer
	s := newSealer(&out, [32]byte{1})
	for p := range slices.Chunk(plain, piece) {
		if n, err := s.Write(p); n != len(p) || err != nil {
			t.Fatalf("Write: got %d, %v", n, err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestBox(t *testing.T) {
	for _, size := range []int{0, 1, chunkSize - 1, chunkSize, chunkSize + 1, 3*chunkSize + 7} {
		plain := bytes.Repeat([]byte("ballast "), size/8+1)[:size]
		sealed := box(t, plain, 1000)
		if size > 8 && bytes.Contains(sealed, []byte("ballast")) {
			t.Errorf("%d bytes: it can be read", size)
		}
		if got, err := io.ReadAll(iotest.HalfReader(newOpener(iotest.HalfReader(bytes.NewReader(sealed)), [32]byte{1}))); err != nil || !bytes.Equal(got, plain) {
			t.Errorf("%d bytes: got %d, %v", size, len(got), err)
		}
		if _, err := io.ReadAll(newOpener(bytes.NewReader(sealed), [32]byte{2})); !errors.Is(err, errBroken) {
			t.Errorf("%d bytes, another key: got %v, want %v", size, err, errBroken)
		}
	}
}

// Nothing that was done to a box goes unnoticed.
func TestBoxBroken(t *testing.T) {
	const part = chunkSize + overhead
	whole := box(t, make([]byte, 3*chunkSize), chunkSize)
	flipped := slices.Clone(whole)
	flipped[part+5] ^= 1
	for name, broken := range map[string][]byte{
		"nothing":            nil,
		"cut":                whole[:part+100],
		"cut after a chunk":  whole[:2*part],
		"without its first":  whole[part:],
		"in another order":   slices.Concat(whole[part:2*part], whole[:part], whole[2*part:]),
		"a chunk twice":      slices.Concat(whole[:part], whole),
		"more at the end":    append(slices.Clone(whole), 0),
		"another at the end": slices.Concat(whole, whole[2*part:]),
		"a bit flipped":      flipped,
	} {
		if _, err := io.ReadAll(newOpener(bytes.NewReader(broken), [32]byte{1})); !errors.Is(err, errBroken) {
			t.Errorf("%s: got %v, want %v", name, err, errBroken)
		}
	}
	if _, err := io.ReadAll(newOpener(iotest.ErrReader(io.ErrClosedPipe), [32]byte{1})); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("got %v, want the reader's own", err)
	}
}
