package image

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/klauspost/compress/zstd"
)

// An ociImage is an image in memory. Tests may change its fields before they call image.
type ociImage struct {
	config v1.ConfigFile
	layers [][]byte          // as the registry sends them
	media  []types.MediaType // of the layers; default: OCI's

	mu     sync.Mutex
	opened map[string]int            // number of times each blob was opened
	blobs  map[string][]byte         // by digest
	reader func(io.Reader) io.Reader // wraps the content of every blob; may be nil
}

func newOCI(layers ...[]byte) *ociImage {
	o := &ociImage{layers: layers, opened: map[string]int{}, blobs: map[string][]byte{}}
	o.config.OS, o.config.Architecture = "linux", runtime.GOARCH
	for _, l := range layers {
		plain := l
		if r, err := decompress(bytes.NewReader(l)); err == nil {
			plain, _ = io.ReadAll(r)
		}
		o.config.RootFS.DiffIDs = append(o.config.RootFS.DiffIDs, hashOf(plain))
	}
	return o
}

func hashOf(content []byte) v1.Hash {
	h, err := v1.NewHash(sumOf(content))
	if err != nil {
		panic(err)
	}
	return h
}

func (o *ociImage) add(media types.MediaType, content []byte) v1.Descriptor {
	o.blobs[sumOf(content)] = content
	return v1.Descriptor{MediaType: media, Digest: hashOf(content), Size: int64(len(content))}
}

func (o *ociImage) image() Image {
	text, _ := json.Marshal(o.config)
	m := v1.Manifest{Config: o.add(types.OCIConfigJSON, text)}
	for i, l := range o.layers {
		media := types.OCIUncompressedLayer
		if i < len(o.media) {
			media = o.media[i]
		}
		m.Layers = append(m.Layers, o.add(media, l))
	}
	raw, _ := json.Marshal(m)
	return Image{Ref: "registry.example/app:1", Manifest: raw, Open: func(_ context.Context, b Blob) (io.ReadCloser,
		error) {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.opened[b.Digest]++
		var r io.Reader = bytes.NewReader(o.blobs[b.Digest])
		if o.reader != nil {
			r = o.reader(r)
		}
		return io.NopCloser(r), nil
	}}
}

// archive makes a tar archive; content "-> x" makes a link to x.
func archive(files ...any) []byte {
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, f := range files {
		h, ok := f.(tar.Header)
		if !ok {
			name, content, _ := strings.Cut(f.(string), "=")
			h = tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o755, Size: int64(len(content))}
			if target, ok := strings.CutPrefix(content, "-> "); ok {
				h.Typeflag, h.Linkname, h.Size = tar.TypeSymlink, target, 0
			}
			if strings.HasSuffix(name, "/") {
				h.Typeflag = tar.TypeDir
			}
			_ = w.WriteHeader(&h)
			if h.Size > 0 {
				_, _ = w.Write([]byte(content))
			}
			continue
		}
		_ = w.WriteHeader(&h)
		_, _ = io.CopyN(w, zeros{}, h.Size)
	}
	_ = w.Close()
	return buf.Bytes()
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func gzipped(b []byte) []byte {
	var buf bytes.Buffer
	w := gzip.NewWriter(&buf)
	_, _ = w.Write(b)
	_ = w.Close()
	return buf.Bytes()
}

func zstded(b []byte) []byte {
	w, _ := zstd.NewWriter(nil)
	return w.EncodeAll(b, nil)
}

const shell = "bin/sh=#!" // not run by any test of this package

