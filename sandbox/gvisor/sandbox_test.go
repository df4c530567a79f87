package gvisor

import (
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/berth-run/berth/sandbox"
)

// fakeSandbox returns a sandbox that is only a directory.
func fakeSandbox(t *testing.T) instance {
	t.Helper()
	dir := t.TempDir()
	s := instance{id: "fake", dir: dir, wall: &group{dir: dir}}
	for _, sub := range []string{"run", "run/guest", "run/log"} {
		if err := os.Mkdir(s.path(sub), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// TestDialStaysInside replaces the guest's socket by files that a hostile sandbox may create.
func TestDialStaysInside(t *testing.T) {
	elsewhere := filepath.Join(t.TempDir(), "host.sock")
	l, err := net.Listen("unix", elsewhere)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()

	for _, tt := range []struct {
		name string
		make func(s instance) error
	}{
		{"LinkToHostSocket", func(s instance) error { return os.Symlink(elsewhere, s.path("run/guest/guest.sock")) }},
		{"File", func(s instance) error { return os.WriteFile(s.path("run/guest/guest.sock"), nil, 0o666) }},
		{"Directory", func(s instance) error { return os.Mkdir(s.path("run/guest/guest.sock"), 0o777) }},
		{"DirectoryIsLink", func(s instance) error {
			if err := os.Symlink(elsewhere, filepath.Join(filepath.Dir(elsewhere), "guest.sock")); err != nil {
				return err
			}
			if err := os.Remove(s.path("run/guest")); err != nil {
				return err
			}
			return os.Symlink(filepath.Dir(elsewhere), s.path("run/guest"))
		}},
		{"Nothing", func(instance) error { return nil }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := fakeSandbox(t)
			if err := tt.make(s); err != nil {
				t.Fatal(err)
			}
			if conn, err := s.dial(t.Context()); err == nil {
				conn.Close()
				t.Error("dial: got a connection, want an error")
			}
		})
	}

	t.Run("OK", func(t *testing.T) {
		s := fakeSandbox(t)
		l, err := net.Listen("unix", s.path("run/guest/guest.sock"))
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		conn, err := s.dial(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		conn.Close()
	})
}

func TestLastWords(t *testing.T) {
	s := fakeSandbox(t)
	if got := s.lastWords(); got != "" {
		t.Errorf("without logs: got %q, want none", got)
	}
	long := strings.Repeat("x", 2*wordsLimit) + "\n\x1b[31mred\x00\xff end\n"
	if err := os.WriteFile(s.path("run/log/runsc.log"), []byte(long), 0o600); err != nil {
		t.Fatal(err)
	}
	got := s.lastWords()
	if !strings.HasPrefix(got, "; runsc.log: xxx") || !strings.HasSuffix(got, " [31mred end") {
		t.Errorf("got %.20q … %.20q, want printable text only", got, got[len(got)-20:])
	}
	if len(got) > wordsLimit+20 {
		t.Errorf("got %d bytes, want at most %d", len(got), wordsLimit+20)
	}
}

func TestGuestEnv(t *testing.T) {
	got := guestEnv(sandbox.Spec{
		Env:    []string{"A=1", "BERTH_PIDS_LIMIT=1000000", "A=2", "PATH=/x"},
		Limits: sandbox.Limits{Memory: 1 << 30, PIDs: 80},
	})
	want := []string{
		"BERTH_GUEST_SOCKET=/.berth/run/guest.sock",
		"BERTH_MEMORY_LIMIT=1006632960",
		"BERTH_PIDS_LIMIT=70",
		"BERTH_WATCH=1",
		"A=1",
		"PATH=/x",
	}
	if !slices.Equal(got, want) {
		t.Errorf("guestEnv: got %q, want %q", got, want)
	}
}
