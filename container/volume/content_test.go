package volume_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/container/volume"
)

// visit calls f with the content of a volume.
func (s *harness) visit(v *berth.Volume, f func(ctx context.Context, c *volume.Content)) {
	s.t.Helper()
	s.check(s.l.Visit(s.t.Context(), me.Project, v.ID, func(ctx context.Context, c *volume.Content) error {
		f(ctx, c)
		return nil
	}))
}

func (s *harness) wantCode(what string, err error, want berth.Code) {
	s.t.Helper()
	if berth.ErrorCode(err) != want {
		s.t.Errorf("%s: got %v, want %s", what, err, want)
	}
}

func read(c *volume.Content, name string) (string, error) {
	f, err := c.Open(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	text, err := io.ReadAll(f)
	return string(text), err
}

func TestContent(t *testing.T) {
	s := newHarness(t)
	v := s.create("data")
	dir := s.mount("data")
	s.visit(v, func(ctx context.Context, c *volume.Content) {
		write := func(name, text string, a volume.Attributes, force bool) (*volume.Entry, error) {
			return c.Write(ctx, name, a, force, strings.NewReader(text))
		}
		e, err := write("/a.txt", "one", volume.Attributes{}, false)
		s.check(err)
		if e.Path != "/a.txt" || e.Size != 3 || e.Mode != 0o644 || e.UID != 1000 || e.GID != 1000 ||
			time.Since(e.Modified) > time.Minute || time.Since(e.Changed) > time.Minute {
			t.Errorf("a written file is %+v", e)
		}
		_, err = write("a.txt", "two", volume.Attributes{}, false)
		s.wantCode("a second write", err, berth.CodeConflict)
		_, err = c.Set("a.txt", volume.Attributes{UID: new(uint32(0)), Mode: new(uint32(0o600))})
		s.check(err)
		if e, err = write("a.txt", "three", volume.Attributes{}, true); err != nil || e.UID != 0 || e.GID != 1000 ||
			e.Mode != 0o600 || e.Size != 5 {
			t.Errorf("a replaced file is %+v, %v", e, err)
		}
		_, err = write("no/such/b", "x", volume.Attributes{}, false)
		s.wantCode("a file in no directory", err, berth.CodeNotFound)
		e, err = write("deep/er/b", "b", volume.Attributes{UID: new(uint32(7)), Mode: new(uint32(0o640))}, true)
		if err != nil || e.UID != 7 || e.Mode != 0o640 {
			t.Errorf("a file with its directories is %+v, %v", e, err)
		}
		if e, err = c.Stat("deep"); err != nil || !e.Mode.IsDir() || e.UID != 7 || e.Mode.Perm() != 0o755 {
			t.Errorf("a directory made for it is %+v, %v", e, err)
		}
		_, err = write("deep", "x", volume.Attributes{}, true)
		s.wantCode("a file over a directory", err, berth.CodeInvalid)
		_, err = c.Mkdir("deep", volume.Attributes{}, false)
		s.wantCode("a second directory", err, berth.CodeConflict)
		if e, err = c.Mkdir("deep", volume.Attributes{Mode: new(uint32(0o700))}, true); err != nil ||
			e.Mode.Perm() != 0o755 {
			t.Errorf("a directory that exists is %+v, %v", e, err)
		}
		_, err = c.Mkdir("a.txt", volume.Attributes{}, true)
		s.wantCode("a directory over a file", err, berth.CodeConflict)
		_, err = c.Mkdir("a.txt/x/y", volume.Attributes{}, true)
		s.wantCode("a directory below a file", err, berth.CodeInvalid)
		_, err = c.Stat("a.txt/x")
		s.wantCode("a file below a file", err, berth.CodeNotFound)

		// A link leads to a file of the volume, and a write follows it.
		s.check(os.Symlink("../a.txt", filepath.Join(dir, "deep/link")))
		if e, err = c.Stat("deep/link"); err != nil || e.Target != "../a.txt" || e.Mode.Type() != fs.ModeSymlink {
			t.Errorf("a link is %+v, %v", e, err)
		}
		_, err = write("deep/link", "four", volume.Attributes{}, true)
		s.check(err)
		if text, err := read(c, "deep/link"); err != nil || text != "four" {
			t.Errorf("through a link: got %q, %v", text, err)
		}
		s.check(os.WriteFile(filepath.Join(dir, "line\nbreak"), nil, 0o600))
		list := func(name string, depth int) (paths []string) {
			entries, err := c.List(ctx, name, depth)
			s.check(err)
			for _, e := range entries {
				paths = append(paths, e.Path)
			}
			return paths
		}
		if got := fmt.Sprintf("%q", list("/", 1)); got != `["/a.txt" "/deep" "/line\nbreak"]` {
			t.Errorf("the list is %s", got)
		}
		if got := fmt.Sprintf("%q",
			list("", 3)); got != `["/a.txt" "/deep" "/deep/er" "/deep/er/b" "/deep/link" "/line\nbreak"]` {
			t.Errorf("the list to depth 3 is %s", got)
		}
		_, err = c.List(ctx, "a.txt", 1)
		s.wantCode("the list of a file", err, berth.CodeInvalid)
		s.check(c.Remove(ctx, "deep"))
		s.wantCode("a second removal", c.Remove(ctx, "deep"), berth.CodeNotFound)
		s.wantCode("removal of the root", c.Remove(ctx, "/"), berth.CodeInvalid)
		if text, err := read(c, "a.txt"); err != nil || text != "four" {
			t.Errorf("after the removal of a link: got %q, %v", text, err)
		}

		// A full volume refuses a file, and nothing of it is left.
		s.check(os.Remove(filepath.Join(dir, "line\nbreak")))
		_, err = c.Write(ctx, "a.txt", volume.Attributes{}, true, bytes.NewReader(make([]byte, 80<<20)))
		s.wantCode("80 MB into a volume of 64", err, berth.CodeInsufficientStorage)
		cut, stop := context.WithCancel(ctx)
		stop()
		_, err = c.Write(cut, "a.txt", volume.Attributes{}, true, strings.NewReader("cut"))
		s.wantCode("a cut upload", err, berth.CodeConflict)
		if text, err := read(c, "a.txt"); err != nil || text != "four" {
			t.Errorf("after failed writes: got %q, %v", text, err)
		}
		if got := list("", 5); len(got) != 1 {
			t.Errorf("failed writes have left %q", got)
		}
	})
	s.wantCode("another project's visit", s.l.Visit(t.Context(), them.Project, v.ID,
		func(context.Context, *volume.Content) error {
			return nil
		}), berth.CodeNotFound)
}

// No file of a volume makes the server read or change anything outside, or wait.
func TestContentAttacks(t *testing.T) {
	s := newHarness(t)
	v := s.create("data")
	dir := s.mount("data")
	outside := filepath.Join(t.TempDir(), "outside")
	s.check(os.Mkdir(outside, 0o755))
	secret := filepath.Join(outside, "secret")
	s.check(os.WriteFile(secret, []byte("secret"), 0o600))
	up := strings.Repeat("../", 20)
	for name, target := range map[string]string{"abs": secret, "rel": up + secret[1:], "absdir": outside,
		"reldir": up + outside[1:], "proc": "/proc/self/root",
		"loop": "loop", "one": "two/..", "two": "absdir", "image": "../../" + string(v.ID) + ".img"} {
		s.check(os.Symlink(target, filepath.Join(dir, name)))
	}
	s.check(unix.Mkfifo(filepath.Join(dir, "fifo"), 0o666))
	s.check(unix.Mknod(filepath.Join(dir, "device"), unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))))
	s.check(unix.Mknod(filepath.Join(dir, "socket"), unix.S_IFSOCK|0o666, 0))
	s.visit(v, func(ctx context.Context, c *volume.Content) {
		for _, name := range []string{"abs", "rel", "absdir/secret", "reldir/secret", "proc/etc/passwd", "loop",
			"one/secret", "two/secret", "image", "fifo", "device", "socket",
			"..", "../..", "/../x", "a/../../x", "x\x00y", strings.Repeat("x/", 3000), strings.Repeat("x", 300)} {
			for op, do := range map[string]func() error{
				"read": func() error { _, err := read(c, name); return err },
				"write": func() error {
					_, err := c.Write(ctx, name, volume.Attributes{}, true, strings.NewReader("evil"))
					return err
				},
				"list": func() error { _, err := c.List(ctx, name, 5); return err },
			} {
				done := make(chan error, 1)
				go func() { done <- do() }()
				select {
				case err := <-done:
					if code := berth.ErrorCode(err); code != berth.CodeInvalid && code != berth.CodeNotFound {
						t.Errorf("%s of %.40q: got %v", op, name, err)
					}
				case <-time.After(time.Minute):
					t.Fatalf("%s of %q waits", op, name)
				}
			}
		}
		for _, name := range []string{"abs", "rel", "absdir/secret", "reldir/secret", "../x"} {
			_, err := c.Set(name, volume.Attributes{UID: new(uint32(1000)), Mode: new(uint32(0o777))})
			s.wantCode("a change of "+name, err, berth.CodeInvalid)
		}
		for _, name := range []string{"absdir/new", "reldir/new", "absdir/x/y"} {
			_, err := c.Mkdir(name, volume.Attributes{}, true)
			s.wantCode("a directory "+name, err, berth.CodeInvalid)
			s.wantCode("removal of "+name, c.Remove(ctx, name), berth.CodeInvalid)
		}
		for _, name := range []string{"abs", "rel", "absdir", "reldir", "proc", "loop", "fifo", "device", "socket"} {
			if _, err := c.Stat(name); err != nil {
				t.Errorf("stat %s: %v", name, err)
			}
			s.check(c.Remove(ctx, name))
		}
	})
	if info, err := os.Stat(secret); err != nil || info.Mode() != 0o600 || info.Size() != 6 {
		t.Errorf("the file outside is %v, %v", info, err)
	}
	if names, err := os.ReadDir(outside); err != nil || len(names) != 1 {
		t.Errorf("the directory outside has %v, %v", names, err)
	}
}