func TestAdd(t *testing.T) {
	needRoot(t)
	l := open(t, t.TempDir())
	o := newOCI(
		gzipped(archive(shell, "etc/old=1", "etc/motd=hello", "opt/a/b=1", "usr/local/bin/=", "etc/sudoers.d/=")),
		zstded(archive("etc/.wh.old=", "opt/a/.wh..wh..opq=", "opt/a/c=2", "bin/bash=-> sh")),
		archive("etc/motd=goodbye"))
	o.config.Config.Env = []string{"PATH=/opt/bin:/bin", "A=1", "A=2", "=x", "BERTH_USER=root", "none"}
	o.config.Config.WorkingDir = "/srv"
	img := o.image()
	var seen []Progress
	got, err := l.Add(t.Context(), "app", img, AddOptions{Progress: func(p Progress) { seen = append(seen, p) }})
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		"etc/motd": "goodbye", "opt/a/c": "2", "etc/passwd": "user:x:1000:1000::/home/user:/bin/bash\n",
		"etc/group":          "user:x:1000:\n",
		"etc/sudoers.d/user": "Defaults !fqdn\nuser ALL=(ALL:ALL) NOPASSWD: ALL\n",
	} {
		if text, err := os.ReadFile(filepath.Join(got.Rootfs, path)); err != nil || string(text) != want {
			t.Errorf("%s is %q, %v, want %q", path, text, err, want)
		}
	}
	for _, path := range []string{"etc/old", "opt/a/b"} {
		if _, err := os.Lstat(filepath.Join(got.Rootfs, path)); err == nil {
			t.Errorf("%s exists, but a later layer removes it", path)
		}
	}
	for _, path := range []string{"mnt/data", "home/user", "usr/local/bin"} {
		if info, err := os.Stat(filepath.Join(got.Rootfs, path)); err != nil ||
			info.Sys().(*syscall.Stat_t).Uid != 1000 {
			t.Errorf("%s does not belong to the user: %v", path, err)
		}
	}
	want := Config{Env: []string{"PATH=/opt/bin:/bin", "A=2"}, WorkingDir: "/srv"}
	if diff := cmp.Diff(want, got.Config); diff != "" {
		t.Errorf("config (-want +got):\n%s", diff)
	}
	if o := got.Image; o == nil || o.Ref != img.Ref || o.Digest != sumOf(img.Manifest) ||
		o.Platform != "linux/"+runtime.GOARCH || len(o.Blobs) != 4 {
		t.Errorf("origin: got %+v", o)
	}
	if last := seen[len(seen)-1]; last.Phase != Finish || seen[0].Phase != Download {
		t.Errorf("progress: got %+v", seen)
	}
	if left := entries(t, l, "building-*"); len(left) != 0 {
		t.Errorf("leftovers: got %v, want none", left)
	}

	// Adding the same image again yields the same template and fetches nothing.
	opened := len(o.opened)
	again, err := l.Add(t.Context(), "app", o.image(), AddOptions{})
	if err != nil || again.Digest != got.Digest {
		t.Errorf("added again: got %s, %v, want %s", again.Digest, err, got.Digest)
	}
	for digest, n := range o.opened {
		if n != 1 || len(o.opened) != opened {
			t.Errorf("%s was fetched %d times", digest, n)
		}
	}
	// A different environment makes a different template.
	o.config.Config.Env = nil
	if other, err := l.Add(t.Context(), "other", o.image(), AddOptions{}); err != nil || other.Digest == got.Digest {
		t.Errorf("with another environment: got %s, %v", other.Digest, err)
	}
}

