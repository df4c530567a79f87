// Package blobtest provides storage of blobs for tests.
package blobtest

import (
	"io"
	"testing"

	"github.com/berth-run/berth/blob"
)

// A Storage is a directory that ends with the test.
type Storage struct {
	*blob.Directory
	tb testing.TB
}

// New returns an empty storage.
func New(tb testing.TB) *Storage {
	tb.Helper()
	d, err := blob.OpenDirectory(tb.TempDir())
	if err != nil {
		tb.Fatal(err)
	}
	return &Storage{d, tb}
}

// Keys returns the keys of all contents, sorted.
func (s *Storage) Keys() (keys []string) {
	s.tb.Helper()
	for content, err := range s.All(s.tb.Context()) {
		if err != nil {
			s.tb.Fatal(err)
		}
		keys = append(keys, content.Key)
	}
	return keys
}

// Get returns a content as it is stored.
func (s *Storage) Get(key string) []byte {
	s.tb.Helper()
	r, err := s.Open(s.tb.Context(), key)
	if err != nil {
		s.tb.Fatal(err)
	}
	defer r.Close()
	content, err := io.ReadAll(r)
	if err != nil {
		s.tb.Fatal(err)
	}
	return content
}

// Put stores a content as it is.
func (s *Storage) Put(key string, content []byte) {
	s.tb.Helper()
	err := s.Write(s.tb.Context(), key, func(w io.Writer) error {
		_, err := w.Write(content)
		return err
	})
	if err != nil {
		s.tb.Fatal(err)
	}
}
