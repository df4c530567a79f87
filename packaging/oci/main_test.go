package main

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// programs writes a file in place of the program of each architecture.
func programs(t *testing.T, archs ...string) (args []string, roots string) {
	t.Helper()
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for _, a := range archs {
		args = append(args, a+"="+write("berth-"+a, "program for "+a))
	}
	return args, write("roots.crt", "certificates")
}

// checkImage compares what an image has with what it needs, and returns its files.
func checkImage(t *testing.T, img v1.Image, arch string) map[string]string {
	t.Helper()
	config, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if config.OS != "linux" || config.Architecture != arch || strings.Join(config.Config.Entrypoint,
		" ") != "/usr/bin/berth" {
		t.Errorf("%s: got the configuration %+v", arch, config)
	}
	r := mutate.Extract(img)
	defer r.Close()
	files := map[string]string{}
	for all := tar.NewReader(r); ; {
		h, err := all.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		raw, err := io.ReadAll(all)
		if err != nil {
			t.Fatal(err)
		}
		files[h.Name] = string(raw)
	}
	if files["usr/bin/berth"] != "program for "+arch || files["etc/ssl/certs/ca-certificates.crt"] != "certificates" {
		t.Errorf("%s: got the files %q", arch, files)
	}
	return files
}

// checkIndex compares an index with what it needs.
func checkIndex(t *testing.T, index v1.ImageIndex, archs ...string) {
	t.Helper()
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	if len(manifest.Manifests) != 2*len(archs) { // an image and what is attached to it
		t.Fatalf("got %d manifests, want %d", len(manifest.Manifests), 2*len(archs))
	}
	for i, m := range manifest.Manifests[:len(archs)] {
		if m.Platform == nil || m.Platform.OS != "linux" || m.Platform.Architecture != archs[i] {
			t.Errorf("image %d: got the platform %v, want linux/%s", i, m.Platform, archs[i])
		}
		img, err := index.Image(m.Digest)
		if err != nil {
			t.Fatal(err)
		}
		checkImage(t, img, archs[i])
	}
}

// The file has an index of one image for each architecture, docker load finds the first one, and
// the same input gives the same bytes.
func TestArchive(t *testing.T) {
	args, roots := programs(t, "arm64", "amd64")
	template := filepath.Join(t.TempDir(), "base.tar")
	if err := os.WriteFile(template, []byte("template for arm64"), 0o600); err != nil {
		t.Fatal(err)
	}
	templates := map[string]string{"arm64": template}
	out := filepath.Join(t.TempDir(), "berth.tar")
	notices := filepath.Join(t.TempDir(), "NOTICES")
	if err := os.WriteFile(notices, []byte("licences"), 0o600); err != nil {
		t.Fatal(err)
	}
	o := options{tag: "berth:latest", out: out, roots: roots, templates: templates, programs: args, notices: notices}
	if err := run(o); err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for r := tar.NewReader(bytes.NewReader(raw)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		to := filepath.Join(dir, filepath.FromSlash(h.Name))
		text, err := io.ReadAll(r)
		if err == nil {
			err = errors.Join(os.MkdirAll(filepath.Dir(to), 0o755), os.WriteFile(to, text, 0o644))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	top, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := top.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	if len(manifest.Manifests) != 1 ||
		manifest.Manifests[0].Annotations["org.opencontainers.image.ref.name"] != "latest" {
		t.Fatalf("got %+v, want one index with the tag latest", manifest.Manifests)
	}
	index, err := top.ImageIndex(manifest.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	checkIndex(t, index, "arm64", "amd64")
	tag, err := name.NewTag("berth:latest")
	if err != nil {
		t.Fatal(err)
	}
	img, err := tarball.ImageFromPath(out, &tag)
	if err != nil {
		t.Fatal(err)
	}
	if files := checkImage(t, img, "arm64"); files["usr/share/berth/templates/base_arm64.tar"] != "template for arm64" {
		t.Errorf("the image for arm64 has no template: %q", files)
	} else if files["usr/share/doc/berth/NOTICES"] != "licences" {
		t.Errorf("the image has no licences: %q", files)
	}
	if err := run(o); err != nil {
		t.Fatal(err)
	}
	if again, err := os.ReadFile(out); err != nil || !bytes.Equal(again, raw) {
		t.Errorf("the second time the file differs, or %v", err)
	}
}

// The index in a registry is the same.
func TestPush(t *testing.T) {
	srv := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer srv.Close()
	args, roots := programs(t, "amd64", "arm64")
	tag := strings.TrimPrefix(srv.URL, "http://") + "/berth:1"
	if err := run(options{tag: tag, push: true, roots: roots, programs: args}); err != nil {
		t.Fatal(err)
	}
	ref, err := name.ParseReference(tag)
	if err != nil {
		t.Fatal(err)
	}
	index, err := remote.Index(ref)
	if err != nil {
		t.Fatal(err)
	}
	checkIndex(t, index, "amd64", "arm64")
}

// Wrong arguments have clear errors.
func TestErrors(t *testing.T) {
	_, roots := programs(t)
	for _, args := range [][]string{{"bin/berth"}, {"amd64=/nonexistent"}} {
		if err := run(options{tag: "berth:latest",
			out: filepath.Join(t.TempDir(), "out"), roots: roots, programs: args}); err == nil {
			t.Errorf("%q: no error", args)
		}
	}
}