// Layers that images share are fetched and stored once.
func TestShared(t *testing.T) {
	needRoot(t)
	l := open(t, t.TempDir())
	base := gzipped(archive(shell))
	one, two := newOCI(base, archive("one=1")), newOCI(base, archive("two=2"), archive("two=2"))
	for name, o := range map[string]*ociImage{"one": one, "two": two} {
		if _, err := l.Add(t.Context(), name, o.image(), AddOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if n := one.opened[sumOf(base)] + two.opened[sumOf(base)]; n != 1 {
		t.Errorf("the shared layer was fetched %d times", n)
	}
	// Two manifests, two configurations, three layers.
	if got := entries(t, l, "blobs/*"); len(got) != 7 {
		t.Errorf("blobs: got %v, want 7", got)
	}
}

// An interrupted Add leaves no template; the next one fetches no complete blob again.
func TestCutOff(t *testing.T) {
	needRoot(t)
	l := open(t, t.TempDir())
	big := archive(shell, tar.Header{Typeflag: tar.TypeReg, Name: "big", Size: 1 << 20})
	o := newOCI(gzipped(archive("first=1")), big)
	broken := errors.New("the line is dead")
	o.reader = func(r io.Reader) io.Reader {
		return io.MultiReader(io.LimitReader(r, 100<<10), readFunc(func([]byte) (int, error) {
			if n, _ := r.Read(make([]byte, 1)); n == 0 {
				return 0, io.EOF
			}
			return 0, broken
		}))
	}
	if _, err := l.Add(t.Context(), "app", o.image(), AddOptions{}); !errors.Is(err, broken) {
		t.Fatalf("Add: %v, want %v", err, broken)
	}
	if n := o.opened[sumOf(big)]; n != attempts {
		t.Errorf("the broken blob was tried %d times, want %d", n, attempts)
	}
	if left := append(entries(t, l, "building-*"), append(entries(t, l, "templates/*"),
		entries(t, l, "names/*")...)...); len(left) != 0 {
		t.Errorf("leftovers: got %v, want none", left)
	}
	o.reader = func(r io.Reader) io.Reader { return io.LimitReader(r, 100<<10) }
	if _, err := l.Add(t.Context(), "app", o.image(), AddOptions{}); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("Add of a short blob: %v, want %v", err, io.ErrUnexpectedEOF)
	}
	o.reader = nil
	if _, err := l.Add(t.Context(), "app", o.image(), AddOptions{}); err != nil {
		t.Error(err)
	}
	if n := o.opened[o.config.RootFS.DiffIDs[0].String()]; n > 1 {
		t.Errorf("a whole blob was fetched %d times", n)
	}

	// Add returns the cause of a cancelled context.
	ctx, cancel := context.WithCancelCause(t.Context())
	enough := errors.New("enough")
	o = newOCI(archive(shell, "x=y"))
	o.reader = func(r io.Reader) io.Reader { cancel(enough); return r }
	if _, err := l.Add(ctx, "other", o.image(), AddOptions{}); !errors.Is(err, enough) {
		t.Errorf("Add: %v, want %v", err, enough)
	}
}

// Add rejects invalid images and writes nothing outside the template's tree.
func TestHostileImage(t *testing.T) {
	needRoot(t)
	bomb := func(size int64) []byte {
		return archive(shell, tar.Header{Typeflag: tar.TypeReg, Name: "big", Size: size})
	}
	for name, c := range map[string]struct {
		image func() *ociImage
		want  string
	}{
		"dots": {func() *ociImage { return newOCI(archive(shell, "../out=x")) }, "invalid archive"},
		"link out": {func() *ociImage {
			return newOCI(archive(shell, tar.Header{Typeflag: tar.TypeLink, Name: "a", Linkname: "../../out"}))
		}, "invalid archive"},
		"no shell":    {func() *ociImage { return newOCI(archive("app=x")) }, "no /bin/sh"},
		"shell out":   {func() *ociImage { return newOCI(archive("bin/sh=-> /bin/dash")) }, "no /bin/sh"},
		"shell a dir": {func() *ociImage { return newOCI(archive("bin/sh/=")) }, "/bin/sh is not an executable"},
		"shell a fifo": {func() *ociImage {
			return newOCI(archive(tar.Header{Typeflag: tar.TypeFifo, Name: "bin/sh", Mode: 0o755}))
		}, "/bin/sh is not an executable"},
		"bomb":      {func() *ociImage { return newOCI(gzipped(bomb(20 << 20))) }, "too large"},
		"zstd bomb": {func() *ociImage { return newOCI(zstded(bomb(20 << 20))) }, "too large"},
		"zeros": {func() *ociImage {
			return newOCI(gzipped(append(archive(shell), make([]byte, 20<<20)...)))
		}, "too large"},
		"two bombs": {func() *ociImage {
			return newOCI(gzipped(bomb(700<<10)), gzipped(bomb(700<<10)))
		}, "too large"},
		"other digest": {func() *ociImage {
			o := newOCI(archive(shell))
			o.config.RootFS.DiffIDs[0] = hashOf(nil)
			return o
		}, "the image lists"},
		"no diff ids": {func() *ociImage {
			o := newOCI(archive(shell))
			o.config.RootFS.DiffIDs = nil
			return o
		}, "lists 0 layers"},
		"platform": {func() *ociImage {
			o := newOCI(archive(shell))
			o.config.Architecture = "s390x"
			return o
		}, "linux/s390x"},
		"windows": {func() *ociImage { o := newOCI(archive(shell)); o.config.OS = "windows"; return o }, "windows"},
		"no user": {func() *ociImage {
			o := newOCI(archive(shell))
			o.config.Config.User = "nobody"
			return o
		}, "not in its /etc/passwd"},
		"no group": {func() *ociImage {
			o := newOCI(archive(shell))
			o.config.Config.User = "0:wheel"
			return o
		}, "not in its /etc/group"},
		"encrypted": {func() *ociImage {
			o := newOCI(archive(shell))
			o.media = []types.MediaType{types.OCIUncompressedLayer + "+encrypted"}
			return o
		}, "not a file system layer's"},
		"not a layer": {func() *ociImage {
			o := newOCI(archive(shell))
			o.media = []types.MediaType{"application/json"}
			return o
		}, "not a file system layer's"},
		"no layers": {func() *ociImage { return newOCI() }, "0 layers"},
		"not tar":   {func() *ociImage { return newOCI([]byte(strings.Repeat("no", 1000))) }, "invalid archive"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			l := open(t, filepath.Join(dir, "library"))
			_, err := l.Add(t.Context(), "app", c.image().image(), AddOptions{MaxBytes: 1 << 20})
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("Add: got %v, want an error with %q", err, c.want)
			}
			if left := append(entries(t, l, "building-*"), append(entries(t, l, "templates/*"),
				entries(t, l, "names/*")...)...); len(left) != 0 {
				t.Errorf("leftovers: got %v, want none", left)
			}
			if got, _ := filepath.Glob(filepath.Join(dir, "*")); len(got) != 1 {
				t.Errorf("outside of the store: got %v", got)
			}
		})
	}
	l := open(t, t.TempDir())
	o := newOCI(archive(shell))
	img := o.image()
	o.blobs[sumOf(o.layers[0])] = archive(shell, "more=1")
	if _, err := l.Add(t.Context(), "app", img, AddOptions{}); err == nil || !strings.Contains(err.Error(),
		"has another digest") {
		t.Errorf("Add of a forged blob: %v", err)
	}
	for what, raw := range map[string]string{"none": "",
		"index":  `{"mediaType":"application/vnd.oci.image.index.v1+json"}`,
		"digest": `{"config":{"digest":"../x"},"layers":[{}]}`,
		"size":   fmt.Sprintf(`{"config":{"digest":%q,"size":-1},"layers":[{}]}`, sumOf(nil)),
		"huge": fmt.Sprintf(
			`{"config":{"digest":%q,"size":9223372036854775807},"layers":[{"digest":%[1]q,"size":9223372036854775807}]}`,
			sumOf(nil))} {
		if _, err := l.Add(t.Context(), "app", Image{Manifest: []byte(raw)}, AddOptions{}); err == nil {
			t.Errorf("%s: Add accepted the manifest %s", what, raw)
		}
	}
}

