package image

import (
	"archive/tar"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/stream"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/berth-run/berth/layer"
)

// Save writes a template to w as an OCI image layout in a tar archive, which Load, docker
// load and other tools read. A template made from an image is saved as that very image. Any
// other is saved as an image of one layer, from which Load makes the same template. It reports its
// progress in megabytes, if report is not nil.
func (l *Store) Save(ctx context.Context, ref string, w io.Writer, report func(Progress)) error {
	t, err := l.Get(ref)
	if err != nil {
		return err
	}
	using, err := l.shareLock(ctx, buildLock)
	if err != nil {
		return err
	}
	defer using.Close()
	dir, err := os.MkdirTemp(l.dir, "building-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	to, err := layout.Write(dir, empty.Index)
	if err != nil {
		return fmt.Errorf("write layout: %w", err)
	}
	name := t.Name
	if name != "" {
		name += ":latest"
	}
	g := newGauge(report)
	if t.Image == nil {
		err = appendTree(ctx, to, t, name, g)
	} else {
		name = cmp.Or(t.Image.Ref, name)
		err = l.appendImage(to, t, name)
	}
	if err != nil {
		return err
	}
	if err := writeDocker(to, name); err != nil {
		return err
	}
	return writeArchive(ctx, w, dir, g)
}

// annotations returns the annotations that name an image in an index. It returns nil for a
// name with a digest, which Docker rejects.
func annotations(name string) map[string]string {
	if name == "" || strings.Contains(name, "@") {
		return nil
	}
	return map[string]string{fullNameKey: name, refNameKey: name[strings.LastIndex(name, ":")+1:]}
}

// appendImage adds the image that a template was made from to a layout. It hard-links the
// store's blobs.
func (l *Store) appendImage(to layout.Path, t Template, name string) error {
	if err := os.MkdirAll(filepath.Join(string(to), blobDir), 0o700); err != nil {
		return err
	}
	for _, b := range append([]Blob{t.Image.Manifest}, t.Image.Blobs...) {
		err := os.Link(l.blobPath(b.Digest), filepath.Join(string(to), member(b.Digest)))
		if errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("blob %s of %s is missing from the store: pull or load the image again", b.Digest,
				t.Digest)
		}
		if err != nil && !errors.Is(err, fs.ErrExist) { // the image may repeat a layer
			return err
		}
	}
	m := t.Image.Manifest
	digest, err := v1.NewHash(m.Digest)
	if err != nil {
		return fmt.Errorf("parse digest: %w", err)
	}
	if err := to.AppendDescriptor(v1.Descriptor{MediaType: types.MediaType(m.MediaType), Size: m.Size, Digest: digest,
		Annotations: annotations(name)}); err != nil {
		return fmt.Errorf("write manifest: %w", err)
	}
	return nil
}

// appendTree adds an image to a layout whose only layer is a template's tree.
func appendTree(ctx context.Context, to layout.Path, t Template, name string, g *gauge) error {
	from, in := io.Pipe()
	go func() {
		_, err := writeTree(ctx, &countingWriter{in, g, t.Bytes}, t.Rootfs)
		in.CloseWithError(err)
	}()
	defer from.Close()
	img, err := mutate.ConfigFile(mutate.MediaType(mutate.ConfigMediaType(empty.Image, types.OCIConfigJSON),
		types.OCIManifestSchema1), &v1.ConfigFile{OS: "linux", Architecture: runtime.GOARCH,
		Config: v1.Config{Env: t.Config.Env, User: t.Config.User, WorkingDir: t.Config.WorkingDir},
		RootFS: v1.RootFS{Type: "layers"}})
	if err != nil {
		return fmt.Errorf("set configuration: %w", err)
	}
	if img, err = mutate.AppendLayers(img, stream.NewLayer(from, stream.WithMediaType(types.OCILayer),
		stream.WithCompressionLevel(gzip.BestSpeed))); err != nil {
		return fmt.Errorf("add layer: %w", err)
	}
	if err := to.AppendImage(img, layout.WithAnnotations(annotations(name))); err != nil {
		return fmt.Errorf("write image: %w", err)
	}
	return nil
}

// writeDocker adds manifest.json, which docker load reads, to a layout of one image.
func writeDocker(to layout.Path, name string) error {
	img, err := to.Image(v1.Hash{})
	if err != nil {
		return fmt.Errorf("read image: %w", err)
	}
	m, err := img.Manifest()
	if err != nil {
		return fmt.Errorf("read manifest: %w", err)
	}
	d := tarball.Descriptor{Config: member(m.Config.Digest.String())}
	if annotations(name) != nil {
		d.RepoTags = []string{name}
	}
	for _, l := range m.Layers {
		d.Layers = append(d.Layers, member(l.Digest.String()))
	}
	text, err := json.Marshal(tarball.Manifest{d})
	if err != nil {
		return err
	}
	if err := to.WriteFile(dockerFile, text, 0o600); err != nil {
		return fmt.Errorf("write manifest: %w", err)
	}
	return nil
}

// writeTree writes the tree at root as a layer.
func writeTree(ctx context.Context, w io.Writer, root string) (layer.Made, error) {
	from, to := io.Pipe()
	go func() {
		differ := &layer.Differ{Root: root}
		out := tar.NewWriter(to)
		err := differ.Diff(out)
		if err == nil {
			err = out.Close()
		}
		to.CloseWithError(err)
	}()
	made, err := layer.Make(w, until(ctx, from, nil), "", layer.Limits{})
	from.CloseWithError(err) // unblocks the Differ
	return made, err
}

// writeArchive writes the files of a layout as a tar archive. Equal layouts give equal
// bytes.
func writeArchive(ctx context.Context, w io.Writer, dir string, g *gauge) error {
	out := tar.NewWriter(w)
	blobs, err := os.ReadDir(filepath.Join(dir, blobDir))
	if err != nil {
		return err
	}
	names := []string{layoutFile, indexFile, dockerFile}
	total := int64(0)
	for _, b := range blobs {
		names = append(names, blobDir+b.Name())
		info, err := b.Info()
		if err != nil {
			return err
		}
		total += info.Size()
	}
	g.restart()
	written := func(n int) error {
		g.add(Write, "writing the archive", int64(n), total)
		return nil
	}
	for _, name := range names {
		if err := writeFile(ctx, out, filepath.Join(dir, name), name, written); err != nil {
			return err
		}
	}
	return out.Close()
}

func writeFile(ctx context.Context, out *tar.Writer, path, name string, written func(n int) error) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if err := out.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: info.Size(),
		ModTime: time.Unix(0, 0)}); err != nil {
		return err
	}
	_, err = io.Copy(out, until(ctx, f, written))
	return err
}

// A countingWriter counts the bytes written to it.
type countingWriter struct {
	io.Writer
	*gauge
	total int64
}

func (c *countingWriter) Write(p []byte) (int, error) {
	n, err := c.Writer.Write(p)
	c.add(Pack, "packing the files", int64(n), c.total)
	return n, err
}

// SaveFile is Save to a file, which appears only when it is complete.
func (l *Store) SaveFile(ctx context.Context, ref, path string, report func(Progress)) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	if err := errors.Join(l.Save(ctx, ref, f, report), f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
