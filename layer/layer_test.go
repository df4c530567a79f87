package layer_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/beneath"
	"github.com/berth-run/berth/layer"
)

// sh runs a script in a directory.
func sh(t *testing.T, dir, script string) {
	t.Helper()
	cmd := exec.Command("sh", "-ec", script)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// tree describes all files below a directory.
func tree(t *testing.T, root string) []string {
	t.Helper()
	var all []string
	first := map[uint64]string{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err != nil {
			return err
		}
		name, content := "."+path[len(root):], ""
		switch d.Type() {
		case 0:
			raw, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			content = string(raw)
			if link := first[st.Ino]; link != "" {
				content = "= " + link
			}
			first[st.Ino] = name
			var value [64]byte
			if n, err := unix.Lgetxattr(path, "user.colour", value[:]); err == nil {
				content += " " + string(value[:n])
			}
		case fs.ModeSymlink:
			content, err = os.Readlink(path)
			if err != nil {
				return err
			}
		}
		all = append(all, fmt.Sprintf("%s %o %d:%d %d %x %q", name, st.Mode, st.Uid, st.Gid, st.Mtim.Sec, st.Rdev,
			content))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	sort.Strings(all)
	return all
}

func needRoot(t *testing.T) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("skipped: owners and devices need root")
	}
}

// copyTree copies a directory with all metadata of a layer.
func copyTree(t *testing.T, from, to string) {
	t.Helper()
	if out, err := exec.Command("cp", "-a", from+"/.", to).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

const before = `
mkdir -p etc usr/bin usr/lib/deep/er var/old home
echo root >etc/passwd; echo gone >etc/gone; echo same >etc/same; ln etc/same etc/same2
echo tool >usr/bin/tool; chmod 755 usr/bin/tool; ln -s usr/bin bin; ln -s /usr/lib lib
echo a >usr/lib/deep/er/a; echo b >var/old/b; mkdir home/dir; echo x >home/dir/x
echo f >home/file; ln -s file home/link
touch -d '2001-02-03 04:05:06' etc/same usr/bin/tool`

const after = `
echo user >>etc/passwd; rm etc/gone; chmod 4755 usr/bin/tool
rm -r var/old; mkdir var/old; echo c >var/old/c
mkdir -m 1777 new; echo one >new/one; ln new/one new/two; ln -s /nowhere new/dangling; mkfifo new/fifo
mkdir "new/space and 	tab"; printf x >"new/space and 	tab/$(printf 'caf\351 \303\251')"
truncate -s 100000 new/sparse; setfattr -n user.colour -v blue new/one 2>/dev/null || true
rm -r home/dir; echo file >home/dir; rm home/file; mkdir home/file; echo y >home/file/y; ln -sfn elsewhere home/link
mkdir -m 700 new/private; touch -d '2002-03-04 05:06:07' new/private new/two
chown 1000:1001 new/one new/private; mknod new/null c 1 3; echo .wh >new/.wh.strange`

// Applying the diff of a tree to the original yields the tree.
func TestRoundTrip(t *testing.T) {
	needRoot(t)
	old, changed, restored := t.TempDir(), t.TempDir(), t.TempDir()
	sh(t, old, before)
	copyTree(t, old, changed)
	copyTree(t, old, restored)
	since := time.Now().Add(10 * time.Millisecond)
	for time.Now().Before(since.Add(10 * time.Millisecond)) { // the kernel's clock for files is coarse
		time.Sleep(time.Millisecond)
	}
	sh(t, changed, after)

	var diff, made bytes.Buffer
	w := tar.NewWriter(&diff)
	if err := (&layer.Differ{Root: changed, Since: since}).Diff(w); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(diff.String(), "same\n") {
		t.Error("the diff contains an unchanged file")
	}
	got, err := layer.Make(&made, bytes.NewReader(diff.Bytes()), old, layer.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"new/.wh.strange"}, got.Dropped); diff != "" {
		t.Errorf("dropped (-want +got):\n%s", diff)
	}
	if !strings.HasPrefix(got.Digest, "sha256:") || got.Bytes < 100_000 {
		t.Errorf("got %+v", got)
	}
	root, err := beneath.Open(restored)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	for range 2 { // the second time changes nothing
		a := &layer.Applier{Root: root, Owners: true, Devices: true}
		if err := a.Apply(bytes.NewReader(made.Bytes())); err != nil {
			t.Fatal(err)
		}
		sh(t, changed, `dir=$(stat -c %Y new); rm -f new/.wh.strange; touch -d @$dir new`)
		if diff := cmp.Diff(tree(t, changed), tree(t, restored)); diff != "" {
			t.Errorf("(-changed +restored):\n%s", diff)
		}
	}
}