// Add names the layer and the path in its errors.
func TestErrorNamesPath(t *testing.T) {
	needRoot(t)
	capability := tar.Header{Typeflag: tar.TypeReg, Name: "usr/bin/su2", Mode: 0o755, Format: tar.FormatPAX,
		PAXRecords: map[string]string{"SCHILY.xattr.security.capability": "x"}}
	for what, c := range map[string]struct {
		layers [][]byte
		want   []string
	}{
		"a malformed capability": {[][]byte{archive(shell), archive(capability)},
			[]string{"registry.example/app:1", "layer 2 of 2, sha256:", `"usr/bin/su2"`, "security.capability",
				"malformed"}},
		"a climbing name": {[][]byte{archive(shell), archive("a/../../b=1")}, []string{"layer 2 of 2", `"a/../../b"`}},
		"etc to nowhere": {[][]byte{archive(shell, "etc=-> /elsewhere")},
			[]string{`etc is a symbolic link to "/elsewhere"`}},
		"etc as a file": {[][]byte{archive(shell, "etc=1")}, []string{"etc/passwd: not a directory"}},
	} {
		_, err := open(t, t.TempDir()).Add(t.Context(), "app", newOCI(c.layers...).image(), AddOptions{})
		for _, want := range c.want {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: got %v, want an error with %s", what, err, want)
			}
		}
	}
}

