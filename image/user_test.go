package image

import (
	"archive/tar"
	"bytes"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/layer"
)

// userEnv names the directory in which the test program, run as an ordinary user, makes a
// template.
const userEnv = "BERTH_TEST_USER_LIBRARY"

// An ordinary user and root make the same template from an image.
func TestAddAsUser(t *testing.T) {
	if dir := os.Getenv(userEnv); dir != "" {
		addAsUser(t, dir)
		return
	}
	needRoot(t)
	const somebody = 54321
	dir, err := os.MkdirTemp("/var/tmp", "berth-user-") // a directory that other users can reach
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	program := filepath.Join(dir, "test")
	raw, err := os.ReadFile(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(program, raw, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(dir, somebody, somebody); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, "-test.run=^TestAddAsUser$", "-test.v")
	cmd.Dir = dir
	cmd.Env = []string{userEnv + "=" + filepath.Join(dir, "library"), "HOME=" + dir, "TMPDIR=" + dir}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: somebody, Gid: somebody}}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	want, err := open(t, t.TempDir()).Add(t.Context(), "app", ownedImage(t), AddOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(out), want.Digest) {
		t.Errorf("as a user: got another template than root's, %s\n%s", want.Digest, out)
	}
}

// ownedImage returns an image whose files have various owners.
func ownedImage(t *testing.T) Image {
	t.Helper()
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, h := range []tar.Header{
		{Typeflag: tar.TypeReg, Name: "bin/sh", Mode: 0o755},
		{Typeflag: tar.TypeReg, Name: "bin/su", Mode: 0o4755},
		{Typeflag: tar.TypeReg, Name: "etc/shadow", Mode: 0o640, Gid: 42},
		{Typeflag: tar.TypeReg, Name: "etc/sudoers.d/README", Mode: 0o440},
		{Typeflag: tar.TypeReg, Name: "etc/closed", Mode: 0},
		{Typeflag: tar.TypeDir, Name: "srv", Mode: 0o2550, Uid: 33, Gid: 33},
		{Typeflag: tar.TypeReg, Name: "srv/file", Mode: 0o604, Uid: 33, Gid: 34},
		{Typeflag: tar.TypeReg, Name: "usr/local/bin/tool", Mode: 0o6755},
		{Typeflag: tar.TypeSymlink, Name: "usr/bin", Linkname: "../bin", Mode: 0o777},
	} {
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return newOCI(buf.Bytes()).image()
}

// addAsUser makes templates, and prints their digest.
func addAsUser(t *testing.T, dir string) {
	l, err := Open(dir, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	made, err := l.Add(t.Context(), "app", ownedImage(t), AddOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Log(made.Digest)
	for path, want := range map[string]uint32{"bin/su": 0o755, "srv": 0o750, "srv/file": 0o604, "etc/closed": 0o600} {
		var st unix.Stat_t
		if err := unix.Lstat(filepath.Join(made.Rootfs, path), &st); err != nil {
			t.Fatal(err)
		}
		if got := st.Mode & 0o7777; got != want {
			t.Errorf("%s on the disk: got mode %o, want %o", path, got, want)
		}
	}

	// A derived template has the same owners.
	var change bytes.Buffer
	w := tar.NewWriter(&change)
	if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "srv/new", Mode: 0o600, Uid: 7,
		Gid: 8}); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	derived, err := l.Derive(t.Context(), "derived", Change{Template: made.Digest}, &change)
	if err != nil {
		t.Fatal(err)
	}
	owners, err := layer.OwnersOf(derived.Rootfs)
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]unix.Stat_t{
		"srv": {Uid: 33, Gid: 33, Mode: unix.S_IFDIR | 0o2550}, "srv/file": {Uid: 33, Gid: 34,
			Mode: unix.S_IFREG | 0o604},
		"srv/new": {Uid: 7, Gid: 8, Mode: unix.S_IFREG | 0o600}, "bin/su": {Mode: unix.S_IFREG | 0o4755},
		"usr/local/bin/tool": {Uid: 1000, Gid: 1000, Mode: unix.S_IFREG | 0o6755},
	} {
		got, err := owners.Lstat(filepath.Join(derived.Rootfs, path))
		if err != nil || got.Uid != want.Uid || got.Gid != want.Gid || got.Mode != want.Mode {
			t.Errorf("%s: got %d:%d %o, %v, want %d:%d %o", path, got.Uid, got.Gid, got.Mode, err, want.Uid, want.Gid,
				want.Mode)
		}
	}
	for _, ref := range []string{"app", "derived"} { // its user can remove it
		if err := l.Remove(ref, nil); err != nil {
			t.Error(err)
		}
	}
}
