package server

import (
	"os"
	"strings"
	"testing"
)

// A call that does not change the state writes nothing.
func TestKeep(t *testing.T) {
	s := &shellState{dir: t.TempDir(), owner: identity{uid: os.Getuid(), gid: os.Getgid()}}
	keep := func(text string) string {
		t.Helper()
		if err := s.keep(text); err != nil {
			t.Fatal(err)
		}
		return s.current()
	}
	const a, b = "declare -x A=\"1\"\n", "declare -x A=\"2\"\n"
	mark := func(id string) string { return "declare -x " + marker + "=\"" + id + "\"\n" }

	first := keep(a + mark("c1.0"))
	if again := keep(a + mark("c2.0")); again != first {
		t.Errorf("the same again: got %s, want %s", again, first)
	}
	second := keep(b + mark("c3.0"))
	if second == first || string(s.read()) != b+mark("c3.0") {
		t.Errorf("a change: got %s with %q", second, s.read())
	}
	if err := s.restore(strings.NewReader(a)); err != nil {
		t.Fatal(err)
	}
	if third := keep(b + mark("c4.0")); third == "" || string(s.read()) != b+mark("c4.0") {
		t.Errorf("after a restored state: got %q, want what the call left", s.read())
	}
	if odd := "echo hello\n"; keep(odd) == "" || string(s.read()) != odd {
		t.Errorf("what is not declarations: got %q, want %q", s.read(), odd)
	}
}
