package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"golang.org/x/term"
)

// Output of sandboxes and models reaches terminals here. A control sequence in it could fill the
// clipboard, retitle the window or clear the screen, and a character that reverses the direction
// of text can disguise a name. So text for people contains no control characters but newline and
// tab, and names contain none at all.

// printable returns r, or -1 if r is a control character other than newline and tab or changes the
// order in which later text is shown.
func printable(r rune) rune {
	if r == '\n' || r == '\t' || !controls(r) {
		return r
	}
	return -1
}

// controls reports whether a terminal obeys a character instead of showing it.
func controls(r rune) bool {
	return unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) || r == '\u2028' || r == '\u2029'
}

// inLine returns text that is safe within a line.
func inLine(s string) string {
	return strings.NewReplacer("\n", " ", "\t", " ").Replace(strings.Map(printable, s))
}

func firstLine(s string) string {
	s, rest, _ := strings.Cut(strings.TrimSpace(s), "\n")
	if rest != "" {
		s += " …"
	}
	return strings.Map(printable, s)
}

// onTerminal returns a filter for f if f is a terminal, and f otherwise: files and pipes receive
// every byte.
func onTerminal(f *os.File) io.Writer {
	if term.IsTerminal(int(f.Fd())) {
		return &filter{w: f}
	}
	return f
}

// A filter is a writer that removes control characters. Writes may end within a character. It is
// safe for concurrent use.
type filter struct {
	w    io.Writer
	json bool // escape control characters as in JSON strings instead of removing them

	mu     sync.Mutex
	broken []byte // start of an incomplete character
}

func (f *filter) Write(p []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	text := append(f.broken, p...)
	end := len(text)
	for i := max(0, end-utf8.UTFMax+1); i < end; i++ {
		if utf8.RuneStart(text[i]) && !utf8.FullRune(text[i:]) {
			end = i
			break
		}
	}
	f.broken = append([]byte(nil), text[end:]...)
	if _, err := io.WriteString(f.w, f.text(string(text[:end]))); err != nil {
		return 0, err
	}
	return len(p), nil
}

func (f *filter) text(s string) string {
	if !f.json {
		return strings.Map(printable, s)
	}
	var b strings.Builder
	for _, r := range s {
		if printable(r) < 0 {
			fmt.Fprintf(&b, `\u%04x`, r)
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}
