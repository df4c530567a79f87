package erofs

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/layer"
)

// plant creates a tree with the difficult cases.
func plant(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	write := func(name, content string) { must(os.WriteFile(filepath.Join(root, name), []byte(content), 0o640)) }
	must(os.MkdirAll(filepath.Join(root, "a/b/c"), 0o750))
	must(os.Mkdir(filepath.Join(root, "many"), 0o755))
	for i := range 1000 {
		write(fmt.Sprintf("many/%04d-%s", i, strings.Repeat("n", i%200)), strings.Repeat("x", i*13%5000))
	}
	write("empty", "")
	write("block", strings.Repeat("b", blockSize))
	write("!before-the-dots", "1")
	write("large", strings.Repeat("0123456789", 1<<18))
	must(os.Link(filepath.Join(root, "large"), filepath.Join(root, "a/b/again")))
	must(os.Symlink("../many", filepath.Join(root, "a/short")))
	must(os.Symlink(strings.Repeat("x/", 2020), filepath.Join(root, "a/long")))
	must(unix.Mkfifo(filepath.Join(root, "fifo"), 0o600))
	must(os.Chmod(filepath.Join(root, "a"), fs.ModeSticky|0o777))
	return root
}

// TestKernel has the kernel read an image.
func TestKernel(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("skipped: only root can mount")
	}
	root := plant(t)
	for _, own := range []struct {
		name     string
		uid, gid int
	}{{"empty", 1000, 1000}, {"a", 70000, 8}, {"a/short", 7, 7}} {
		if err := os.Lchown(filepath.Join(root, own.name), own.uid, own.gid); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Mknod(filepath.Join(root, "null"), unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))); err != nil {
		t.Fatal(err)
	}
	if got, want := listing(t, mount(t, root)), listing(t, root); got != want {
		t.Errorf("the image: got\n%s\nwant\n%s", firstDifference(got, want), firstDifference(want, got))
	}
}

// TestNoted has the kernel read an image of a tree whose owners are in extended attributes.
func TestNoted(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("skipped: only root can mount")
	}
	root := plant(t)
	for name, mode := range map[string]uint32{".": 0o755, "block": 0o4511, "many": 0o2070} {
		f, err := os.Open(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		if err := layer.Note(f, 12, 34, mode); err != nil {
			t.Fatal(err)
		}
		f.Close()
	}
	if err := os.Lchown(filepath.Join(root, "empty"), 4711, 4711); err != nil { // the user who unpacked it
		t.Fatal(err)
	}
	image := mount(t, root)
	for name, want := range map[string]string{
		".": "12 34 40755", "block": "12 34 104511", "many": "12 34 42070", "empty": "0 0 100640",
	} {
		var st unix.Stat_t
		if err := unix.Lstat(filepath.Join(image, name), &st); err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprintf("%d %d %o", st.Uid, st.Gid, st.Mode); got != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
}

// mount writes an image of a tree and returns where the kernel shows it.
func mount(t *testing.T, root string) string {
	t.Helper()
	dir := t.TempDir()
	path, at := filepath.Join(dir, "image"), filepath.Join(dir, "mnt")
	if err := Make(path, root); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(at, 0o700); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("mount", "-t", "erofs", "-o", "loop,ro", path, at).CombinedOutput(); err != nil {
		t.Skipf("skipped: the kernel does not mount an EROFS image: %v: %s", err, out)
	}
	t.Cleanup(func() {
		if out, err := exec.Command("umount", at).CombinedOutput(); err != nil {
			t.Errorf("umount: %v: %s", err, out)
		}
	})
	return at
}

// listing returns the names, attributes and content of a tree.
func listing(t *testing.T, root string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err != nil {
			return err
		}
		content := ""
		switch st.Mode & unix.S_IFMT {
		case unix.S_IFREG:
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			content = fmt.Sprintf("%d %.20q", len(text), text)
		case unix.S_IFLNK:
			if content, err = os.Readlink(path); err != nil {
				return err
			}
		}
		fmt.Fprintf(&b, "%q %o %d:%d %d links, %d, %d: %s\n", path[len(root):], st.Mode, st.Uid, st.Gid, st.Nlink,
			st.Rdev, st.Mtim.Nano(), content)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// firstDifference returns the first line of a that is not in b.
func firstDifference(a, b string) string {
	for line := range strings.Lines(a) {
		if !strings.Contains(b, line) {
			return line
		}
	}
	return fmt.Sprintf("%d lines", strings.Count(a, "\n"))
}
