package image

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"runtime"
	"slices"
	"strings"
)

// Files of archives of images.
const (
	layoutFile = "oci-layout"
	indexFile  = "index.json"
	dockerFile = "manifest.json"
	blobDir    = "blobs/sha256/"

	maxArchived = 10_000 // files in an archive
)

// LoadOptions say what Load takes. Zero values are the defaults.
type LoadOptions struct {
	Name string // of the template; default what the image is called in the archive
	Ref  string // the image, in an archive of several, by what it is called there
	AddOptions
}

// Load makes a template of an image in an archive, compressed or not: an OCI image
// layout, as Save and many builders write it, or what docker save writes.
func (l *Store) Load(ctx context.Context, r io.Reader, opts LoadOptions) (Template, error) {
	if opts.MaxBytes <= 0 {
		opts.MaxBytes = DefaultMaxBytes
	}
	using, err := l.shareLock(ctx, buildLock)
	if err != nil {
		return Template{}, err
	}
	defer using.Close()
	dir, err := os.MkdirTemp(l.dir, "building-*")
	if err != nil {
		return Template{}, err
	}
	defer os.RemoveAll(dir)
	a := &archived{dir: dir, files: map[string]file{}, links: map[string]string{}, platform: platformOf(opts.Platform)}
	if err := a.read(until(ctx, r, nil), opts.MaxBytes); err != nil {
		return Template{}, fmt.Errorf("reading the archive: %w", err)
	}
	img, err := a.image(opts.Ref)
	if err != nil {
		return Template{}, fmt.Errorf("the archive: %w", err)
	}
	if opts.Name == "" {
		if opts.Name = nameOf(img.Ref); opts.Name == "" {
			return Template{}, errors.New("the archive does not say what the image is called: the template needs a name")
		}
	}
	return l.Add(ctx, opts.Name, img, opts.AddOptions)
}

// platformOf returns a platform, this machine's by default.
func platformOf(p string) string {
	if p == "" {
		return "linux/" + runtime.GOARCH
	}
	return p
}

// An archived is an archive that lies unpacked in dir, its files by number.
type archived struct {
	dir      string
	platform string
	files    map[string]file   // by name
	links    map[string]string // targets, which old versions of docker save use
}

type file struct {
	path   string
	digest string
	size   int64
}

// read unpacks an archive of at most so many bytes.
func (a *archived) read(r io.Reader, most int64) error {
	plain, err := decompress(r)
	if err != nil {
		return err
	}
	defer plain.Close()
	in := tar.NewReader(plain)
	for {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if len(a.files)+len(a.links) >= maxArchived {
			return fmt.Errorf("%w: more than %d files", ErrTooLarge, maxArchived)
		}
		name := strings.TrimPrefix(path.Clean("/"+h.Name), "/")
		switch h.Typeflag {
		case tar.TypeReg:
			if most -= h.Size; h.Size < 0 || most < 0 {
				return fmt.Errorf("%w: it is longer than an image may be", ErrTooLarge)
			}
			if a.files[name], err = a.stage(in); err != nil {
				return err
			}
		case tar.TypeSymlink:
			a.links[name] = path.Join(path.Dir(name), h.Linkname)
		case tar.TypeLink:
			a.links[name] = strings.TrimPrefix(path.Clean("/"+h.Linkname), "/")
		}
	}
}

func (a *archived) stage(content io.Reader) (file, error) {
	f, err := os.CreateTemp(a.dir, "file-*")
	if err != nil {
		return file{}, err
	}
	sum := sha256.New()
	n, err := io.Copy(io.MultiWriter(f, sum), content)
	return file{f.Name(), "sha256:" + hex.EncodeToString(sum.Sum(nil)), n}, errors.Join(err, f.Close())
}

// find returns the file of a name.
func (a *archived) find(name string) (file, error) {
	if target, ok := a.links[name]; ok {
		name = target // links to links are nobody's
	}
	f, ok := a.files[path.Clean(name)]
	if !ok {
		return f, fmt.Errorf("there is no %.200q in it", name)
	}
	return f, nil
}

// document reads a file as JSON.
func (a *archived) document(name string, v any) ([]byte, error) {
	f, err := a.find(name)
	if err != nil {
		return nil, err
	}
	if f.size > maxDocument {
		return nil, fmt.Errorf("%w: %.200q has %d bytes", ErrTooLarge, name, f.size)
	}
	text, err := os.ReadFile(f.path)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(text, v); err != nil {
		return nil, fmt.Errorf("%.200q cannot be read: %w", name, err)
	}
	return text, nil
}

// image returns the image of a reference, or the only one.
func (a *archived) image(ref string) (Image, error) {
	if _, err := a.find(indexFile); err == nil {
		return a.layoutImage(ref)
	}
	if _, err := a.find(dockerFile); err == nil {
		return a.dockerImage(ref)
	}
	return Image{}, fmt.Errorf("it has neither %s nor %s: it is no archive of images", indexFile, dockerFile)
}

