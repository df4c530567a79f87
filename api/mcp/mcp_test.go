package mcp

import (
	"bufio"
	"context"
	"fmt"
	"path"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/berth-run/berth"
)

// The stored events of a session are bounded, in streams and in bytes.
func TestEvents(t *testing.T) {
	t.Parallel()
	ended := ""
	e := &events{sessions: map[string]*history{}, ended: func(id string) { ended = id }}
	ctx := context.Background()
	read := func(id string, after int) ([]string, error) {
		var all []string
		for data, err := range e.After(ctx, "s", id, after) {
			if err != nil {
				return nil, err
			}
			all = append(all, string(data))
		}
		return all, nil
	}
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	check(e.Open(ctx, "s", ""))
	check(e.Append(ctx, "s", "", []byte("standing")))
	for i := range 10_000 {
		id := fmt.Sprint("stream", i)
		check(e.Open(ctx, "s", id))
		check(e.Append(ctx, "s", id, []byte("event")))
	}
	if got, err := read("stream9999", -1); err != nil || !slices.Equal(got, []string{"event"}) {
		t.Errorf("the newest stream: %q, %v", got, err)
	}
	if _, err := read("stream1", -1); err == nil {
		t.Error("an old stream can be resumed")
	}
	if got, err := read("", -1); err != nil || !slices.Equal(got, []string{"standing"}) {
		t.Errorf("the session's own stream: %q, %v", got, err)
	}
	if h := e.sessions["s"]; len(h.streams) != maxStreams+1 {
		t.Errorf("%d streams are stored", len(h.streams))
	}
	for range 100 {
		check(e.Append(ctx, "s", "stream9999", make([]byte, 100<<10)))
	}
	if h := e.sessions["s"]; h.size > maxStored {
		t.Errorf("%d bytes are stored", h.size)
	}
	if _, err := read("stream9999", 0); err == nil {
		t.Error("dropped events can be resumed")
	}
	if got, err := read("stream9999", 99); err != nil || len(got) != 1 {
		t.Errorf("the last event: %d, %v", len(got), err)
	}
	check(e.SessionClosed(ctx, "s"))
	check(e.Append(ctx, "s", "stream9999", []byte("late")))
	if len(e.sessions) != 0 || ended != "s" {
		t.Errorf("%d sessions, %q has ended", len(e.sessions), ended)
	}
}

// FuzzPath resolves a path: the result is absolute and clean.
func FuzzPath(f *testing.F) {
	for _, s := range []string{"", "a", "../../etc/passwd", "/etc/./passwd", "a\x00b", "//x", "~", "\xff"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, name string) {
		got, err := pathOf(name)
		if err == nil && (!path.IsAbs(got) || path.Clean(got) != got || strings.ContainsRune(got, 0)) {
			t.Errorf("%q is %q", name, got)
		}
		p := place{path: got, dir: "/work"}
		if err == nil && p.seen(p.real()) != got && !strings.HasPrefix(got, "/work") {
			t.Errorf("%q is seen as %q", got, p.seen(p.real()))
		}
	})
}

// FuzzURI reads the URI of a file: that of what was read is the same file.
func FuzzURI(f *testing.F) {
	for _, s := range []string{"berth://cntr_1/mnt/data/a%20b", "berth://cntr_1/../x", "file:///etc/passwd", "berth://x/y",
		"berth://user@cntr_1/a", "berth://cntr_1:80/a", "berth://cntr_1/a?b#c", "berth://cntr_1/%00"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, uri string) {
		id, name, err := fileOf(uri)
		if err != nil {
			return
		}
		again, same, err := fileOf(uriOf(id, name))
		if err != nil || again != id || same != name || !strings.HasPrefix(string(id), berth.PrefixContainer) {
			t.Errorf("%q is %s %q, then %s %q, %v", uri, id, name, again, same, err)
		}
	})
}

// FuzzLines reads a text in parts: they are the text.
func FuzzLines(f *testing.F) {
	f.Add("a\nb\n\nc", 1)
	f.Add(strings.Repeat("x\n", 1000), 7)
	f.Add("no end", 3)
	f.Fuzz(func(t *testing.T, s string, limit int) {
		limit = max(1, limit%100)
		if !utf8.ValidString(s) || len(s) > 10_000 {
			return
		}
		var all strings.Builder
		for first := 1; first > 0; {
			part, next, err := lines(bufio.NewReader(strings.NewReader(s)), first, limit)
			if err != nil || next != 0 && next != first+limit || strings.Count(part, "\n") > limit {
				t.Fatalf("%d lines from %d: %q, %d, %v", limit, first, part, next, err)
			}
			all.WriteString(part)
			first = next
		}
		if all.String() != s {
			t.Errorf("%q was read as %q", s, all.String())
		}
	})
}

// FuzzMatches reads the output of grep from a hostile container.
func FuzzMatches(f *testing.F) {
	f.Add([]byte("/a\x001:x\n/b\x00y:z\n\x00\n::\n/c\x007"), 2)
	f.Fuzz(func(t *testing.T, output []byte, most int) {
		most = max(1, most%100)
		out, content := matches(place{}, &processResult{stdout: output}, most)
		if len(out.Matches) > most || len(content) != 1 {
			t.Fatalf("%d matches", len(out.Matches))
		}
		for _, m := range out.Matches {
			if !utf8.ValidString(m.Text) || !utf8.ValidString(m.Path) || len(m.Text) > maxLine*3+3 {
				t.Errorf("match %+v", m)
			}
		}
	})
}
