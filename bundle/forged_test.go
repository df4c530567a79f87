package bundle

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/berth-run/berth"
)

// sparse returns a tar of sparse files that claim to be this long, and hold nothing.
func sparse(t *testing.T, sizes ...uint64) []byte {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for i := range sizes {
		if err := w.WriteHeader(&tar.Header{Name: fmt.Sprintf("mnt/data/%d", i), Mode: 0o600, Typeflag: tar.TypeReg,
			Format: tar.FormatGNU}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	for i, size := range sizes {
		head := out.Bytes()[512*i : 512*(i+1)]
		head[156] = 'S'
		size := fmt.Appendf(nil, "\x80\x00\x00\x00%s", []byte{byte(size >> 56), byte(size >> 48), byte(size >> 40),
			byte(size >> 32), byte(size >> 24), byte(size >> 16), byte(size >> 8), byte(size)})
		copy(head[483:], size)
		copy(head[148:156], "        ")
		sum := 0
		for _, c := range head {
			sum += int(c)
		}
		copy(head[148:156], fmt.Sprintf("%06o\x00 ", sum))
	}
	return out.Bytes()
}

// What a layer's files claim to hold is not believed without bound: it is counted for
// their project.
func TestSparseLayer(t *testing.T) {
	for name, c := range map[string]struct {
		sizes []uint64
		want  berth.Code
	}{
		"little":         {[]uint64{1 << 20}, ""},
		"much":           {[]uint64{1 << 62}, berth.CodeInvalid},
		"less than none": {[]uint64{1 << 62, 1 << 62}, berth.CodeInvalid},
	} {
		plain := sparse(t, c.sizes...)
		in := tar.NewReader(bytes.NewReader(plain))
		if h, err := in.Next(); err != nil || uint64(h.Size) != c.sizes[0] {
			t.Fatalf("%s: got %v, %v: no sparse file", name, h, err)
		}
		var packed bytes.Buffer
		z, err := zstd.NewWriter(&packed)
		if err != nil {
			t.Fatal(err)
		}
		z.Write(plain)
		z.Close()
		made, err := unpack(io.Discard, &packed, fmt.Sprintf("sha256:%x", sha256.Sum256(plain)))
		if err != nil && berth.ErrorCode(err) != c.want || err == nil && (c.want != "" || made.Bytes != 1<<20) {
			t.Errorf("%s: got %+v, %v", name, made, err)
		}
	}
}

// A layer that a sandbox could not be started from is refused when it is imported.
func TestHostileLayer(t *testing.T) {
	for name, c := range map[string]struct {
		h     *tar.Header
		words string
	}{
		"the root is removed": {&tar.Header{Typeflag: tar.TypeReg, Name: ".wh..wh..opq"},
			"removes the whole file system"},
		"setuid and a capability": {&tar.Header{Typeflag: tar.TypeReg, Name: "usr/bin/su", Mode: 0o4755,
			PAXRecords: map[string]string{"SCHILY.xattr.security.capability": "x"}}, "malformed"},
	} {
		var plain, packed bytes.Buffer
		w := tar.NewWriter(&plain)
		if err := w.WriteHeader(c.h); err != nil {
			t.Fatal(err)
		}
		w.Close()
		z, err := zstd.NewWriter(&packed)
		if err != nil {
			t.Fatal(err)
		}
		z.Write(plain.Bytes())
		z.Close()
		_, err = unpack(io.Discard, &packed, fmt.Sprintf("sha256:%x", sha256.Sum256(plain.Bytes())))
		if berth.ErrorCode(err) != berth.CodeInvalid || !strings.Contains(err.Error(), c.words) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}
