// Command oci writes an image of Berth for several architectures: an OCI layout as a tar file, which
// podman, skopeo, crane and docker load read, or an image index in a registry. It needs no Docker
// daemon. Docker's classic store has one architecture; there docker load takes the first.
//
//	go run ./packaging/oci -tag berth:latest -o dist/berth.tar amd64=bin/berth arm64=dist/berth-arm64
//	go run ./packaging/oci -tag berth:latest -o dist/berth.tar -template amd64=base.tar amd64=bin/berth
//	go run ./packaging/oci -tag registry.example.com/berth:1.2.3 -push amd64=bin/berth
//	go run ./packaging/oci -o dist/berth.tar -sbom amd64=bom.json -source URL@COMMIT -sign key.pem amd64=bin/berth
//
// Beside each image the index has its provenance and, with -sbom, its bill of materials, as BuildKit attaches them.
// -sign adds a signature as cosign makes it, without a transparency log.
package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// options are the arguments of the command.
type options struct {
	tag       string // name of the image
	out       string // file to write, or empty
	push      bool
	roots     string            // file with certificates
	templates map[string]string // archives of the base template by architecture
	boms      map[string]string // files with bills of materials by architecture
	source    string            // URL@COMMIT, or empty
	key       string            // file with the key that signs, or empty
	notices   string            // file with the licences of what the program contains, or empty
	programs  []string          // ARCH=PATH
}

func main() {
	o := options{templates: map[string]string{}, boms: map[string]string{}}
	byArch := func(files map[string]string) func(string) error {
		return func(value string) error {
			arch, file, ok := strings.Cut(value, "=")
			if !ok {
				return errors.New("it is not ARCH=FILE")
			}
			files[arch] = file
			return nil
		}
	}
	flag.StringVar(&o.tag, "tag", "berth:latest", "name of the image")
	flag.StringVar(&o.out, "o", "", "file to write")
	flag.BoolVar(&o.push, "push", false, "push the image to the registry of its name")
	flag.StringVar(&o.roots, "ca", "/etc/ssl/certs/ca-certificates.crt",
		"certificates of the authorities that the server trusts")
	flag.Func("template", "ARCH=ARCHIVE of the base template of an architecture, as berth image save writes it",
		byArch(o.templates))
	flag.Func("sbom", "ARCH=FILE with the bill of materials of an architecture, as packaging/sbom writes it",
		byArch(o.boms))
	flag.StringVar(&o.source, "source", "", "URL@COMMIT that the programs are built from")
	flag.StringVar(&o.key, "sign", "", "PEM file with an ECDSA key that signs the index as cosign does")
	flag.StringVar(&o.notices, "notices", "", "file with the licences of what the programs contain")
	flag.Parse()
	o.programs = flag.Args()
	if o.out == "" && !o.push || flag.NArg() == 0 {
		fmt.Fprintln(os.Stderr, "usage: oci [flags] ARCH=PROGRAM…")
		flag.PrintDefaults()
		os.Exit(2)
	}
	if err := run(o); err != nil {
		fmt.Fprintln(os.Stderr, "oci:", err)
		os.Exit(1)
	}
}

