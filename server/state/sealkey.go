package state

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/berth-run/berth/internal/statefile"
)

// SealKey returns the server's key, which the first start creates. It encrypts secrets in the
// store and tokens that clients hold. It is never replaced, because both would become unreadable.
func SealKey(state string) (key [32]byte, err error) {
	path := filepath.Join(state, "seal.key")
	text, err := statefile.ReadLinked(path)
	if errors.Is(err, fs.ErrNotExist) {
		rand.Read(key[:]) // never fails
		if err := writeSecret(path, hex.EncodeToString(key[:])+"\n"); err != nil && !errors.Is(err, fs.ErrExist) {
			return key, fmt.Errorf("create seal key: %w", err)
		}
		text, err = statefile.ReadLinked(path) // another process may have written it
	}
	if err != nil {
		return key, fmt.Errorf("read seal key: %w", err)
	}
	raw, err := hex.DecodeString(strings.TrimSpace(string(text)))
	if err != nil || len(raw) != len(key) {
		return key, fmt.Errorf("%s is not a key of %d hexadecimal digits", path, 2*len(key))
	}
	return [32]byte(raw), nil
}

// writeSecret atomically creates a file that only its owner can read. If the file exists, the
// error is fs.ErrExist.
func writeSecret(path, text string) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-") // readable by its owner only
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	if _, err := f.WriteString(text); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if err := os.Link(f.Name(), path); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// NodeID returns the server's name on leases. The first start creates it.
func NodeID(state string) (string, error) {
	path := filepath.Join(state, "node_id")
	text, err := statefile.ReadFile(path)
	if err == nil && len(text) > 0 {
		return strings.TrimSpace(string(text)), nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("read node id: %w", err)
	}
	id := "node_" + strings.ToLower(rand.Text())
	return id, os.WriteFile(path, []byte(id+"\n"), 0o600)
}
