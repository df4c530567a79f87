package sandbox

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

func TestInstance(t *testing.T) {
	root := t.TempDir()
	at := func(dir string) string { return filepath.Join(root, dir) }
	if err := os.Mkdir(at("original"), 0o700); err != nil {
		t.Fatal(err)
	}
	discards := 0
	name := func(dir string) string {
		t.Helper()
		got, err := Instance(at(dir), func() error { discards++; return nil })
		if err != nil || len(got) != 12 {
			t.Fatalf("Instance: got %q, %v", got, err)
		}
		return got
	}
	copyTo := func(to string, from ...string) {
		t.Helper()
		if out, err := exec.Command("cp", append(append([]string{"-a"}, from...),
			at(to))...).CombinedOutput(); err != nil {
			t.Fatalf("cp: %v: %s", err, out)
		}
	}
	original := name("original")
	if name("original") != original || discards != 0 {
		t.Errorf("the name changed: %d discards", discards)
	}

	copyTo("copy", at("original"))
	failed := errors.New("no")
	if _, err := Instance(at("copy"), func() error { return failed }); !errors.Is(err, failed) {
		t.Errorf("a copy that cannot discard: got %v", err)
	}
	copied := name("copy")
	if copied == original || discards != 1 {
		t.Errorf("a copy has %q, the original %q; %d discards", copied, original, discards)
	}
	if name("copy") != copied || discards != 1 {
		t.Errorf("a copy's name changed; %d discards", discards)
	}

	if err := os.Rename(at("original"), at("moved")); err != nil {
		t.Fatal(err)
	}
	if got := name("moved"); got != original || discards != 1 {
		t.Errorf("after a move: got %q, want %q; %d discards", got, original, discards)
	}
	// The files of a backup were restored in place of the original.
	if err := os.Mkdir(at("original"), 0o700); err != nil {
		t.Fatal(err)
	}
	copyTo("original", at("moved/instance"), at("moved/instance.directory"))
	if got := name("original"); got == original || discards != 2 {
		t.Errorf("a copy in place of the original has its name; %d discards", discards)
	}

	if err := os.Mkdir(at("bound"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount(at("moved"), at("bound"), "", unix.MS_BIND, ""); errors.Is(err, unix.EPERM) {
		return
	} else if err != nil {
		t.Fatal(err)
	}
	defer unix.Unmount(at("bound"), unix.MNT_DETACH)
	if got := name("bound"); got != original || discards != 2 {
		t.Errorf("by a bind mount: got %q, want %q; %d discards", got, original, discards)
	}
	if err := Discard(root); err == nil {
		t.Error("Discard of a directory with a mount: got no error")
	}
}

// A name from an earlier version without the identity file stays.
func TestInstanceOfFormerVersion(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "instance"), []byte("0123456789ab"), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if got, err := Instance(dir, func() error {
			return errors.New("it is not a copy")
		}); err != nil || got != "0123456789ab" {
			t.Errorf("got %q, %v", got, err)
		}
	}
}

func TestMountedBelow(t *testing.T) {
	const info = "29 1 8:1 / / rw - ext4 /dev/sda1 rw\n40 29 0:5 / /srv/my\\040state/x rw shared:1 - tmpfs berth rw\n41 29 0:5 / /srv/other rw - tmpfs berth rw\n"
	for dir, want := range map[string]string{"/srv/my state": "/srv/my state/x", "/srv/my state/x": "", "/srv/oth": "",
		"/srv/other": ""} {
		if got := mountedBelow([]byte(info), dir); got != want {
			t.Errorf("%s: got %q, want %q", dir, got, want)
		}
	}
}