// run makes the images of programs, and writes or pushes their index.
func run(o options) error {
	ref, err := name.NewTag(o.tag)
	if err != nil {
		return err
	}
	created, err := sourceDate()
	if err != nil {
		return err
	}
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	var first v1.Image
	var attached []mutate.IndexAddendum
	for _, p := range o.programs {
		arch, program, ok := strings.Cut(p, "=")
		if !ok {
			return fmt.Errorf("%q is not ARCH=PROGRAM", p)
		}
		img, err := image(arch, program, o, created)
		if err != nil {
			return fmt.Errorf("%s: %w", arch, err)
		}
		if first == nil {
			first = img
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: img,
			Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: arch}}})
		said, digest, err := attestations(img, ref, arch, o.boms[arch], o.source)
		if err != nil {
			return fmt.Errorf("%s: attestations: %w", arch, err)
		}
		attached = append(attached, mutate.IndexAddendum{Add: said, Descriptor: v1.Descriptor{
			Platform: &v1.Platform{OS: "unknown", Architecture: "unknown"},
			Annotations: map[string]string{"vnd.docker.reference.type": "attestation-manifest",
				"vnd.docker.reference.digest": digest.String()}}})
	}
	index = mutate.AppendManifests(index, attached...)
	var signed v1.Image
	var at name.Tag
	if o.key != "" {
		if signed, at, err = signature(index, ref, o.key); err != nil {
			return fmt.Errorf("sign: %w", err)
		}
	}
	if o.push {
		auth := remote.WithAuthFromKeychain(authn.DefaultKeychain)
		if err := remote.WriteIndex(ref, index, auth); err != nil {
			return fmt.Errorf("push: %w", err)
		}
		if signed != nil {
			if err := remote.Write(at, signed, auth); err != nil {
				return fmt.Errorf("push the signature: %w", err)
			}
		}
	}
	if o.out == "" {
		return nil
	}
	return archive(ref, o.out, index, first, signed, at)
}

// image returns the image of a program for one architecture, with a layer for the archive of a template if there is
// one.
func image(arch, program string, o options, created time.Time) (v1.Image, error) {
	content, err := contents(program, o.roots, o.notices, created)
	if err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(content)), nil
	}, tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, err
	}
	img := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	layers := []v1.Layer{layer}
	if template := o.templates[arch]; template != "" {
		if layer, err = templateLayer(arch, template, created); err != nil {
			return nil, err
		}
		layers = append(layers, layer)
	}
	for _, layer := range layers {
		img, err = mutate.Append(img, mutate.Addendum{Layer: layer, MediaType: types.OCILayer,
			History: v1.History{Created: v1.Time{Time: created}, CreatedBy: "packaging/oci"}})
		if err != nil {
			return nil, err
		}
	}
	config, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Created = "linux", arch, v1.Time{Time: created}
	config.Config = v1.Config{
		Entrypoint:   []string{"/usr/bin/berth"},
		Cmd:          []string{"serve", "--listen", "0.0.0.0:8080", "--await-key"},
		Env:          []string{"PATH=/usr/bin", "BERTH_STATE=/var/lib/berth"},
		ExposedPorts: map[string]struct{}{"8080/tcp": {}},
		Volumes:      map[string]struct{}{"/var/lib/berth": {}},
	}
	return mutate.ConfigFile(img, config)
}

// archive writes an OCI layout with the index and its signature, if there is one, and the file in which Docker's
// classic store finds the first image.
func archive(ref name.Tag, out string, index v1.ImageIndex, first, signed v1.Image, at name.Tag) error {
	dir, err := os.MkdirTemp(filepath.Dir(out), ".oci-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	to, err := layout.Write(dir, empty.Index)
	if err != nil {
		return err
	}
	if err := to.AppendIndex(index, layout.WithAnnotations(map[string]string{
		"org.opencontainers.image.ref.name": ref.TagStr(), "io.containerd.image.name": ref.Name()})); err != nil {
		return err
	}
	if signed != nil {
		if err := to.AppendImage(signed, layout.WithAnnotations(map[string]string{
			"org.opencontainers.image.ref.name": at.TagStr()})); err != nil {
			return err
		}
	}
	manifest, err := first.Manifest()
	if err != nil {
		return err
	}
	blob := func(h v1.Hash) string { return path.Join("blobs", h.Algorithm, h.Hex) }
	type classic struct {
		Config   string
		RepoTags []string
		Layers   []string
	}
	c := classic{Config: blob(manifest.Config.Digest), RepoTags: []string{ref.String()}}
	for _, l := range manifest.Layers {
		c.Layers = append(c.Layers, blob(l.Digest))
	}
	raw, err := json.Marshal([]classic{c})
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "manifest.json"), raw, 0o644); err != nil {
		return err
	}
	f, err := os.Create(out)
	if err != nil {
		return err
	}
	return errors.Join(pack(f, os.DirFS(dir)), f.Close())
}

