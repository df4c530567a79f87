package exchange

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"mime/multipart"
	"net/http/httptest"
	"testing"
)

// The fingerprint of a form depends on every byte of its parts, but not on the boundary
// between them. For any body, reading ends.
func FuzzFingerprint(f *testing.F) {
	f.Add([]byte("a.txt"), []byte("content"), []byte("other"), []byte("--one\r\n\r\nx\r\n--one--"))
	f.Add([]byte(`a"b`), []byte("\r\n--one--\r\n"), []byte(""), []byte("--one"))
	s := New(Options{})
	print := func(boundary string, body []byte) (string, error) {
		r := httptest.NewRequest("POST", "/v1/files", bytes.NewReader(body))
		r.Header.Set("Content-Type", "multipart/form-data; boundary="+boundary)
		p, err := s.start(httptest.NewRecorder(), r).fingerprint(r)
		if err != nil {
			return "", err
		}
		defer p.close()
		if _, err := io.CopyN(io.Discard, r.Body, 10); err != nil && err != io.EOF { // as far as some handler reads
			return "", err
		}
		if err := p.finish(); err != nil {
			return "", err
		}
		return p.sum(), nil
	}
	f.Fuzz(func(t *testing.T, name, content, other, raw []byte) {
		form := func(boundary string, content []byte) []byte {
			var b bytes.Buffer
			w := multipart.NewWriter(&b)
			if err := w.SetBoundary(boundary); err != nil {
				t.Fatal(err)
			}
			part, _ := w.CreateFormFile("file", string(name))
			part.Write(content)
			w.Close()
			return b.Bytes()
		}
		// Boundaries that the parts cannot contain.
		sum := sha256.Sum256(append(append(append([]byte{}, name...), content...), other...))
		one, two := "b1"+hex.EncodeToString(sum[:]), "b2"+hex.EncodeToString(sum[:])
		first, err1 := print(one, form(one, content))
		second, err2 := print(two, form(two, content))
		if (err1 == nil) != (err2 == nil) || first != second {
			t.Errorf("with another boundary: got %s, %v and %s, %v", first, err1, second, err2)
		}
		if third, err := print(one, form(one, other)); err == nil && err1 == nil &&
			(third == first) != bytes.Equal(content, other) {
			t.Errorf("contents %q and %q: got %s and %s", content, other, first, third)
		}
		_, _ = print("one", raw)
	})
}
