package layer_test

import (
	"archive/tar"
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/beneath"
	"github.com/berth-run/berth/layer"
)

// A user other than root who applies a layer and diffs the resulting tree gets the same layer.
func TestNotes(t *testing.T) {
	if dir := os.Getenv("BERTH_TEST_NOTES"); dir != "" {
		applyWithNotes(t, dir)
		return
	}
	needRoot(t)
	from, to := t.TempDir(), t.TempDir()
	sh(t, from, before+after+"\nchmod 2750 usr/lib; chmod 0 etc/same; rm new/null; mkdir -m 0 new/closed")
	if err := unix.Setxattr(filepath.Join(from, "new/two"), "user.berth.stat", []byte("0 0 4755"), 0); err != nil {
		t.Fatal(err)
	}
	want := whole(t, from)
	if bytes.Contains(want, []byte("user.berth.stat")) {
		t.Error("the archive has notes")
	}
	const somebody = 54321
	archive := filepath.Join(to, "archive")
	root := filepath.Join(to, "root")
	for _, step := range []func() error{
		func() error { return os.WriteFile(archive, want, 0o644) },
		func() error { return os.Chown(archive, somebody, somebody) },
		func() error { return os.Mkdir(root, 0o755) },
		func() error { return os.Chown(root, somebody, somebody) },
	} {
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
	for dir := to; dir != os.TempDir() && dir != "/"; dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	self, err := os.Open("/proc/self/exe") // other users cannot access its path
	if err != nil {
		t.Fatal(err)
	}
	defer self.Close()
	cmd := exec.Command("/proc/self/fd/3", "-test.run=^TestNotes$", "-test.v")
	cmd.ExtraFiles = []*os.File{self}
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "BERTH_TEST_NOTES="+to)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: somebody, Gid: somebody}}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	again, err := os.ReadFile(archive)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(headers(t, want), headers(t, again)); diff != "" {
		t.Errorf("the tree with notes (-want +got):\n%s", diff)
	}
	for _, path := range []string{"usr/bin/tool", "usr/lib", "new"} {
		fi, err := os.Stat(filepath.Join(root, path))
		if err != nil {
			t.Fatal(err)
		}
		if fi.Mode()&(os.ModeSetuid|os.ModeSetgid|os.ModeSticky) != 0 {
			t.Errorf("%s: got %v on the disk", path, fi.Mode())
		}
	}
}

// applyWithNotes applies dir/archive to dir/root and writes the tree to dir/archive.
func applyWithNotes(t *testing.T, dir string) {
	raw, err := os.ReadFile(filepath.Join(dir, "archive"))
	if err != nil {
		t.Fatal(err)
	}
	root, err := beneath.Open(filepath.Join(dir, "root"))
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	if err := (&layer.Applier{Root: root, Notes: true}).Apply(bytes.NewReader(raw)); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "archive"), whole(t, filepath.Join(dir, "root")), 0o644); err != nil {
		t.Fatal(err)
	}
}

// whole returns a tree as a layer above an empty tree.
func whole(t *testing.T, root string) []byte {
	t.Helper()
	var diff, made bytes.Buffer
	w := tar.NewWriter(&diff)
	if err := (&layer.Differ{Root: root}).Diff(w); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := layer.Make(&made, &diff, "", layer.Limits{}); err != nil {
		t.Fatal(err)
	}
	return made.Bytes()
}

// headers returns the headers of an archive, without entries that cannot have notes.
func headers(t *testing.T, archive []byte) (all []tar.Header) {
	t.Helper()
	in := tar.NewReader(bytes.NewReader(archive))
	for h, err := in.Next(); err == nil; h, err = in.Next() {
		if h.Typeflag == tar.TypeSymlink || h.Typeflag == tar.TypeFifo {
			h.Uid, h.Gid = 0, 0
		}
		if h.Typeflag == tar.TypeSymlink {
			h.Mode = 0o777
		}
		h.Uname, h.Gname, h.Format = "", "", 0
		all = append(all, *h)
	}
	return all
}
