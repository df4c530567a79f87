package main

import (
	"io"
	"os"
	"testing"

	"github.com/creack/pty"
)

// What cannot be undone is done on a terminal only if the answer is the whole name.
func TestConfirm(t *testing.T) {
	for answer, want := range map[string]bool{"proj_a\n": true, "proj_ab\n": false, "y\n": false, "\n": false} {
		terminal, tty, err := pty.Open()
		if err != nil {
			t.Skipf("no pseudo-terminals: %v", err)
		}
		if _, err := io.WriteString(terminal, answer); err != nil {
			t.Fatal(err)
		}
		old := os.Stdin
		os.Stdin = tty
		err = confirm("Archive?", "proj_a")
		os.Stdin = old
		terminal.Close()
		tty.Close()
		if (err == nil) != want {
			t.Errorf("%q: got %v", answer, err)
		}
	}
}
