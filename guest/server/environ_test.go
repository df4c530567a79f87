package server

import (
	"os"
	"slices"
	"testing"
)

// Programs use UTF-8, unless the sandbox has another locale.
func TestLocale(t *testing.T) {
	const utf8 = "LC_CTYPE=C.UTF-8"
	for _, name := range []string{"LANG", "LC_ALL", "LC_CTYPE"} {
		t.Setenv(name, "")
		os.Unsetenv(name)
	}
	s := &Server{}
	if env := s.environ(identity{}); !slices.Contains(env, utf8) {
		t.Errorf("without a locale: got %q, want %s among it", env, utf8)
	}
	t.Setenv("LANG", "de_DE.UTF-8")
	if env := s.environ(identity{}); slices.Contains(env, utf8) {
		t.Errorf("with one: got %q, want no %s", env, utf8)
	}
	os.Unsetenv("LANG")
	s.environment.Store(&[]string{"LC_ALL=C"})
	if env := s.environ(identity{}); slices.Contains(env, utf8) {
		t.Errorf("with one that came later: got %q, want no %s", env, utf8)
	}
}
