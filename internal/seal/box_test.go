package seal

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
	s := NewWriter(&out, [32]byte{1})
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
			t.Errorf("%d bytes: the plain data is readable", size)
		}
		if got, err := io.ReadAll(iotest.HalfReader(NewReader(iotest.HalfReader(bytes.NewReader(sealed)),
			[32]byte{1}))); err != nil || !bytes.Equal(got, plain) {
			t.Errorf("%d bytes: got %d, %v", size, len(got), err)
		}
		if _, err := io.ReadAll(NewReader(bytes.NewReader(sealed), [32]byte{2})); !errors.Is(err, ErrBroken) {
			t.Errorf("%d bytes, another key: got %v, want %v", size, err, ErrBroken)
		}
	}
}

// Any change to a sealed stream is detected.
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
		if _, err := io.ReadAll(NewReader(bytes.NewReader(broken), [32]byte{1})); !errors.Is(err, ErrBroken) {
			t.Errorf("%s: got %v, want %v", name, err, ErrBroken)
		}
	}
	if _, err := io.ReadAll(NewReader(iotest.ErrReader(io.ErrClosedPipe), [32]byte{1})); !errors.Is(err,
		io.ErrClosedPipe) {
		t.Errorf("got %v, want the reader's error", err)
	}
}

// A Seeker reads parts of a stream and detects any change to them.
func TestSeeker(t *testing.T) {
	for _, size := range []int{0, 1, chunkSize, chunkSize + 1, 3*chunkSize + 7} {
		plain := make([]byte, size)
		for i := range plain {
			plain[i] = byte(i * i >> 8)
		}
		sealed := box(t, plain, 1000)
		if err := iotest.TestReader(NewSeeker(bytes.NewReader(sealed), [32]byte{1}, int64(size)), plain); err != nil {
			t.Errorf("%d bytes: %v", size, err)
		}
		if size == 0 {
			continue
		}
		for name, s := range map[string]*Seeker{
			"another key":  NewSeeker(bytes.NewReader(sealed), [32]byte{2}, int64(size)),
			"another size": NewSeeker(bytes.NewReader(sealed), [32]byte{1}, int64(size)+1),
			"a bit": NewSeeker(bytes.NewReader(append([]byte{sealed[0] ^ 1}, sealed[1:]...)), [32]byte{1},
				int64(size)),
			"nothing": NewSeeker(bytes.NewReader(nil), [32]byte{1}, int64(size)),
		} {
			if _, err := io.ReadAll(s); !errors.Is(err, ErrBroken) {
				t.Errorf("%d bytes, %s: got %v, want %v", size, name, err, ErrBroken)
			}
		}
	}
	sealed := box(t, make([]byte, 100<<20), chunkSize)
	counted := &counter{ReadSeeker: bytes.NewReader(sealed)}
	s := NewSeeker(counted, [32]byte{1}, 100<<20)
	if _, err := s.Seek(90<<20, io.SeekStart); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(s, make([]byte, 10)); err != nil || counted.n > 2*partSize {
		t.Errorf("reading 10 bytes read %d sealed bytes, %v", counted.n, err)
	}
}

type counter struct {
	io.ReadSeeker
	n int
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.ReadSeeker.Read(p)
	c.n += n
	return n, err
}

func BenchmarkWriter(b *testing.B) {
	piece := make([]byte, 32<<10)
	s := NewWriter(io.Discard, [32]byte{1})
	b.SetBytes(int64(len(piece)))
	for b.Loop() {
		if _, err := s.Write(piece); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkSeeker(b *testing.B) {
	sealed := box(b, make([]byte, 8<<20), chunkSize)
	s := NewSeeker(bytes.NewReader(sealed), [32]byte{1}, 8<<20)
	b.SetBytes(8 << 20)
	for b.Loop() {
		if _, err := s.Seek(0, io.SeekStart); err != nil {
			b.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, s); err != nil {
			b.Fatal(err)
		}
	}
}
