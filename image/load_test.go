package image

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	tagged "github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

// saved returns a template's archive.
func saved(t *testing.T, l *Store, ref string) []byte {
	t.Helper()
	var buf bytes.Buffer
	if err := l.Save(t.Context(), ref, &buf, nil); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

// Load restores the template that Save wrote, whatever its origin.
func TestSaveLoad(t *testing.T) {
	needRoot(t)
	here, there := open(t, t.TempDir()), open(t, t.TempDir())
	o := newOCI(gzipped(archive(shell, "etc/motd=hello")), archive("etc/.wh.motd=", "srv/x=1"))
	o.config.Config.Env = []string{"A=1"}
	made, err := here.Add(t.Context(), "app", o.image(), AddOptions{})
	if err != nil {
		t.Fatal(err)
	}
	text := saved(t, here, "app")
	got, err := there.Load(t.Context(), bytes.NewReader(gzipped(text)), LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got.Name != "app-1" || got.Digest != made.Digest || got.Image.Manifest != made.Image.Manifest ||
		got.Image.Ref != made.Image.Ref {
		t.Errorf("loaded: got %+v, want %+v", got, made)
	}

	// Save writes a template without an image as an image of one layer.
	made = keep(t, here, "debian", "hello\n")
	root := made.Rootfs
	for path, content := range map[string]string{"bin/sh": "#!", "etc/passwd": "user:x:1000:1000::/home/user:/bin/sh\n",
		"etc/group": "user:x:1000:\n"} {
		if err := errors.Join(os.MkdirAll(filepath.Dir(filepath.Join(root, path)), 0o755),
			os.WriteFile(filepath.Join(root, path), []byte(content), 0o755)); err != nil {
			t.Fatal(err)
		}
	}
	if err := fit(root, ""); err != nil {
		t.Fatal(err)
	}
	want, _, err := digest(root, Config{})
	if err != nil {
		t.Fatal(err)
	}
	text = saved(t, here, "debian")
	if again := saved(t, here, "debian"); !bytes.Equal(again, text) {
		t.Error("saving again wrote a different archive")
	}
	got, err = there.Load(t.Context(), bytes.NewReader(text), LoadOptions{})
	if err != nil || got.Digest != want || got.Name != "debian" {
		t.Errorf("loaded: got %s %s, %v, want %s", got.Name, got.Digest, err, want)
	}
	if got := entries(t, here, "blobs/*"); len(got) != 4 {
		t.Errorf("Save left blobs: %v", got)
	}
	// go-containerregistry's validation accepts the archive.
	dir := t.TempDir()
	if err := newArchived(dir, "").read(bytes.NewReader(text), 1<<30); err != nil {
		t.Fatal(err)
	}
	index, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(index); err != nil {
		t.Errorf("the layout is invalid: %v", err)
	}
	path := filepath.Join(t.TempDir(), "x.tar")
	if err := here.SaveFile(t.Context(), "debian", path, nil); err != nil {
		t.Fatal(err)
	}
	tag, err := tagged.NewTag("debian:latest")
	if err != nil {
		t.Fatal(err)
	}
	img, err := tarball.ImageFromPath(path, &tag)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Image(img); err != nil {
		t.Errorf("as a docker archive: %v", err)
	}
	if c, err := img.ConfigFile(); err != nil || c.OS != "linux" || len(c.RootFS.DiffIDs) != 1 {
		t.Errorf("configuration: got %+v, %v", c, err)
	}
}

// dockerArchive returns an archive in the format that docker save wrote before OCI layouts.
func dockerArchive(o *ociImage, tags ...string) []byte {
	config, _ := json.Marshal(o.config)
	files := []any{"cfg.json=" + string(config)}
	entry := tarball.Descriptor{Config: "cfg.json", RepoTags: tags}
	for i, l := range o.layers {
		dir := string(rune('a' + i))
		files = append(files, dir+"/=", dir+"/VERSION=1.0", "store/"+dir+".tar="+string(l),
			dir+"/layer.tar=-> ../store/"+dir+".tar")
		entry.Layers = append(entry.Layers, dir+"/layer.tar")
	}
	text, _ := json.Marshal(tarball.Manifest{entry})
	return archive(append(files, "manifest.json="+string(text))...)
}

func TestLoadDocker(t *testing.T) {
	needRoot(t)
	l := open(t, t.TempDir())
	o := newOCI(archive(shell, "etc/motd=hello"), archive("etc/.wh.motd=", "srv/x=1"))
	got, err := l.Load(t.Context(), bytes.NewReader(dockerArchive(o, "registry.example/team/app:1.5")), LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got.Name != "app-1.5" || got.Image.Ref != "registry.example/team/app:1.5" {
		t.Errorf("loaded: got %+v", got)
	}
	if text, err := os.ReadFile(filepath.Join(got.Rootfs, "srv/x")); err != nil || string(text) != "1" {
		t.Errorf("content: got %q, %v", text, err)
	}
	if _, err := os.Stat(filepath.Join(got.Rootfs, "etc/motd")); err == nil {
		t.Error("a file that the second layer removes is still there")
	}
}

// Load finds the files of a docker archive under any names and through links.
func TestLoadDockerForms(t *testing.T) {
	needRoot(t)
	o := newOCI(archive(shell, "srv/x=1"))
	config, _ := json.Marshal(o.config)
	plain, packed := string(o.layers[0]), string(gzipped(o.layers[0]))
	manifest := func(config, layer string) string {
		return fmt.Sprintf(`manifest.json=[{"Config":%q,"RepoTags":["app:1"],"Layers":[%q]}]`, config, layer)
	}
	blob := blobDir + strings.TrimPrefix(sumOf(config), "sha256:")
	for name, text := range map[string][]byte{
		"compressed": archive(manifest("c.json", "l.tar.gz"), "c.json="+string(config), "l.tar.gz="+packed),
		"hard link": archive("c.json="+string(config), "store/l="+plain, tar.Header{Typeflag: tar.TypeLink,
			Name: "a/l", Linkname: "store/l"}, manifest("c.json", "a/l")),
		"blobs": archive(manifest(blob, blobDir+"l.tar"), blob+"="+string(config), blobDir+"l.tar="+plain),
		"twice": archive("c.json="+string(config), "c.json=x", "l="+plain, manifest("c.json", "l")),
	} {
		got, err := open(t, t.TempDir()).Load(t.Context(), bytes.NewReader(text), LoadOptions{})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if x, err := os.ReadFile(filepath.Join(got.Rootfs, "srv/x")); err != nil || string(x) != "1" {
			t.Errorf("%s: content: got %q, %v", name, x, err)
		}
	}
}

// Load bounds the documents that it reads into memory.
func TestLoadLargeDocuments(t *testing.T) {
	needRoot(t)
	large := tar.Header{Typeflag: tar.TypeReg, Name: "c", Size: MaxDocument + 1}
	named := func(name string) tar.Header { h := large; h.Name = name; return h }
	for name, text := range map[string][]byte{
		"index":    archive(named("index.json")),
		"manifest": archive(named("manifest.json")),
		"config":   archive(named("c"), `manifest.json=[{"Config":"c","Layers":["c"]}]`),
		"blob": archive(`index.json={"manifests":[{"digest":"`+sumOf(nil)+`"}]}`,
			named(blobDir+strings.TrimPrefix(sumOf(nil), "sha256:"))),
	} {
		if _, err := open(t, t.TempDir()).Load(t.Context(), bytes.NewReader(text),
			LoadOptions{Name: "app"}); !errors.Is(err, ErrTooLarge) {
			t.Errorf("%s: got %v, want %v", name, err, ErrTooLarge)
		}
	}
}

func TestLoadHostile(t *testing.T) {
	needRoot(t)
	blob := func(text string) string { return blobDir + strings.TrimPrefix(sumOf([]byte(text)), "sha256:") }
	layout := func(text string) []byte {
		return archive("index.json={\"manifests\":[{\"digest\":\""+sumOf([]byte(text))+"\"}]}", blob(text)+"="+text)
	}
	loop := `{"manifests":[{"digest":"sha256:0"}]}`
	for name, c := range map[string]struct {
		archive []byte
		want    string
	}{
		"empty":     {archive(), "not an image archive"},
		"not tar":   {[]byte(strings.Repeat("no", 1000)), "invalid tar"},
		"nothing":   {nil, "not an image archive"},
		"no images": {archive(`index.json={"manifests":[]}`), "0 images"},
		"two":       {archive(`manifest.json=[{"RepoTags":["a:1"]},{"RepoTags":["b:1"]}]`), `"a:1", "b:1"`},
		"dots": {archive(`index.json={"manifests":[{"digest":"sha256:../../../../../../../../etc/passwd"}]}`),
			"no valid index"},
		"docker dots": {archive(
			`manifest.json=[{"Config":"../../../../../../../../etc/passwd","Layers":["/etc/passwd"]}]`),
			"archive lacks"},
		"docker link": {archive("c=-> /etc/passwd", `manifest.json=[{"Config":"c"}]`), "archive lacks"},
		"link loop":   {archive("c=-> c", `manifest.json=[{"Config":"c"}]`), "archive lacks"},
		"forged": {archive(`index.json={"manifests":[{"digest":"`+sumOf(nil)+`"}]}`, blob("")+"={}"),
			"another digest"},
		"no layers": {layout(`{"config":{},"layers":[]}`), "0 layers"},
		"platform": {layout(`{"manifests":[{"platform":{"os":"linux","architecture":"s390x"}}]}`),
			"no image for linux/"},
		"loop":     {layout(loop), "no valid manifest"},
		"long":     {archive(tar.Header{Typeflag: tar.TypeReg, Name: "x", Size: 2 << 20}), "too large"},
		"bomb":     {gzipped(archive(tar.Header{Typeflag: tar.TypeReg, Name: "x", Size: 2 << 20})), "too large"},
		"document": {archive("index.json=" + strings.Repeat(" ", 900_000) + "x"), `parse "index.json"`},
		"bad name": {dockerArchive(newOCI(archive(shell)), "A B"), "must match"},
		"no name":  {dockerArchive(newOCI(archive(shell))), "set a name"},
	} {
		t.Run(name, func(t *testing.T) {
			l := open(t, t.TempDir())
			as := map[bool]string{true: "", false: "app"}[strings.HasSuffix(name, " name")]
			_, err := l.Load(t.Context(), bytes.NewReader(c.archive),
				LoadOptions{Name: as, AddOptions: AddOptions{MaxBytes: 1 << 20}})
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("Load: got %v, want an error with %q", err, c.want)
			}
			if left := append(entries(t, l, "building-*"), append(entries(t, l, "templates/*"),
				entries(t, l, "names/*")...)...); len(left) != 0 {
				t.Errorf("leftovers: got %v, want none", left)
			}
		})
	}
}

func FuzzLoad(f *testing.F) {
	o := newOCI(archive(shell))
	f.Add(dockerArchive(o, "a:1"))
	f.Add(archive(`index.json={"manifests":[{"digest":"sha256:0"}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		a := newArchived(t.TempDir(), "linux/amd64")
		if a.read(bytes.NewReader(text), 1<<20) != nil {
			return
		}
		img, err := a.image("")
		if err != nil {
			return
		}
		o, err := readManifest(img, 1<<20)
		if err != nil {
			return
		}
		for _, b := range o.Blobs {
			if r, err := img.Open(t.Context(), b); err == nil {
				if f, ok := r.(*os.File); ok && filepath.Dir(f.Name()) != filepath.Join(string(a.dir), blobDir) {
					t.Errorf("the archive has a blob of %v", f.Name())
				}
				_, _ = io.Copy(io.Discard, r)
				r.Close()
			}
		}
	})
}
