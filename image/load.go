package image

import (
	"archive/tar"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"strings"

	tagged "github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// Paths in an image archive.
const (
	layoutFile = "oci-layout"
	indexFile  = "index.json"
	dockerFile = "manifest.json"
	blobDir    = "blobs/sha256/"

	maxArchived = 10_000 // files in an archive
)

// LoadOptions configures Load. Zero values select the defaults.
type LoadOptions struct {
	Name string // template name; default: derived from the image's name in the archive
	Ref  string // name of the image to load; required if the archive holds several
	AddOptions
}

// Load creates a template from an image archive, compressed or not. The archive is an OCI
// image layout, as Save and many builders write it, or the output of docker save.
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
	a := newArchived(dir, platformOf(opts.Platform))
	if err := a.read(until(ctx, r, nil), opts.MaxBytes); err != nil {
		return Template{}, fmt.Errorf("read archive: %w", err)
	}
	img, err := a.image(opts.Ref)
	if err != nil {
		return Template{}, fmt.Errorf("archive: %w", err)
	}
	if opts.Name == "" {
		if opts.Name = nameOf(img.Ref); opts.Name == "" {
			return Template{}, errors.New("the archive does not name its image: set a name for the template")
		}
	}
	return l.Add(ctx, opts.Name, img, opts.AddOptions)
}

// platformOf returns p, or this machine's platform if p is "".
func platformOf(p string) string {
	if p == "" {
		return "linux/" + runtime.GOARCH
	}
	return p
}

// An unpackedArchive is an unpacked image archive: an OCI image layout in dir, and the files of
// docker save that may accompany or replace it.
type unpackedArchive struct {
	dir      layout.Path
	platform string
	blobs    map[string]int64 // size by digest of each blob in the layout

	docker bool              // whether the archive has a manifest.json
	sizes  map[string]int64  // size by name of each file in others
	links  map[string]string // target by name of each link in others
}

// others returns the path of a tar archive with the files outside the layout.
func (a *unpackedArchive) others() string { return filepath.Join(string(a.dir), "others.tar") }

func newArchived(dir, platform string) *unpackedArchive {
	return &unpackedArchive{dir: layout.Path(dir), platform: platform, blobs: map[string]int64{},
		sizes: map[string]int64{},
		links: map[string]string{}}
}

// read unpacks an archive. It returns ErrTooLarge if the files together exceed maxBytes.
func (a *unpackedArchive) read(r io.Reader, maxBytes int64) error {
	plain, err := decompress(r)
	if err != nil {
		return err
	}
	defer plain.Close()
	if err := os.MkdirAll(filepath.Join(string(a.dir), blobDir), 0o700); err != nil {
		return err
	}
	f, err := os.Create(a.others())
	if err != nil {
		return err
	}
	defer f.Close()
	others := tar.NewWriter(f)
	in := tar.NewReader(plain)
	for n := 0; ; n++ {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return errors.Join(a.copyBlobs(others), others.Close())
		}
		if err != nil {
			return fmt.Errorf("read archive: %w", err)
		}
		if n >= maxArchived {
			return fmt.Errorf("%w: more than %d files", ErrTooLarge, maxArchived)
		}
		if maxBytes -= h.Size; h.Size < 0 || maxBytes < 0 {
			return fmt.Errorf("%w: the archive exceeds the size limit", ErrTooLarge)
		}
		if err := a.file(h, in, others); err != nil {
			return err
		}
	}
}

// file unpacks a file of the layout, and copies any other file that tarball may need.
func (a *unpackedArchive) file(h *tar.Header, content io.Reader, others *tar.Writer) error {
	name := strings.TrimPrefix(path.Clean("/"+h.Name), "/")
	hex, isBlob := strings.CutPrefix(name, blobDir)
	if isBlob = isBlob && digestPattern.MatchString("sha256:"+hex); h.Typeflag == tar.TypeReg &&
		(isBlob || name == indexFile) {
		if isBlob {
			a.blobs["sha256:"+hex] = h.Size
		} else if h.Size > MaxDocument {
			return fmt.Errorf("%w: %q has %d bytes", ErrTooLarge, name, h.Size)
		}
		f, err := os.Create(filepath.Join(string(a.dir), name))
		if err != nil {
			return err
		}
		_, err = io.Copy(f, content)
		return errors.Join(err, f.Close())
	}
	if _, twice := a.sizes[name]; twice || a.links[name] != "" {
		return nil // the first wins
	}
	next := &tar.Header{Typeflag: h.Typeflag, Name: name, Size: h.Size}
	switch h.Typeflag {
	case tar.TypeReg:
		a.sizes[name] = h.Size
		a.docker = a.docker || name == dockerFile
	case tar.TypeSymlink: // old versions of docker save use links
		next.Linkname = h.Linkname
		a.links[name] = path.Join(path.Dir(name), path.Clean(h.Linkname))
	case tar.TypeLink: // tarball resolves targets relative to the link
		a.links[name] = strings.TrimPrefix(path.Clean("/"+h.Linkname), "/")
		next.Typeflag, next.Linkname = tar.TypeSymlink, strings.Repeat("../", strings.Count(name, "/"))+a.links[name]
	default:
		return nil
	}
	if err := others.WriteHeader(next); err != nil {
		return err
	}
	_, err := io.Copy(others, content)
	return err
}

