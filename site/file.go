package site

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"fmt"
	"io"
	"sync"
)

// A file is a file of the site. Its content is made when it is needed first, and kept compressed.
type file struct {
	packed func() (*packed, error)
}

// A packed is a compressed content.
type packed struct {
	gzip []byte
	tag  string // its ETag
}

func newFile(text func() ([]byte, error)) *file {
	return &file{sync.OnceValues(func() (*packed, error) {
		plain, err := text()
		if err != nil {
			return nil, err
		}
		var b bytes.Buffer
		w := gzip.NewWriter(&b)
		_, _ = w.Write(plain) // a buffer does not fail
		_ = w.Close()
		hash := sha256.Sum256(plain)
		return &packed{b.Bytes(), fmt.Sprintf(`"%x"`, hash[:12])}, nil
	})}
}

// plain returns the content.
func (f *file) plain() ([]byte, error) {
	p, err := f.packed()
	if err != nil {
		return nil, err
	}
	r, err := gzip.NewReader(bytes.NewReader(p.gzip))
	if err != nil {
		return nil, fmt.Errorf("unpack a file of the documentation: %w", err)
	}
	text, err := io.ReadAll(r)
	if err != nil {
		return nil, fmt.Errorf("unpack a file of the documentation: %w", err)
	}
	return text, nil
}
