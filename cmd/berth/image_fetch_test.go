package main

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// The signers of install.sh or the operator count before a package's; without any, the error names the file to make.
func TestReleaseSigners(t *testing.T) {
	dir := t.TempDir()
	defer func(former []string) { signersFiles = former }(signersFiles)
	operator, packaged := filepath.Join(dir, "etc"), filepath.Join(dir, "usr")
	signersFiles = []string{operator, packaged}

	if file, _, err := new(releaseFlags).readSigners(); !errors.Is(err, os.ErrNotExist) || file != operator {
		t.Errorf("without files: got %s, %v", file, err)
	}
	for _, file := range []string{packaged, operator} {
		if err := os.WriteFile(file, []byte(file), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, text, err := new(releaseFlags).readSigners(); err != nil || got != file || string(text) != file {
			t.Errorf("got %s with %q, %v; want %s", got, text, err, file)
		}
	}
	if file, _, err := (&releaseFlags{signers: filepath.Join(dir, "other")}).readSigners(); !errors.Is(err, os.ErrNotExist) ||
		file != filepath.Join(dir, "other") {
		t.Errorf("a named file: got %s, %v", file, err)
	}
}
