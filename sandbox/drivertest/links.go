package drivertest

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/berth-run/berth/sandbox"
)

// links checks that no link in the working directory leads the guest, which is root, to other
// users' files.
func (s contents) links(t *testing.T) {
	if !s.isolates() {
		return // these would be the machine's files
	}
	if s.features.NoRoot {
		t.Skip("skipped: the guest is not root")
	}
	const secret = "berth-secret"
	b := Start(t, s.open(t), sandbox.Spec{ID: "links", Template: s.Template})
	b.Must(`ln -s / abs; ln -s ../../etc rel; ln -s rel twice; mkdir d; echo mine >d/f; ln -s d same; ln -s ../../../etc/` + secret + ` d/leak
sudo sh -c 'umask 077; echo secret >/etc/` + secret + `'`)
	read := func(name string) (string, error) {
		body, _, err := b.Client.ReadFile(t.Context(), "/mnt/data", name, "")
		if err != nil {
			return "", err
		}
		defer body.Close()
		text, err := io.ReadAll(body)
		return string(text), err
	}
	folder := func(name string) (names []string, err error) {
		for f, err := range b.Client.Folder(t.Context(), "/mnt/data", name) {
			if err != nil {
				return names, err
			}
			names = append(names, f.Path)
		}
		return names, nil
	}
	write := func(name string) error {
		return b.Client.WriteFile(t.Context(), "/mnt/data", name, "", strings.NewReader("theirs"))
	}
	for _, dir := range []string{"abs/etc", "rel", "twice", "same/../rel", "d/../abs/etc"} {
		for _, name := range []string{dir + "/" + secret, dir + "/new", dir + "/newdir/new"} {
			if text, err := read(name); err == nil {
				t.Errorf("reading %s: got %q", name, text)
			}
			if names, err := folder(name); err == nil {
				t.Errorf("an archive of %s has %v", name, names)
			}
			if err := write(name); err == nil {
				t.Errorf("writing %s: got no error", name)
			}
			if err := b.Client.Remove(t.Context(), "/mnt/data", name); err == nil {
				t.Errorf("removing %s: got no error", name)
			}
		}
		if names, err := folder(dir); err == nil {
			t.Errorf("an archive of %s has %v", dir, names)
		}
	}
	if text, err := read("d/leak"); err == nil {
		t.Errorf("a link that is a file: got %q", text)
	}
	if text, err := read("same/f"); text != "mine\n" || err != nil {
		t.Errorf("a link to a directory: got %q, %v", text, err)
	}
	// the second replaces the link
	if err := errors.Join(write("same/g"), write("d/leak"), b.Client.Remove(t.Context(), "/mnt/data",
		"same/f")); err != nil {
		t.Error(err)
	}
	if names, err := folder(""); err != nil || !slices.Equal(names, []string{"/mnt/data/d/g", "/mnt/data/d/leak"}) {
		t.Errorf("an archive of all has %v, %v", names, err)
	}

	b.Must(`ln -s /etc other; (while :; do mv d e; mv other d; mv d other; mv e d; done) >/dev/null 2>&1 & echo $! >pid`)
	for range 300 {
		if text, err := read("d/" + secret); err == nil {
			t.Fatalf("reading in a directory that becomes a link: got %q", text)
		}
		if names, err := folder("d/" + secret); err == nil && len(names) > 0 {
			t.Fatalf("an archive of a directory that becomes a link has %v", names)
		}
		_ = write("d/new/" + secret)
		_ = write("d/" + secret + ".new")
		_ = b.Client.Remove(t.Context(), "/mnt/data", "d/"+secret)
		_ = b.Client.Remove(t.Context(), "/mnt/data", "d")
	}
	b.Must(`kill $(cat pid)`)
	if got := b.Must(`sudo sh -c 'cat /etc/` + secret + `; cd /etc; echo $(ls -d new newdir ` + secret +
		`* 2>/dev/null); stat -c %u /etc'`); got != "secret\n"+secret+"\n0" {
		t.Errorf("got root's files %q", got)
	}
}

// layerLinks checks that a layer's links resolve as in the sandbox, and that replacing a link
// does not change its target.
func (s contents) layerLinks(t *testing.T) {
	if !s.isolates() {
		return // its layers contain only the working directory
	}
	if s.features.NoRoot {
		t.Skip("skipped: the guest cannot write outside of the working directory")
	}
	var raw bytes.Buffer
	out := tar.NewWriter(&raw)
	for _, h := range []tar.Header{
		{Name: "srv/x", Typeflag: tar.TypeReg, Size: 5},
		{Name: "mnt/data/abs", Typeflag: tar.TypeSymlink, Linkname: "/srv"},
		{Name: "mnt/data/rel", Typeflag: tar.TypeSymlink, Linkname: "../../../../../srv"},
		{Name: "mnt/data/file", Typeflag: tar.TypeSymlink, Linkname: "/srv/x"},
		{Name: "mnt/data/gone", Typeflag: tar.TypeSymlink, Linkname: "/srv"},
		{Name: "mnt/data/abs/y", Typeflag: tar.TypeReg, Size: 5},
		{Name: "mnt/data/rel/z", Typeflag: tar.TypeReg, Size: 5},
		{Name: "mnt/data/file", Typeflag: tar.TypeReg, Size: 5},
		{Name: "mnt/data/abs", Typeflag: tar.TypeDir},
		{Name: "mnt/data/abs/x", Typeflag: tar.TypeReg, Size: 5},
		{Name: "mnt/data/gone", Typeflag: tar.TypeReg, Size: 5},
	} {
		h.Mode = 0o755
		err := out.WriteHeader(&h)
		if h.Size > 0 && err == nil {
			_, err = io.WriteString(out, "12345")
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
	b := Start(t, s.open(t), sandbox.Spec{ID: "layers", Template: s.Template})
	if err := b.Client.ApplyArchive(t.Context(), &raw); err != nil {
		t.Fatal(err)
	}
	want := "/mnt/data/abs d\n/mnt/data/abs/x f\n/mnt/data/file f\n/mnt/data/gone f\n/mnt/data/rel l\n/srv/x f\n/srv/y f\n/srv/z f"
	if got := b.Must(`find /mnt/data /srv -mindepth 1 -printf '%p %y\n' | sort`); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