// Add drops device nodes and follows links only within the tree.
func TestFitHostile(t *testing.T) {
	needRoot(t)
	dir := t.TempDir()
	outside := filepath.Join(dir, "outside")
	if err := os.WriteFile(outside, []byte("safe"), 0o600); err != nil {
		t.Fatal(err)
	}
	l := open(t, filepath.Join(dir, "library"))
	got, err := l.Add(t.Context(), "app", newOCI(archive(shell, "etc/passwd=-> "+outside,
		"etc/group=-> /../../../../etc/group", "var/lib/dpkg/status=-> /etc/hostname",
		"mnt/data=-> ../../../../../"+outside, "usr/local/x=-> "+outside, "etc/sudoers.d=-> /real", "real/=",
		"tmp=-> var/tmp",
		tar.Header{Typeflag: tar.TypeBlock, Name: "dev/sda", Devmajor: 8})).image(), AddOptions{})
	if err == nil {
		t.Errorf("Add with a dangling link as working directory: got %s", got.Digest)
	}
	got, err = l.Add(t.Context(), "app", newOCI(archive(shell, "etc/passwd=-> "+outside,
		"etc/group=-> /../../../../etc/group2", "etc/group2=app:x:7:\n", "var/lib/dpkg/status=-> /etc/hostname",
		"mnt/data=-> ../../../../../srv", "srv/=", "usr/local/x=-> "+outside, "etc/sudoers.d=-> /real", "real/=",
		"var/tmp/=", "tmp=-> var/tmp",
		tar.Header{Typeflag: tar.TypeBlock, Name: "dev/sda", Devmajor: 8})).image(), AddOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(outside); err != nil || string(text) != "safe" {
		t.Errorf("file outside of the tree: got %q, %v", text, err)
	}
	if info, err := os.Stat(outside); err != nil || info.Sys().(*syscall.Stat_t).Uid != 0 || info.Mode() != 0o600 {
		t.Errorf("outside of the tree: got %v, %v", info, err)
	}
	if _, err := os.Lstat(filepath.Join(got.Rootfs, "dev/sda")); err == nil {
		t.Error("the template has a device")
	}
	for path, want := range map[string]string{"etc/passwd": "user:x:1000:1000::/home/user:/bin/sh\n",
		"etc/group": "app:x:7:\nuser:x:1000:\n", "real/user": "Defaults !fqdn\nuser ALL=(ALL:ALL) NOPASSWD: ALL\n"} {
		if text, err := os.ReadFile(filepath.Join(got.Rootfs, path)); err != nil || string(text) != want {
			t.Errorf("%s is %q, %v, want %q", path, text, err, want)
		}
	}
	if info, err := os.Stat(filepath.Join(got.Rootfs, "srv")); err != nil || info.Sys().(*syscall.Stat_t).Uid != 1000 {
		t.Errorf("the working directory does not belong to the user: %v", err)
	}
}

// Commands run as the image's USER, or else as an ordinary user.
func TestUser(t *testing.T) {
	needRoot(t)
	const passwd = "root:x:0:0:root:/root:/bin/sh\nnode:x:1000:1000::/home/node:/bin/sh\napp:x:5:6::/srv/app:/bin/sh\n"
	for _, c := range []struct{ user, passwd, group, line, groups string }{
		{"", "", "", "user:x:1000:1000::/home/user:/bin/sh\n", "user:x:1000:\n"},
		{"", passwd, "node:x:1000:\n", passwd + "user:x:1000:1000::/home/node:/bin/sh\n", "node:x:1000:\n"},
		{"", "user:x:77:78::/u:/bin/sh\n", "x:x:1:", "user:x:77:78::/u:/bin/sh\n", "x:x:1:"},
		{"app", passwd, "app:x:6:", passwd + "user:x:5:6::/srv/app:/bin/sh\n", "app:x:6:"},
		{"app:node", passwd, "node:x:1000:\n", passwd + "user:x:5:1000::/srv/app:/bin/sh\n", "node:x:1000:\n"},
		{"root", passwd, "root:x:0:\n", passwd + "user:x:0:0::/root:/bin/sh\n", "root:x:0:\n"},
		{"0", "", "", "user:x:0:0::/home/user:/bin/sh\n", "user:x:0:\n"},
		{"4711:12", passwd, "x:x:1:", passwd + "user:x:4711:12::/home/user:/bin/sh\n", "x:x:1:\nuser:x:12:\n"},
		{"app", "user:x:9:9::/u:/bin/sh\napp:x:5:6::/srv/app:/bin/sh\n", "a:x:6:\n",
			"user:x:5:6::/srv/app:/bin/sh\nuser:x:9:9::/u:/bin/sh\napp:x:5:6::/srv/app:/bin/sh\n", "a:x:6:\n"},
		{"", "noise\n:::\nbad:x:-1:0::/:/bin/sh\nlast:x:8:8::/:/bin/sh", "x:x:1:\n",
			"noise\n:::\nbad:x:-1:0::/:/bin/sh\nlast:x:8:8::/:/bin/sh\nuser:x:1000:1000::/home/user:/bin/sh\n",
			"x:x:1:\nuser:x:1000:\n"},
	} {
		files := map[string]string{"bin/sh": "#!"}
		if c.passwd != "" {
			files["etc/passwd"] = c.passwd
		}
		if c.group != "" {
			files["etc/group"] = c.group
		}
		root := tree(t, files)
		if err := os.Chmod(filepath.Join(root, "bin/sh"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := fit(root, c.user); err != nil {
			t.Errorf("USER %q: %v", c.user, err)
			continue
		}
		for path, want := range map[string]string{"etc/passwd": c.line, "etc/group": c.groups} {
			if got, _ := os.ReadFile(filepath.Join(root, path)); string(got) != want {
				t.Errorf("USER %q: %s is %q, want %q", c.user, path, got, want)
			}
		}
	}
}