// copyBlobs copies the layout's blobs to others if there is no index, because manifest.json
// may refer to them.
func (a *unpackedArchive) copyBlobs(others *tar.Writer) error {
	if a.hasIndex() || !a.docker {
		return nil
	}
	for digest, size := range a.blobs {
		name := member(digest)
		if err := others.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Size: size}); err != nil {
			return err
		}
		f, err := os.Open(filepath.Join(string(a.dir), name))
		if err != nil {
			return err
		}
		_, err = io.Copy(others, f)
		if err := errors.Join(err, f.Close()); err != nil {
			return err
		}
		a.sizes[name] = size
	}
	return nil
}

func (a *unpackedArchive) hasIndex() bool {
	_, err := os.Stat(filepath.Join(string(a.dir), indexFile))
	return err == nil
}

// image returns the image named ref, or the only image if ref is "".
func (a *unpackedArchive) image(ref string) (Image, error) {
	if a.hasIndex() {
		return a.layoutImage(ref)
	}
	if a.docker {
		return a.dockerImage(ref)
	}
	return Image{}, fmt.Errorf("not an image archive: it has neither %s nor %s", indexFile, dockerFile)
}

// Annotations that name an image: containerd's holds the full name, OCI's only the tag.
const (
	fullNameKey = "io.containerd.image.name"
	refNameKey  = "org.opencontainers.image.ref.name"
)

// layoutImage returns an image of the OCI image layout.
func (a *unpackedArchive) layoutImage(ref string) (Image, error) {
	top, err := layout.ImageIndexFromPath(string(a.dir))
	if err != nil {
		return Image{}, fmt.Errorf("read index: %w", err)
	}
	list, err := top.IndexManifest()
	if err != nil {
		return Image{}, fmt.Errorf("no valid index: parse %q: %w", indexFile, err)
	}
	name := func(d v1.Descriptor) string {
		return cmp.Or(d.Annotations[fullNameKey], d.Annotations[refNameKey])
	}
	one, err := choose(list.Manifests, ref, name)
	if err != nil {
		return Image{}, err
	}
	img := Image{Ref: name(one), Digest: one.Digest.String()}
	for range 3 { // bounds nested indexes
		text, err := a.document(one.Digest)
		if err == nil {
			err = CheckDocument(text)
		}
		if err != nil {
			return img, err
		}
		list, err := v1.ParseIndexManifest(bytes.NewReader(text))
		if err != nil {
			return img, fmt.Errorf("no valid manifest: parse %s: %w", one.Digest, err)
		}
		if len(list.Manifests) == 0 { // a manifest, not an index
			img.Manifest, img.Open = text, a.open
			return img, nil
		}
		if one, err = a.choosePlatform(list.Manifests); err != nil {
			return img, err
		}
	}
	return img, errors.New("the index is nested too deeply")
}

// choosePlatform returns the entry of an index for a's platform.
func (a *unpackedArchive) choosePlatform(all []v1.Descriptor) (v1.Descriptor, error) {
	for _, d := range all {
		if d.Platform == nil {
			if len(all) == 1 {
				return d, nil
			}
			continue
		}
		got := d.Platform.OS + "/" + d.Platform.Architecture
		if got == a.platform || strings.HasPrefix(a.platform, got+"/") {
			return d, nil
		}
	}
	return v1.Descriptor{}, fmt.Errorf("no image for %s", a.platform)
}

// document returns a manifest or an index after checking its size and digest.
func (a *unpackedArchive) document(digest v1.Hash) ([]byte, error) {
	size, ok := a.blobs[digest.String()]
	if !ok {
		return nil, fmt.Errorf("the archive lacks %s", digest)
	}
	if size > MaxDocument {
		return nil, fmt.Errorf("%w: %s has %d bytes", ErrTooLarge, digest, size)
	}
	text, err := a.dir.Bytes(digest)
	if err != nil {
		return nil, fmt.Errorf("read manifest: %w", err)
	}
	if sumOf(text) != digest.String() {
		return nil, fmt.Errorf("the content of %s has another digest", digest)
	}
	return text, nil
}

