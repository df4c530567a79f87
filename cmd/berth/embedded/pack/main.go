// Command pack compresses a program for embedding: pack SOURCE DESTINATION.
package main

import (
	"fmt"
	"os"

	"github.com/klauspost/compress/zstd"
)

func main() {
	if err := pack(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "pack:", err)
		os.Exit(1)
	}
}

func pack(args []string) error {
	if len(args) != 2 {
		return fmt.Errorf("usage: pack SOURCE DESTINATION")
	}
	plain, err := os.ReadFile(args[0])
	if err != nil {
		return err
	}
	w, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedDefault))
	if err != nil {
		return err
	}
	return os.WriteFile(args[1], w.EncodeAll(plain, nil), 0o644)
}