// A directory that a sandbox exchanges with a link never leads a request out.
func TestContentSwapped(t *testing.T) {
	s := newHarness(t)
	v := s.create("data")
	dir := s.mount("data")
	outside := t.TempDir()
	s.check(os.WriteFile(filepath.Join(outside, "f"), []byte("secret"), 0o600))
	s.check(os.Mkdir(filepath.Join(dir, "d"), 0o755))
	s.check(os.WriteFile(filepath.Join(dir, "d/f"), []byte("mine"), 0o600))
	s.check(os.Symlink(outside, filepath.Join(dir, "link")))
	stop := make(chan struct{})
	var swaps sync.WaitGroup
	swaps.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				_ = unix.Renameat2(unix.AT_FDCWD, filepath.Join(dir, "d"), unix.AT_FDCWD, filepath.Join(dir, "link"),
					unix.RENAME_EXCHANGE)
			}
		}
	})
	s.visit(v, func(ctx context.Context, c *volume.Content) {
		reads := 0
		for range 2000 {
			if text, err := read(c, "d/f"); err == nil && text != "mine" && text != "new" {
				t.Fatalf("read %q", text)
			} else if err == nil {
				reads++
			}
			_, _ = c.Write(ctx, "d/f", volume.Attributes{}, true, strings.NewReader("new"))
			_, _ = c.Set("d/f", volume.Attributes{UID: new(uint32(1000)), Mode: new(uint32(0o666))})
			_, _ = c.Mkdir("d/e", volume.Attributes{}, true)
			_ = c.Remove(ctx, "d/e")
			entries, _ := c.List(ctx, "d", 2)
			for _, e := range entries {
				if e.Size == 6 {
					t.Fatalf("listed %+v", e)
				}
			}
		}
		if reads == 0 {
			t.Error("no read has succeeded")
		}
		for range 100 {
			_ = c.Remove(ctx, "d")
		}
	})
	close(stop)
	swaps.Wait()
	if text, err := os.ReadFile(filepath.Join(outside, "f")); err != nil || string(text) != "secret" {
		t.Errorf("the file outside is %q, %v", text, err)
	}
	if names, err := os.ReadDir(outside); err != nil || len(names) != 1 {
		t.Errorf("the directory outside has %v, %v", names, err)
	}
}

