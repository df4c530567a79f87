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

	"github.com/berth-run/berth/internal/keyring"
	"github.com/berth-run/berth/internal/seal"
	"github.com/berth-run/berth/internal/statefile"
)

// sealFile is the file of a state directory with the server's key on its first line. Each rotation puts a new
// key before it. The former keys still open encrypted_content that clients have, and keys within rows, which are
// sealed as a whole with keys that need the current one.
const sealFile = "seal.key"

// SealKeys are the keys of a state directory.
type SealKeys struct {
	current [32]byte
	former  [][32]byte // the latest first
}

// Keychain returns the keys as a cipher.
func (k *SealKeys) Keychain() *seal.Keychain { return seal.NewKeychain(k.current, k.former...) }

// Oldest returns the key that the directory started with.
func (k *SealKeys) Oldest() [32]byte {
	if len(k.former) == 0 {
		return k.current
	}
	return k.former[len(k.former)-1]
}

// text returns the content of the file.
func (k *SealKeys) text() string {
	var text strings.Builder
	for _, key := range append([][32]byte{k.current}, k.former...) {
		text.WriteString(hex.EncodeToString(key[:]) + "\n")
	}
	return text.String()
}

// ReadSealKeys returns the keys of a state directory. The first start creates one.
func ReadSealKeys(state string) (*SealKeys, error) {
	path := filepath.Join(state, sealFile)
	keys, err := readSealFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		keys = &SealKeys{}
		rand.Read(keys.current[:]) // never fails
		if err := writeSecret(path, keys.text()); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, fmt.Errorf("create seal key: %w", err)
		}
		keys, err = readSealFile(path) // another process may have written it
	}
	return keys, err
}

// readSealFile reads a file with keys.
func readSealFile(path string) (*SealKeys, error) {
	text, err := statefile.ReadLinked(path)
	if err != nil {
		return nil, fmt.Errorf("read seal key: %w", err)
	}
	keys := &SealKeys{}
	for i, line := range strings.Split(strings.TrimSpace(string(text)), "\n") {
		raw, err := hex.DecodeString(strings.TrimSpace(line))
		if err != nil || len(raw) != len(keys.current) {
			return nil, fmt.Errorf("line %d of %s is not a key of %d hexadecimal digits", i+1, path, 2*len(keys.current))
		}
		if i == 0 {
			keys.current = [32]byte(raw)
		} else {
			keys.former = append(keys.former, [32]byte(raw))
		}
	}
	return keys, nil
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
	return keyring.SyncDir(filepath.Dir(path))
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
