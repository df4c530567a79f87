package drivertest

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/sandbox"
)

// mountVolume mounts a directory with the flags of a volume's file system on the host.
func mountVolume(t *testing.T, dir string) error {
	if err := errors.Join(os.Chown(dir, 1000, 1000), unix.Mount(dir, dir, "", unix.MS_BIND, "")); err != nil {
		return err
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return os.NewSyscallError("mount", unix.Mount("", dir, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_NODEV|
		unix.MS_NOSUID, ""))
}

// mounts checks that sandboxes share directories of the host, and nothing else of it.
func (s *suite) mounts(t *testing.T) {
	d := s.open(t)
	dir := StateDir(t)
	source, secret := filepath.Join(dir, "volume"), filepath.Join(dir, "secret")
	if err := errors.Join(os.Mkdir(source, 0o755), os.WriteFile(secret, []byte("of the host"), 0o644)); err != nil {
		t.Fatal(err)
	}
	spec := func(id string, readOnly bool) sandbox.Spec {
		return sandbox.Spec{ID: id, Template: s.Template,
			Mounts: []sandbox.Mount{{Name: "data", Path: source, ReadOnly: readOnly}}}
	}
	if !s.features.Mounts {
		if err := d.Create(t.Context(), spec("none", false)); !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("Create with a mount: got %v, want %v", err, errors.ErrUnsupported)
		}
		return
	}
	if err := mountVolume(t, source); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"", ".", "..", "a/b", "A", strings.Repeat("x", 64)} {
		bad := spec("bad", false)
		bad.Mounts[0].Name = name
		if err := d.Create(t.Context(), bad); err == nil {
			t.Errorf("Create with a mount of the name %q: got no error", name)
		}
	}

	a, b, r := Start(t, d, spec("a", false)), Start(t, d, spec("b", false)), Start(t, d, spec("r", true))
	a.Sh(`echo from a >/mnt/volumes/data/a; mkdir /mnt/volumes/data/dir`)
	if got := b.Sh(
		`cat /mnt/volumes/data/a; echo from b >>/mnt/volumes/data/a; echo b >/mnt/volumes/data/dir/b`); got.Stdout != "from a\n" ||
		got.Code != 0 {
		t.Errorf("another sandbox reads a file from the first: got %+v", got)
	}
	if got := a.Sh(
		`cat /mnt/volumes/data/a /mnt/volumes/data/dir/b; ls /mnt/volumes`); got.Stdout != "from a\nfrom b\nb\ndata\n" {
		t.Errorf("the first reads a file from another sandbox: got %+v", got)
	}
	if got := r.Sh(
		`cat /mnt/volumes/data/a; ! touch /mnt/volumes/data/x && ! sudo rm /mnt/volumes/data/a && ! sudo mount -o remount,rw /mnt/volumes/data`); got.Code != 0 ||
		!strings.HasPrefix(got.Stdout, "from a\n") {
		t.Errorf("a sandbox with a read-only mount: got %+v", got)
	}

	s.hostileVolume(t, source, secret, a, b, r)

	// Its content outlives the sandboxes.
	for _, box := range []*Box{a, b, r} {
		if err := d.Destroy(context.Background(), box.ID); err != nil {
			t.Errorf("Destroy: %v", err)
		}
	}
	if got := Start(t, d, spec("later", false)).Sh(`cat /mnt/volumes/data/a`); got.Stdout != "from a\nfrom b\n" {
		t.Errorf("a later sandbox: got %+v", got)
	}
}

// hostileVolume lets a put hostile content into the volume at source, and checks that it harms
// neither the host, which has the file secret, nor b and r, which share the volume.
func (s *suite) hostileVolume(t *testing.T, source, secret string, a, b, r *Box) {
	// These are links to outside files, devices, and setuid programs.
	a.Sh(`cd /mnt/volumes/data; ln -s ` + secret + ` absolute; ln -s ../secret up; ln -s ../../../../../../../.. root
		sudo cp /bin/sh suid; sudo chmod 4755 suid; sudo mknod disk b 254 0; sudo mknod null c 1 3; sudo chmod 666 disk null; mkfifo pipe`)
	for _, path := range []string{"absolute", "up", "root" + secret, "dir/../../../../secret", "../secret"} {
		if got := b.Sh(`cat /mnt/volumes/data/` + path); got.Code == 0 || strings.Contains(got.Stdout, "of the host") {
			t.Errorf("%s leads out of the volume: got %+v", path, got)
		}
	}
	entries, err := os.ReadDir(source)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Type()&(os.ModeDevice|os.ModeCharDevice) != 0 {
			if f, err := os.Open(filepath.Join(source, e.Name())); err == nil {
				f.Close()
				t.Errorf("a device exists on the host: %s", e)
			}
		}
	}
	for _, box := range []*Box{a, b, r} {
		if got := box.Sh(
			`cd /mnt/volumes/data; ./suid -p -c 'id -u'; ./suid -p -c 'exit 3'; echo $?`); got.Stdout != "1000\n3\n" &&
			!s.OwnersRun {
			t.Errorf("%s: a setuid program of root: got %+v", box.ID, got)
		}
		if got := box.Sh(
			`cd /mnt/volumes/data; test -b disk && sudo head -c 1 disk || test -c null && sudo sh -c 'echo >null'`); got.Code == 0 {
			t.Errorf("%s: a device in a volume: got %+v", box.ID, got)
		}
	}
	if got := b.Sh(`id -u; rm -f /mnt/volumes/data/suid`); got.Code != 0 {
		t.Errorf("afterwards: got %+v", got)
	}
}
