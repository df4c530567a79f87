package audit

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/mod/sumdb/note"

	"github.com/berth-run/berth/internal/statefile"
)

// The files of a record besides its segments.
const (
	lockFile   = "lock"
	keyFile    = "key"
	publicFile = "key.pub"
)

// loadKey returns the key pair of the record in dir. It generates one for a new record.
func loadKey(dir string) (note.Signer, note.Verifier, error) {
	secret, err := statefile.ReadLinked(filepath.Join(dir, keyFile))
	if errors.Is(err, fs.ErrNotExist) {
		secret, err = makeKey(dir)
	}
	if err != nil {
		return nil, nil, err
	}
	signer, err := note.NewSigner(strings.TrimSpace(string(secret)))
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", filepath.Join(dir, keyFile), err)
	}
	public, err := PublicKey(dir)
	if err != nil {
		return nil, nil, err
	}
	key, err := note.NewVerifier(public)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", filepath.Join(dir, publicFile), err)
	}
	if key.Name() != signer.Name() || key.KeyHash() != signer.KeyHash() {
		return nil, nil, fmt.Errorf("%s: %s is not the public half of %s", dir, publicFile, keyFile)
	}
	return signer, key, nil
}

// makeKey generates the key of a new record. It fails if the record has entries, so that
// removing the key does not start another record.
func makeKey(dir string) ([]byte, error) {
	segments, err := listSegments(dir)
	if err != nil {
		return nil, err
	}
	if len(segments) > 0 {
		return nil, fmt.Errorf(
			"%s has entries but no key: restore the file %q, or move the record away to start a new one", dir, keyFile)
	}
	var name [8]byte
	rand.Read(name[:])
	secret, public, err := note.GenerateKey(rand.Reader, "berth.run/audit/"+hex.EncodeToString(name[:]))
	if err != nil {
		return nil, fmt.Errorf("generate key: %w", err)
	}
	if err := writeFile(dir, publicFile, public+"\n", 0o644); err != nil {
		return nil, err
	}
	return []byte(secret), writeFile(dir, keyFile, secret+"\n", 0o600)
}

// PublicKey returns the public key of the record in dir.
func PublicKey(dir string) (string, error) {
	text, err := statefile.ReadLinked(filepath.Join(dir, publicFile))
	return strings.TrimSpace(string(text)), err
}

// writeFile writes a file durably and atomically.
func writeFile(dir, name, text string, perm fs.FileMode) error {
	f, err := os.OpenFile(filepath.Join(dir, name+".tmp"), os.O_CREATE|os.O_TRUNC|os.O_WRONLY, perm)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), filepath.Join(dir, name)); err != nil {
		return err
	}
	return syncDir(dir)
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// RecordName returns the name of the record in dir, which is that of its key.
func RecordName(dir string) (string, error) {
	public, err := PublicKey(dir)
	if err != nil {
		return "", err
	}
	key, err := note.NewVerifier(public)
	if err != nil {
		return "", fmt.Errorf("public key of the audit record: %w", err)
	}
	return key.Name(), nil
}
