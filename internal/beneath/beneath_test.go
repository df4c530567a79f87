package beneath_test

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-run/berth/internal/beneath"
)

// world creates a Root with links in it, beside a directory with a secret.
func world(t *testing.T) (r *beneath.Root, in, out string) {
	t.Helper()
	dir := t.TempDir()
	in, out = filepath.Join(dir, "in"), filepath.Join(dir, "out")
	must(t, os.MkdirAll(filepath.Join(in, "a/b"), 0o755), os.Mkdir(out, 0o755),
		os.WriteFile(filepath.Join(out, "secret"), []byte("secret"), 0o600),
		os.WriteFile(filepath.Join(in, "a/b/f"), []byte("mine"), 0o600), os.Symlink(out, filepath.Join(in, "abs")),
		os.Symlink("../out", filepath.Join(in, "rel")),
		os.Symlink("b", filepath.Join(in, "a/same")), os.Symlink("same/../../a/b", filepath.Join(in, "a/round")),
		os.Symlink("f", filepath.Join(in, "a/b/link")),
		os.Symlink("../../../out/secret", filepath.Join(in, "a/b/leak")), os.Symlink("loop", filepath.Join(in, "loop")))
	r, err := beneath.Open(in)
	must(t, err)
	t.Cleanup(func() { r.Close() })
	return r, in, out
}

func must(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

func TestLinksBelow(t *testing.T) {
	r, _, _ := world(t)
	for _, name := range []string{"a/b/f", "a/same/f", "a/round/f", "a/b/link", "a/round/link", "./a//b/f",
		"a/b/../b/f"} {
		f, err := r.Open(name)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		text, err := io.ReadAll(f)
		if string(text) != "mine" || err != nil {
			t.Errorf("%s: got %q, %v", name, text, err)
		}
		f.Close()
		if info, err := r.Stat(name); err != nil || info.Size() != 4 || info.Name() != filepath.Base(name) {
			t.Errorf("%s: stat: got %v, %v", name, info, err)
		}
	}
	sub, err := r.OpenRoot("a/same")
	must(t, err)
	defer sub.Close()
	if _, err := sub.Open("../b/f"); !errors.Is(err, beneath.ErrEscape) {
		t.Errorf("a Root below another: got %v", err)
	}
	must(t, sub.Rename("f", "g"), sub.Mkdir("d", 0o700), sub.Rename("g", "d/h"), sub.Link("d/h", "i"), sub.Remove("i"),
		sub.RemoveAll("d"), sub.RemoveAll("none"))
	if _, err := r.Lstat("a/b/d"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a removed directory: got %v", err)
	}
}

func TestNothingLeadsOut(t *testing.T) {
	r, in, out := world(t)
	for _, way := range []string{"abs", "rel", "a/../rel", "../out", "/" + out, "loop", "a/b/f"} {
		for op, do := range map[string]func(name string) error{
			"open":     func(name string) error { f, err := r.Open(name); f.Close(); return err },
			"root":     func(string) error { f, err := r.OpenRoot(way); _ = f; return err },
			"folder":   func(string) error { f, err := r.OpenFolder(way); f.Close(); return err },
			"stat":     func(name string) error { _, err := r.Stat(name); return err },
			"lstat":    func(name string) error { _, err := r.Lstat(name); return err },
			"readlink": func(name string) error { _, err := r.Readlink(name); return err },
			"create": func(string) error {
				f, err := r.OpenFile(way+"/new", os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
				f.Close()
				return err
			},
			"mkdir":     func(string) error { return r.Mkdir(way+"/new", 0o755) },
			"symlink":   func(string) error { return r.Symlink("x", way+"/new") },
			"link to":   func(string) error { return r.Link("a/b/f", way+"/new") },
			"link from": func(name string) error { return r.Link(name, "new") },
			"move to":   func(name string) error { return r.Rename("a", name) },
			"move from": func(name string) error { return r.Rename(name, "new") },
			"remove":    func(name string) error { return r.Remove(name) },
			"chown":     func(name string) error { return r.Lchown(name, os.Getuid(), os.Getgid()) },
			"in dir":    func(name string) error { return r.InDir(name, func(int, string) error { return nil }) },
			"walk": func(name string) error {
				return r.Walk(name, func(string, fs.FileMode) error { return nil })
			},
		} {
			if err := do(way + "/secret"); err == nil {
				t.Errorf("%s %s/secret: got no error", op, way)
			}
		}
	}
	if _, err := r.Open("a/b/leak"); !errors.Is(err, beneath.ErrEscape) || !errors.Is(err, unix.EINVAL) {
		t.Errorf("the last part: got %v", err)
	}
	if _, err := r.OpenFile("a/b/link", os.O_RDONLY|unix.O_NOFOLLOW, 0); !errors.Is(err, unix.ELOOP) {
		t.Errorf("the last part, not followed: got %v", err)
	}
	var got []string
	must(t, r.Walk(".", func(name string, kind fs.FileMode) error {
		got = append(got, kind.String()[:1]+" "+name)
		return nil
	}))
	want := strings.Split("d .,d a,d a/b,- a/b/f,L a/b/leak,L a/b/link,L a/round,L a/same,L abs,L loop,L rel", ",")
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("walk (-want +got):\n%s", diff)
	}
	must(t, r.RemoveAll("a"), r.RemoveAll("abs"), r.RemoveAll("rel"))
	if text, err := os.ReadFile(filepath.Join(out, "secret")); string(text) != "secret" {
		t.Errorf("the secret: %q, %v", text, err)
	}
	if left, _ := os.ReadDir(in); len(left) != 1 {
		t.Errorf("left are %v", left)
	}
}

// If a directory is replaced by a link while files in it are opened, created and removed, no
// operation leaves the Root.
func TestSwappedDirectory(t *testing.T) {
	r, in, out := world(t)
	var swapping sync.WaitGroup
	end := make(chan struct{})
	swapping.Go(func() {
		for {
			select {
			case <-end:
				return
			default:
				_ = unix.Renameat2(unix.AT_FDCWD, filepath.Join(in, "a"), unix.AT_FDCWD, filepath.Join(in, "rel"),
					unix.RENAME_EXCHANGE)
			}
		}
	})
	for range 2000 {
		if f, err := r.Open("a/secret"); err == nil {
			t.Error("the secret was opened")
			f.Close()
		}
		if f, err := r.OpenFile("a/new", os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644); err == nil {
			f.Close()
			_ = r.Remove("a/new")
		}
		if f, err := r.OpenFolder("a"); err == nil {
			names, _ := f.Readdirnames(-1)
			f.Close()
			if len(names) == 1 && names[0] == "secret" {
				t.Error("the other directory was read")
			}
		}
		_ = r.RemoveAll("a/secret")
		_ = r.Mkdir("a/dir", 0o755)
	}
	close(end)
	swapping.Wait()
	left, err := os.ReadDir(out)
	if err != nil || len(left) != 1 {
		t.Errorf("the other directory has %v, %v", left, err)
	}
}