// archive returns an archive of headers; regular files contain their own names.
func archive(headers ...tar.Header) []byte {
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, h := range headers {
		if h.Typeflag == tar.TypeReg && h.Size == 0 {
			h.Size = int64(len(h.Name))
		}
		if h.Mode == 0 {
			h.Mode = 0o755
		}
		if err := w.WriteHeader(&h); err != nil {
			panic(err)
		}
		if h.Typeflag == tar.TypeReg {
			_, _ = io.CopyN(w, strings.NewReader(h.Name+strings.Repeat("\x00", int(h.Size))), h.Size)
		}
	}
	w.Close()
	return buf.Bytes()
}

func file(name string) tar.Header { return tar.Header{Typeflag: tar.TypeReg, Name: name} }
func dir(name string) tar.Header  { return tar.Header{Typeflag: tar.TypeDir, Name: name + "/"} }
func symlink(name, to string) tar.Header {
	return tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: to}
}
func hardlink(name, to string) tar.Header {
	return tar.Header{Typeflag: tar.TypeLink, Name: name, Linkname: to}
}

// apply applies layers to an empty directory inside of a directory that must not change.
func apply(t testing.TB, prepare string, layers ...[]byte) (root string, err error) {
	outside := t.TempDir()
	root = filepath.Join(outside, "root")
	if err := os.Mkdir(root, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(outside, "secret"), []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	if prepare != "" {
		cmd := exec.Command("sh", "-ec", prepare)
		cmd.Dir = root
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	r, err := beneath.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for _, l := range layers {
		if err = (&layer.Applier{Root: r, Limits: layer.Limits{Bytes: 1 << 20, Entries: 1000}}).Apply(
			bytes.NewReader(l)); err != nil {
			break
		}
	}
	left, rerr := os.ReadDir(outside)
	secret, serr := os.ReadFile(filepath.Join(outside, "secret"))
	var st unix.Stat_t
	_ = unix.Stat(filepath.Join(outside, "secret"), &st)
	if rerr != nil || serr != nil || len(left) != 2 || string(secret) != "secret" || st.Nlink != 1 ||
		st.Mode&0o777 != 0o600 {
		t.Fatalf("changed outside of the root: %v, %q, %d links, mode %o (%v, %v)", left, secret, st.Nlink, st.Mode,
			rerr, serr)
	}
	return root, err
}

// names lists a tree, with the content of files.
func names(t testing.TB, root string) string {
	var all []string
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == root {
			return err
		}
		name := path[len(root)+1:]
		switch d.Type() {
		case 0:
			raw, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			name += "=" + string(raw)
		case fs.ModeSymlink:
			to, _ := os.Readlink(path)
			name += "->" + to
		}
		all = append(all, name)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(all, " ")
}

func TestApply(t *testing.T) {
	for name, c := range map[string]struct {
		prepare string
		layers  [][]byte
		want    string
	}{
		"dots before names":   {"", [][]byte{archive(file("./a"), file("/b"))}, "a=./a b=/b"},
		"missing directories": {"", [][]byte{archive(file("a/b/c"))}, "a a/b a/b/c=a/b/c"},
		"through a link": {"mkdir -p usr/bin; ln -s usr/bin bin", [][]byte{archive(file("bin/x"))},
			"bin->usr/bin usr usr/bin usr/bin/x=bin/x"},
		"through an absolute link": {"mkdir -p run; mkdir var; ln -s /run var/run",
			[][]byte{archive(file("var/run/x"))}, "run run/x=var/run/x var var/run->/run"},
		"a file for a directory": {"mkdir -p a/b; echo >a/b/c", [][]byte{archive(file("a"))}, "a=a"},
		"a directory for a file": {"echo >a", [][]byte{archive(dir("a"), file("a/b"))}, "a a/b=a/b"},
		"a directory for a link": {"mkdir d; ln -s d a", [][]byte{archive(dir("a"), file("a/b"))}, "a a/b=a/b d"},
		"a directory stays": {"mkdir a; printf x >a/x", [][]byte{archive(dir("a"), file("a/b"))},
			"a a/b=a/b a/x=x"},
		"whiteout": {"mkdir a; printf x >a/x; printf y >a/y", [][]byte{archive(file("a/.wh.x"))},
			"a a/y=y"},
		"whiteout of nothing":        {"", [][]byte{archive(dir("a"), file("a/.wh.x"))}, "a"},
		"whiteout of the same layer": {"", [][]byte{archive(file("x"), file(".wh.x"))}, "x=x"},
		"opaque": {"mkdir -p a/d; echo >a/x",
			[][]byte{archive(dir("a"), file("a/.wh..wh..opq"), file("a/y"))}, "a a/y=a/y"},
		"opaque, listed late": {"mkdir -p a/d; echo >a/x",
			[][]byte{archive(file("a/d/y"), file("a/.wh..wh..opq"))}, "a a/d a/d/y=a/d/y"},
		"a whiteout-like name  ": {"", [][]byte{archive(file("a/.wh..wh.plnk"))}, "a"},
		"a link replaced and used": {"mkdir d e",
			[][]byte{archive(symlink("a", "d"), file("a/1"), symlink("a", "e"), file("a/2"))},
			"a->e d d/1=a/1 e e/2=a/2"},
		"hard link": {"", [][]byte{archive(file("a"), hardlink("b", "a")), archive(hardlink("c", "/b"))},
			"a=a b=a c=a"},
		"twice": {"", [][]byte{archive(file("a"), symlink("a", "b"), file("a"))}, "a=a"},
		"devices": {"", [][]byte{archive(tar.Header{Typeflag: tar.TypeChar, Name: "null", Devmajor: 1, Devminor: 3},
			file("a"))}, "a=a"},
	} {
		t.Run(name, func(t *testing.T) {
			root, err := apply(t, c.prepare, c.layers...)
			if err != nil {
				t.Fatal(err)
			}
			if got := names(t, root); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

// No archive affects files outside of the root.
func TestApplyHostile(t *testing.T) {
	for name, hostile := range map[string][]byte{
		"dots":                  archive(file("../secret")),
		"dots within":           archive(file("a/../../secret")),
		"absolute dots":         archive(file("/../secret")),
		"link up":               archive(symlink("a", ".."), file("a/secret")),
		"link up, absolute":     archive(symlink("a", "/.."), file("a/secret")),
		"link up, deep":         archive(dir("d"), symlink("d/a", "../.."), file("d/a/secret")),
		"link of links":         archive(symlink("a", "b/.."), symlink("b", ".."), file("a/secret")),
		"link to itself":        archive(symlink("a", "a"), file("a/b")),
		"link to a file":        archive(symlink("a", "../secret"), file("a")),
		"hard link out":         archive(hardlink("a", "../secret")),
		"hard link over a link": archive(symlink("a", ".."), hardlink("b", "a/secret"), file("b")),
		"hard link to a link":   archive(symlink("a", "../secret"), hardlink("b", "a"), file("b")),
		"mode of a link": archive(symlink("a", "../secret"), tar.Header{Typeflag: tar.TypeLink, Name: "b",
			Linkname: "a", Mode: 0o777}),
		"whiteout up":          archive(file(".wh...")),
		"whiteout of dots":     archive(file(".wh..")),
		"whiteout over a link": archive(symlink("a", ".."), file("a/.wh.secret")),
		"opaque over a link":   archive(symlink("a", ".."), file("a/.wh..wh..opq")),
		"root is a link":       archive(symlink(".", "..")),
		"root is a file":       archive(file(".")),
		"type":                 archive(tar.Header{Typeflag: 'B', Name: "a"}),
		"too many bytes":       archive(tar.Header{Typeflag: tar.TypeReg, Name: "a", Size: 2 << 20}),
		"cut off":              archive(file("a"), tar.Header{Typeflag: tar.TypeReg, Name: "b", Size: 9000})[:3000],
	} {
		t.Run(name, func(t *testing.T) { _, _ = apply(t, "", hostile) })
	}
}

// Make rejects invalid input from a sandbox.
func TestMakeRefuses(t *testing.T) {
	listed := func(name string) tar.Header { return tar.Header{Typeflag: 'B', Name: name} }
	many := []tar.Header{dir("a")}
	for i := range 20 {
		many = append(many, listed(fmt.Sprint("a/", i)))
	}
	for name, c := range map[string]struct {
		archive []byte
		want    error
	}{
		"dots":           {archive(file("../a")), layer.ErrInvalid},
		"hard link":      {archive(hardlink("a", "../b")), layer.ErrInvalid},
		"root":           {archive(symlink("./", "b")), layer.ErrInvalid},
		"type":           {archive(tar.Header{Typeflag: 'Q', Name: "a"}), layer.ErrInvalid},
		"stray name":     {archive(listed("a")), layer.ErrInvalid},
		"name elsewhere": {archive(dir("a"), listed("b/c")), layer.ErrInvalid},
		"bytes":          {archive(tar.Header{Typeflag: tar.TypeReg, Name: "a", Size: 2000}), layer.ErrTooLarge},
		"entries":        {archive(many...), layer.ErrTooLarge},
		"not an archive": {[]byte(strings.Repeat("no", 1000)), layer.ErrInvalid},
		"cut off":        {archive(dir("a"), file("a/b"))[:1026], io.ErrUnexpectedEOF},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := layer.Make(io.Discard, bytes.NewReader(c.archive), "", layer.Limits{Bytes: 1000, Entries: 10})
			if !errors.Is(err, c.want) {
				t.Errorf("got %v, want %v", err, c.want)
			}
		})
	}
}

// Make adds whiteouts for files of the template, without following its links.
func TestMakeWhiteouts(t *testing.T) {
	base := t.TempDir()
	sh(t, base, "mkdir -p a/b d; echo >a/x; echo >a/y; echo >d/z; ln -s a l; ln -s /etc e")
	listed := func(name string) tar.Header { return tar.Header{Typeflag: 'B', Name: name} }
	var out bytes.Buffer
	// the last is refused
	in := archive(dir("a"), listed("a/x"), dir("d"), dir("e"), dir("l"), dir("none"), dir("d/../d/z/"))
	if _, err := layer.Make(&out, bytes.NewReader(in), base, layer.Limits{}); !errors.Is(err, layer.ErrInvalid) {
		t.Fatalf("got %v", err)
	}
	out.Reset()
	if _, err := layer.Make(&out, bytes.NewReader(archive(dir("a"), listed("a/x"), dir("d"), dir("e"), dir("l"),
		dir("none"))), base, layer.Limits{}); err != nil {
		t.Fatal(err)
	}
	var got []string
	for r := tar.NewReader(&out); ; {
		h, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.Typeflag != tar.TypeDir {
			got = append(got, h.Name)
		}
	}
	sort.Strings(got)
	if diff := cmp.Diff([]string{"a/.wh.b", "a/.wh.y", "d/.wh.z"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func FuzzApply(f *testing.F) {
	f.Add(archive(dir("a"), symlink("a/b", "../.."), file("a/b/c"), hardlink("d", "a/b"), file("a/.wh.b")))
	f.Fuzz(func(t *testing.T, raw []byte) { _, _ = apply(t, "", raw) })
}

func FuzzMake(f *testing.F) {
	f.Add(archive(dir("a"), tar.Header{Typeflag: 'B', Name: "a/b"}, file("a/b")))
	f.Fuzz(func(t *testing.T, raw []byte) {
		var out bytes.Buffer
		if _, err := layer.Make(&out, bytes.NewReader(raw), "", layer.Limits{Bytes: 1 << 20,
			Entries: 1000}); err != nil {
			return
		}
		if _, err := apply(t, "", out.Bytes()); errors.Is(err, layer.ErrInvalid) {
			t.Errorf("the layer cannot be applied: %v", err)
		}
	})
}
