// Command pack compresses programs for embedding. "pack DIRECTORY PROGRAMS" writes PROGRAM.zst and
// PROGRAM.sha256, the digest of the uncompressed program, to the directory. It skips programs that
// are packed already.
package main

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/klauspost/compress/zstd"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "pack:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) < 2 {
		return errors.New("usage: pack DIRECTORY PROGRAMS")
	}
	for _, program := range args[1:] {
		if err := pack(program, filepath.Join(args[0], filepath.Base(program))); err != nil {
			return err
		}
	}
	return nil
}

func pack(program, to string) error {
	plain, err := os.ReadFile(program)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(plain)
	text := hex.EncodeToString(sum[:]) + "\n"
	if packed, err := os.ReadFile(to + ".sha256"); err == nil && string(packed) == text {
		return nil
	}
	w, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedBestCompression))
	if err != nil {
		return err
	}
	// The digest comes last: it marks the program as complete.
	if err := os.WriteFile(to+".zst", w.EncodeAll(plain, nil), 0o644); err != nil {
		return err
	}
	return os.WriteFile(to+".sha256", []byte(text), 0o644)
}
