package guest_test

import (
	"context"
	"errors"
	"io/fs"
	"strings"
	"testing"
	"time"

	"github.com/berth-run/berth/guest"
)

// reads returns the output of a process until it contains words.
func reads(t *testing.T, p *guest.Process, words string) string {
	t.Helper()
	var seen strings.Builder
	for ev, err := range p.Events() {
		if err != nil || ev.Ended {
			t.Fatalf("%v, ended: %v, after %q", err, ev.Ended, seen.String())
		}
		if seen.Write(ev.Stdout); strings.Contains(seen.String(), words) {
			return seen.String()
		}
	}
	return ""
}

// TestJoin: a terminal continues without its client, and another one sees what it has shown.
func TestJoin(t *testing.T) {
	c := newBox(t).client(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	start := func(tag string) *guest.Process {
		p, err := c.Start(ctx, guest.ProcessRequest{Cmd: "bash", Args: []string{"--norc", "-i"},
			TTY: &guest.Size{Cols: 80, Rows: 24}, In: true, Tag: tag})
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	other := start("")
	defer other.Leave()
	p := start(guest.TerminalTag + "-1")
	if err := p.Write(t.Context(), []byte("X=kept; echo $((6*7))\n")); err != nil {
		t.Fatal(err)
	}
	reads(t, p, "42\r\n") // and leaves

	found, err := c.Terminals(t.Context())
	if err != nil || len(found) != 1 || found[0].PID != p.PID || strings.Join(found[0].Command,
		" ") != "bash --norc -i" {
		t.Fatalf("got %+v, %v, want the tagged process", found, err)
	}
	second, err := c.Join(ctx, p.PID)
	if err != nil {
		t.Fatal(err)
	}
	third, err := c.Join(ctx, p.PID)
	if err != nil {
		t.Fatal(err)
	}
	if err := second.Write(t.Context(), []byte("echo got-$X\n")); err != nil {
		t.Fatal(err)
	}
	for _, joined := range []*guest.Process{second, third} {
		seen := reads(t, joined, "got-kept\r\n")
		if strings.Count(seen, "42\r\n") != 1 {
			t.Errorf("got %q, want what the terminal has shown, once", seen)
		}
	}
	if err := p.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	if found, err := c.Terminals(t.Context()); err != nil || len(found) != 0 {
		t.Errorf("after its end: got %v, %v", found, err)
	}
	if _, err := c.Join(ctx, 999_999); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no terminal: got %v", err)
	}
}