// A list and a removal need little of the server, however large and deep a directory is.
func TestContentLarge(t *testing.T) {
	s := newHarness(t)
	v := s.create("data")
	dir := s.mount("data")
	s.check(os.Mkdir(filepath.Join(dir, "deep"), 0o755))
	fd, err := unix.Open(filepath.Join(dir, "deep"), unix.O_PATH, 0)
	s.check(err)
	for range 2000 { // deeper than a path can be long, and than a server has files
		name := strings.Repeat("d", 100)
		s.check(unix.Mkdirat(fd, name, 0o755))
		next, err := unix.Openat(fd, name, unix.O_PATH, 0)
		s.check(err)
		unix.Close(fd)
		fd = next
	}
	unix.Close(fd)
	s.check(os.Mkdir(filepath.Join(dir, "wide"), 0o755))
	for i := range 10_001 {
		s.check(os.WriteFile(filepath.Join(dir, "wide", fmt.Sprint(i)), nil, 0o600))
	}
	s.visit(v, func(ctx context.Context, c *volume.Content) {
		_, err := c.List(ctx, "wide", 1)
		s.wantCode("the list of 10,001 files", err, berth.CodeInvalid)
		if entries, err := c.List(ctx, "deep", 1000); err != nil || len(entries) != volume.MaxDepth {
			t.Errorf("the list of a deep directory: got %d, %v", len(entries), err)
		}
		_, err = c.Mkdir(strings.Repeat("m/", 200), volume.Attributes{}, true)
		s.wantCode("200 directories below each other", err, berth.CodeInvalid)
		s.check(c.Remove(ctx, "deep"))
		s.check(c.Remove(ctx, "wide"))
		cut, stop := context.WithCancel(ctx)
		stop()
		_, err = c.Mkdir("rest/sub", volume.Attributes{}, true)
		s.check(err)
		s.wantCode("a removal that is cut", c.Remove(cut, "rest"), berth.CodeConflict)
	})
	if names, err := os.ReadDir(dir); err != nil || len(names) != 1 {
		t.Errorf("left: %v, %v", names, err)
	}
}