// pack writes the files of a directory as a tar file, in the order of their names.
func pack(out io.Writer, dir fs.FS) error {
	w := tar.NewWriter(out)
	err := fs.WalkDir(dir, ".", func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		f, err := dir.Open(name)
		if err != nil {
			return err
		}
		defer f.Close()
		fi, err := f.Stat()
		if err != nil {
			return err
		}
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: fi.Size(), ModTime: time.Unix(0, 0),
			Typeflag: tar.TypeReg}); err != nil {
			return err
		}
		_, err = io.Copy(w, f)
		return err
	})
	return errors.Join(err, w.Close())
}

// sourceDate returns the time of SOURCE_DATE_EPOCH, so that the same input gives the same image.
func sourceDate() (time.Time, error) {
	seconds := os.Getenv("SOURCE_DATE_EPOCH")
	if seconds == "" {
		return time.Unix(0, 0).UTC(), nil
	}
	n, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("SOURCE_DATE_EPOCH: %w", err)
	}
	return time.Unix(n, 0).UTC(), nil
}

// contents returns the file system of the image as a tar file.
func contents(program, roots, notices string, at time.Time) ([]byte, error) {
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	add := func(name string, mode int64, data []byte) error {
		h := &tar.Header{Name: name, Mode: mode, Size: int64(len(data)), ModTime: at, Typeflag: tar.TypeReg}
		if data == nil {
			h.Typeflag = tar.TypeDir
		}
		err := w.WriteHeader(h)
		if err == nil {
			_, err = w.Write(data)
		}
		return err
	}
	binary, err := os.ReadFile(program)
	if err != nil {
		return nil, err
	}
	certificates, err := os.ReadFile(roots)
	if err != nil {
		return nil, err
	}
	for _, dir := range []string{"etc/", "etc/ssl/", "etc/ssl/certs/", "usr/", "usr/bin/", "usr/share/",
		"usr/share/doc/", "usr/share/doc/berth/", "var/", "var/lib/", "root/"} {
		err = errors.Join(err, add(dir, 0o755, nil))
	}
	if notices != "" {
		text, readErr := os.ReadFile(notices)
		if readErr != nil {
			return nil, readErr
		}
		err = errors.Join(err, add("usr/share/doc/berth/NOTICES", 0o644, text))
	}
	err = errors.Join(err, add("tmp/", 0o1777, nil), add("var/lib/berth/", 0o700, nil),
		add("etc/passwd", 0o644, []byte("root:x:0:0:root:/root:/sbin/nologin\n")),
		add("etc/group", 0o644, []byte("root:x:0:\n")),
		add("etc/ssl/certs/ca-certificates.crt", 0o644, certificates),
		add("usr/bin/berth", 0o755, binary), w.Close())
	return buf.Bytes(), err
}

// templateLayer returns a layer with the archive of a template at the place where berth serve looks for it. The archive
// is compressed already.
func templateLayer(arch, archive string, at time.Time) (v1.Layer, error) {
	info, err := os.Stat(archive)
	if err != nil {
		return nil, err
	}
	open := func() (io.ReadCloser, error) {
		f, err := os.Open(archive)
		if err != nil {
			return nil, err
		}
		from, to := io.Pipe()
		go func() {
			defer f.Close()
			w := tar.NewWriter(to)
			for _, dir := range []string{"usr/", "usr/share/", "usr/share/berth/", templatesDir} {
				err = errors.Join(err, w.WriteHeader(&tar.Header{Name: dir, Mode: 0o755, ModTime: at,
					Typeflag: tar.TypeDir}))
			}
			err = errors.Join(err, w.WriteHeader(&tar.Header{Name: templatesDir + "base_" + arch + ".tar", Mode: 0o644,
				Size: info.Size(), ModTime: at, Typeflag: tar.TypeReg}))
			if err == nil {
				_, err = io.Copy(w, f)
			}
			to.CloseWithError(errors.Join(err, w.Close()))
		}()
		return from, nil
	}
	return tarball.LayerFromOpener(open, tarball.WithMediaType(types.OCILayer),
		tarball.WithCompressionLevel(gzip.NoCompression))
}

// templatesDir is the default of template_archives.
const templatesDir = "usr/share/berth/templates/"