// open opens a blob of the layout.
func (a *unpackedArchive) open(_ context.Context, b Blob) (io.ReadCloser, error) {
	if _, ok := a.blobs[b.Digest]; !ok {
		return nil, fmt.Errorf("the archive lacks %.200q", b.Digest)
	}
	digest, err := v1.NewHash(b.Digest)
	if err != nil {
		return nil, fmt.Errorf("parse digest: %w", err)
	}
	content, err := a.dir.Blob(digest)
	if err != nil {
		return nil, fmt.Errorf("open blob: %w", err)
	}
	return content, nil
}

// dockerImage returns an image of a docker save archive. Such an archive has no OCI
// manifest; tarball generates one.
func (a *unpackedArchive) dockerImage(ref string) (Image, error) {
	if a.sizes[dockerFile] > MaxDocument {
		return Image{}, fmt.Errorf("%w: %q has %d bytes", ErrTooLarge, dockerFile, a.sizes[dockerFile])
	}
	open := func() (io.ReadCloser, error) { return os.Open(a.others()) }
	all, err := tarball.LoadManifest(open)
	if err != nil {
		return Image{}, fmt.Errorf("parse %q: %w", dockerFile, err)
	}
	name := func(d tarball.Descriptor) string { return strings.Join(d.RepoTags[:min(len(d.RepoTags), 1)], "") }
	one, err := choose(all, ref, name)
	if err != nil {
		return Image{}, err
	}
	if err := a.checkDocker(one); err != nil {
		return Image{}, err
	}
	var tag *tagged.Tag // nil selects the only image
	if len(all) > 1 {
		t, err := tagged.NewTag(ref)
		if err != nil {
			return Image{}, fmt.Errorf("parse tag: %w", err)
		}
		tag = &t
	}
	img, err := tarball.Image(open, tag)
	if err != nil {
		return Image{}, fmt.Errorf("read image: %w", err)
	}
	text, err := img.RawManifest()
	if err != nil {
		return Image{}, fmt.Errorf("read manifest: %w", err)
	}
	return Image{Ref: name(one), Manifest: text, Open: func(_ context.Context, b Blob) (io.ReadCloser, error) {
		digest, err := v1.NewHash(b.Digest)
		if err != nil {
			return nil, fmt.Errorf("parse digest: %w", err)
		}
		l, err := partial.ConfigLayer(img)
		if err != nil {
			return nil, fmt.Errorf("read configuration: %w", err)
		}
		if own, err := l.Digest(); err != nil || own != digest {
			if l, err = img.LayerByDigest(digest); err != nil {
				return nil, fmt.Errorf("find layer: %w", err)
			}
		}
		return l.Compressed()
	}}, nil
}

// checkDocker bounds what tarball would read into memory, and rejects link loops.
func (a *unpackedArchive) checkDocker(d tarball.Descriptor) error {
	if len(d.Layers) > maxLayers {
		return fmt.Errorf("%w: the image has %d layers", ErrTooLarge, len(d.Layers))
	}
	for i, name := range append([]string{d.Config}, d.Layers...) {
		target := path.Clean(name)
		if link, ok := a.links[target]; ok {
			target = link // links to links are refused
		}
		size, ok := a.sizes[target]
		if !ok {
			return fmt.Errorf("the archive lacks %.200q", name)
		}
		if i == 0 && size > MaxDocument {
			return fmt.Errorf("%w: %.200q has %d bytes", ErrTooLarge, name, size)
		}
	}
	return nil
}

// choose returns the image named ref, or the only image if ref is "".
func choose[T any](all []T, ref string, name func(T) string) (one T, err error) {
	var names []string
	for _, x := range all {
		if ref != "" && name(x) == ref || ref == "" && len(all) == 1 {
			return x, nil
		}
		names = append(names, fmt.Sprintf("%.200q", name(x)))
	}
	return one, fmt.Errorf("%d images: %s; name one of them", len(all), strings.Join(names[:min(len(names), 20)], ", "))
}

// nameOf derives a template name from an image name.
func nameOf(ref string) string {
	base := ref[strings.LastIndex(ref, "/")+1:]
	base, _, _ = strings.Cut(base, "@")
	base = strings.TrimSuffix(base, ":latest")
	return strings.ToLower(strings.ReplaceAll(base, ":", "-"))
}

// member returns the path of a blob in an archive.
func member(digest string) string { return blobDir + strings.TrimPrefix(digest, "sha256:") }
