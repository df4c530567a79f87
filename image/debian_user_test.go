package image

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The error about subordinate ids names a command that provides them, and ids that are free.
func TestSubordinate(t *testing.T) {
	const passwd = "root:x:0:0::/root:/bin/sh\nada:x:1001:1001::/home/ada:/bin/sh\n"
	for name, c := range map[string]struct{ subuid, subgid, want string }{
		"enough": {"bob:100000:65536\nada:165536:65536\n", "ada:165536:65536\n", ""},
		"none":   {"", "", "usermod --add-subuids 100000-165535 --add-subgids 100000-165535 ada"},
		"of others": {"bob:100000:65536\n", "bob:100000:65536\neve:165536:1000\n",
			"usermod --add-subuids 166536-232071 --add-subgids 166536-232071 ada"},
		"no groups": {"ada:100000:65536\n", "", "usermod --add-subuids 165536-231071 --add-subgids 165536-231071 ada"},
		"few": {"ada:100000:1000\nada:200000:65536\n", "ada:100000:65536\n",
			"the first line of ada in /etc/subuid has 1000"},
		"malformed": {"ada\nada:x:y\n\n", "ada:1:2:3\n", "usermod --add-subuids 100000-165535"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for file, text := range map[string]string{"passwd": passwd, "subuid": c.subuid, "subgid": c.subgid} {
				if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			err := checkSubordinate(dir, "1001")
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("got %v, want %q", err, c.want)
			}
			if err != nil && strings.Contains(err.Error(), "\n") {
				t.Errorf("more than one line: %v", err)
			}
		})
	}
	t.Setenv("USER", "")
	if err := checkSubordinate(t.TempDir(), "54321"); err == nil || !strings.Contains(err.Error(),
		"user id 54321 has none") {
		t.Errorf("without an account: got %v", err)
	}
}

// A build uses only a temporary directory that subordinate ids can reach.
func TestSharedTemp(t *testing.T) {
	top, err := os.MkdirTemp("/var/tmp", "berth-shared-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(top) })
	open, closed := filepath.Join(top, "open"), filepath.Join(top, "closed")
	below := filepath.Join(closed, "below")
	if err := errors.Join(os.Chmod(top, 0o755), os.MkdirAll(open, 0o755), os.MkdirAll(below, 0o755),
		os.Chmod(closed, 0o700)); err != nil {
		t.Fatal(err)
	}
	for dir, want := range map[string]string{open: open, closed: "/var/tmp", below: "/var/tmp", "": "/var/tmp",
		"tmp": "/var/tmp", "/no/such": "/var/tmp"} {
		if got := sharedTemp(dir); got != want {
			t.Errorf("%q: got %s, want %s", dir, got, want)
		}
	}
}
