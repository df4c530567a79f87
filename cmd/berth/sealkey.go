package main

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// sealKey is the key under which clients carry what they cannot read, made at the
// first start. It is never replaced: what they carry would be lost to them.
func sealKey(state string) (key [32]byte, err error) {
	path := filepath.Join(state, "seal.key")
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		rand.Read(key[:]) // never fails
		return key, writeSecret(path, hex.EncodeToString(key[:])+"\n")
	}
	if err != nil {
		return key, err
	}
	raw, err := hex.DecodeString(strings.TrimSpace(string(text)))
	if err != nil || len(raw) != len(key) {
		return key, fmt.Errorf("%s is not a key of %d hexadecimal digits", path, 2*len(key))
	}
	return [32]byte(raw), nil
}

// writeSecret makes a file that only its owner reads, whole or not at all.
func writeSecret(path, text string) error {
	f, err := os.OpenFile(path+".new", os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.WriteString(text); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