// An index names manifests, or other indexes.
type index struct {
	SchemaVersion int            `json:"schemaVersion"`
	MediaType     string         `json:"mediaType,omitempty"`
	Manifests     []indexedImage `json:"manifests"`
}

type indexedImage struct {
	descriptor
	Annotations map[string]string `json:"annotations,omitempty"`
	Platform    *struct {
		OS           string `json:"os"`
		Architecture string `json:"architecture"`
	} `json:"platform,omitempty"`
}

// Annotations that name an image: containerd's, which has all of the name, and OCI's.
const (
	fullNameKey = "io.containerd.image.name"
	refNameKey  = "org.opencontainers.image.ref.name"
)

func (i indexedImage) name() string {
	if full := i.Annotations[fullNameKey]; full != "" {
		return full
	}
	return i.Annotations[refNameKey]
}

// layoutImage finds an image in an OCI image layout.
func (a *archived) layoutImage(ref string) (Image, error) {
	var top index
	if _, err := a.document(indexFile, &top); err != nil {
		return Image{}, err
	}
	one, err := choose(top.Manifests, ref, indexedImage.name)
	if err != nil {
		return Image{}, err
	}
	img := Image{Ref: one.name(), Digest: one.Digest}
	for range 3 { // an index may be of indexes, but not without end
		var doc index // or a manifest
		text, err := a.document(blobDir+strings.TrimPrefix(one.Digest, "sha256:"), &doc)
		if err != nil {
			return img, err
		}
		if sumOf(text) != one.Digest {
			return img, fmt.Errorf("%.100q is something else", one.Digest)
		}
		if len(doc.Manifests) == 0 {
			img.Manifest, img.Open = text, a.open
			return img, nil
		}
		i := slices.IndexFunc(doc.Manifests, func(m indexedImage) bool {
			if m.Platform == nil {
				return len(doc.Manifests) == 1
			}
			got := m.Platform.OS + "/" + m.Platform.Architecture
			return got == a.platform || strings.HasPrefix(a.platform, got+"/")
		})
		if i < 0 {
			return img, fmt.Errorf("it has no image for %s", a.platform)
		}
		one = doc.Manifests[i]
	}
	return img, errors.New("its index is of indexes of indexes")
}

// open opens a blob of an OCI image layout.
func (a *archived) open(_ context.Context, b Blob) (io.ReadCloser, error) {
	f, err := a.find(blobDir + strings.TrimPrefix(b.Digest, "sha256:"))
	if err != nil {
		return nil, err
	}
	return os.Open(f.path)
}

// dockerImage finds an image in what docker save writes. It gets a manifest, which
// there is none of.
func (a *archived) dockerImage(ref string) (Image, error) {
	var all []dockerEntry
	if _, err := a.document(dockerFile, &all); err != nil {
		return Image{}, err
	}
	one, err := choose(all, ref, dockerEntry.name)
	if err != nil {
		return Image{}, err
	}
	if len(one.Layers) > maxLayers {
		return Image{}, fmt.Errorf("%w: the image has %d layers", ErrTooLarge, len(one.Layers))
	}
	paths := map[string]string{}
	add := func(media, name string) (descriptor, error) {
		f, err := a.find(name)
		paths[f.digest] = f.path
		return descriptor{media, f.digest, f.size}, err
	}
	m := manifest{SchemaVersion: 2, MediaType: typeOCIManifest}
	if m.Config, err = add(typeOCIConfig, one.Config); err != nil {
		return Image{}, err
	}
	for _, name := range one.Layers {
		d, err := add(typeOCILayer, name)
		if err != nil {
			return Image{}, err
		}
		m.Layers = append(m.Layers, d)
	}
	text, err := json.Marshal(m)
	return Image{Ref: one.name(), Manifest: text, Open: func(_ context.Context, b Blob) (io.ReadCloser, error) {
		return os.Open(paths[b.Digest])
	}}, err
}

// A dockerEntry is an image in what docker save writes.
type dockerEntry struct {
	Config   string
	RepoTags []string
	Layers   []string
}

func (e dockerEntry) name() string {
	if len(e.RepoTags) == 0 {
		return ""
	}
	return e.RepoTags[0]
}

// choose returns the image of a name, or the only one if there is no name.
func choose[T any](all []T, ref string, name func(T) string) (one T, err error) {
	var names []string
	for _, x := range all {
		if ref != "" && name(x) == ref || ref == "" && len(all) == 1 {
			return x, nil
		}
		names = append(names, fmt.Sprintf("%.200q", name(x)))
	}
	return one, fmt.Errorf("it has %d images: %s; which one?", len(all), strings.Join(names[:min(len(names), 20)], ", "))
}

// nameOf returns the name of a template of an image that is called ref.
func nameOf(ref string) string {
	base := ref[strings.LastIndex(ref, "/")+1:]
	base, _, _ = strings.Cut(base, "@")
	base = strings.TrimSuffix(base, ":latest")
	return strings.ToLower(strings.ReplaceAll(base, ":", "-"))
}

// member returns where a blob is in an archive.
func member(b Blob) string { return blobDir + strings.TrimPrefix(b.Digest, "sha256:") }