// A request for the content holds the volume, until it is to be deleted.
func TestVisit(t *testing.T) {
	s := newHarness(t)
	v := s.create("data")
	entered, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- s.l.Visit(context.Background(), me.Project, v.ID, func(ctx context.Context, c *volume.Content) error {
			_, err := c.Mkdir("d", volume.Attributes{}, false)
			close(entered)
			<-ctx.Done()
			return errors.Join(err, ctx.Err())
		})
	}()
	<-entered
	s.check(s.l.Unmount(0)) // skips it
	s.wantCode("a deletion during a visit", s.l.Delete(t.Context(), me, v.ID), berth.CodeConflict)
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("the visit ended with %v", err)
	}
	s.visit(v, func(_ context.Context, c *volume.Content) {
		if _, err := c.Stat("d"); err != nil {
			t.Errorf("the volume has lost a directory: %v", err)
		}
	})
	s.check(s.l.Unmount(0))
	s.visit(v, func(_ context.Context, c *volume.Content) { // mounts it again
		if _, err := c.Stat("d"); err != nil {
			t.Errorf("an unmounted volume has lost a directory: %v", err)
		}
	})
	s.opts.Space = func() error { return &berth.Error{Code: berth.CodeInsufficientStorage, Message: "full"} }
	s.restart()
	s.visit(v, func(ctx context.Context, c *volume.Content) {
		_, err := c.Write(ctx, "f", volume.Attributes{}, false, strings.NewReader("x"))
		s.wantCode("a write while the disk is full", err, berth.CodeInsufficientStorage)
		s.check(c.Remove(ctx, "d"))
	})
	s.check(s.l.Delete(t.Context(), me, v.ID))
	s.wantCode("a visit of a deleted volume", s.l.Visit(t.Context(), me.Project, v.ID,
		func(context.Context, *volume.Content) error {
			return nil
		}), berth.CodeNotFound)
}
