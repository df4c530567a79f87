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
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/klauspost/compress/gzip"

	"github.com/berth-run/berth/layer"
)

// Save writes a template as an archive that Load, docker load and others take: an
// OCI image layout. Of a template that was made of an image it is that very image;
// of others, an image of one layer, from which Load makes the same template.
func (l *Store) Save(ctx context.Context, ref string, w io.Writer) error {
	t, err := l.Get(ref)
	if err != nil {
		return err
	}
	using, err := l.shareLock(ctx, buildLock)
	if err != nil {
		return err
	}
	defer using.Close()
	if t.Image != nil {
		return writeArchive(ctx, w, t, *t.Image, func(b Blob) string { return l.blobPath(b.Digest) })
	}
	dir, err := os.MkdirTemp(l.dir, "building-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	p := packing(dir)
	origin, err := p.pack(ctx, t)
	if err != nil {
		return err
	}
	return writeArchive(ctx, w, t, origin, p.path)
}

// packing is a directory of blobs that are not the library's.
type packing string

func (p packing) path(b Blob) string {
	return filepath.Join(string(p), strings.TrimPrefix(b.Digest, "sha256:"))
}

// pack makes an image of a template.
func (p packing) pack(ctx context.Context, t Template) (Origin, error) {
	f, err := os.Create(filepath.Join(string(p), "layer"))
	if err != nil {
		return Origin{}, err
	}
	defer f.Close()
	sum := sha256.New()
	packed, err := gzip.NewWriterLevel(io.MultiWriter(f, sum), gzip.BestSpeed)
	if err != nil {
		return Origin{}, err
	}
	made, err := writeTree(ctx, packed, t.Rootfs)
	if err := errors.Join(err, packed.Close()); err != nil {
		return Origin{}, err
	}
	info, err := f.Stat()
	if err != nil {
		return Origin{}, err
	}
	content := Blob{typeOCILayer + "+gzip", "sha256:" + hex.EncodeToString(sum.Sum(nil)), info.Size()}
	if err := os.Rename(f.Name(), p.path(content)); err != nil {
		return Origin{}, err
	}
	c := configFile{OS: "linux", Architecture: runtime.GOARCH}
	c.Config.Env, c.Config.User, c.Config.WorkingDir = t.Config.Env, t.Config.User, t.Config.WorkingDir
	c.RootFS.Type, c.RootFS.DiffIDs = "layers", []string{made.Digest}
	config, err := p.put(typeOCIConfig, c)
	if err != nil {
		return Origin{}, err
	}
	m, err := p.put(typeOCIManifest, manifest{SchemaVersion: 2, MediaType: typeOCIManifest,
		Config: descriptor(config), Layers: []descriptor{descriptor(content)}})
	return Origin{Digest: m.Digest, Manifest: m, Blobs: []Blob{config, content}}, err
}

func (p packing) put(media string, v any) (Blob, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return Blob{}, err
	}
	b := Blob{media, sumOf(text), int64(len(text))}
	return b, os.WriteFile(p.path(b), text, 0o600)
}

// writeTree writes a tree as a layer.
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
	from.CloseWithError(err) // ends the other side, if it has not ended
	return made, err
}

// writeArchive writes an image whose blobs are where path says.
func writeArchive(ctx context.Context, w io.Writer, t Template, o Origin, path func(Blob) string) error {
	at := time.Unix(0, 0)
	out := tar.NewWriter(w)
	put := func(name string, size int64, content io.Reader) error {
		if err := out.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: size, ModTime: at}); err != nil {
			return err
		}
		_, err := io.Copy(out, until(ctx, content, nil))
		return err
	}
	name := o.Ref
	if name == "" && t.Name != "" {
		name = t.Name + ":latest"
	}
	for _, d := range documents(name, o) {
		text, err := json.Marshal(d.content)
		if err != nil {
			return err
		}
		if err := put(d.name, int64(len(text)), strings.NewReader(string(text))); err != nil {
			return err
		}
	}
	done := map[string]bool{}
	for _, b := range append([]Blob{o.Manifest}, o.Blobs...) {
		if done[b.Digest] {
			continue
		}
		done[b.Digest] = true
		f, err := os.Open(path(b))
		if errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("the library has lost the blob %s of %s: pull or load it again", b.Digest, t.Digest)
		}
		if err != nil {
			return err
		}
		err = put(member(b), b.Size, f)
		f.Close()
		if err != nil {
			return err
		}
	}
	return out.Close()
}

type document struct {
	name    string
	content any
}

// documents are an archive's files besides blobs: those of an image layout, and the
// one that docker load reads.
func documents(name string, o Origin) []document {
	entry := indexedImage{descriptor: descriptor(o.Manifest)}
	docker := dockerEntry{Config: member(o.Blobs[0])}
	if name != "" && !strings.Contains(name, "@") {
		tag := name[strings.LastIndex(name, ":")+1:]
		entry.Annotations = map[string]string{fullNameKey: name, refNameKey: tag}
		docker.RepoTags = []string{name}
	}
	for _, b := range o.Blobs[1:] {
		docker.Layers = append(docker.Layers, member(b))
	}
	return []document{
		{layoutFile, map[string]string{"imageLayoutVersion": "1.0.0"}},
		{indexFile, index{SchemaVersion: 2, MediaType: "application/vnd.oci.image.index.v1+json", Manifests: []indexedImage{entry}}},
		{dockerFile, []dockerEntry{docker}},
	}
}

// SaveFile writes a template's archive to a file, which is there whole or not at all.
func (l *Store) SaveFile(ctx context.Context, ref, path string) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	if err := errors.Join(l.Save(ctx, ref, f), f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
