package registry

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	served "github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/berth-run/berth/image"
)

// A testRegistry is a registry on loopback that requires a password.
type testRegistry struct {
	host string
	gets atomic.Int64 // of blobs
}

const username, password = "geo", "Zugangswort"

// newRegistry starts a registry. door, if not nil, handles requests first.
func newRegistry(t *testing.T, door func(w http.ResponseWriter, r *http.Request) bool) *testRegistry {
	t.Helper()
	reg := &testRegistry{}
	h := served.New(served.Logger(log.New(io.Discard, "", 0)))
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if door != nil && door(w, r) {
			return
		}
		if strings.Contains(r.URL.Path, "/blobs/sha256:") && r.Method == http.MethodGet {
			reg.gets.Add(1)
		}
		h.ServeHTTP(w, r)
	}))
	t.Cleanup(srv.Close)
	reg.host = strings.TrimPrefix(srv.URL, "http://")
	return reg
}

// locked is a door that requires the password.
func locked(w http.ResponseWriter, r *http.Request) bool {
	if u, p, ok := r.BasicAuth(); ok && u == username && p == password {
		return false
	}
	w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
	http.Error(w, "who are you?", http.StatusUnauthorized)
	return true
}

func (reg *testRegistry) push(t *testing.T, repository string, what remote.Taggable) string {
	t.Helper()
	ref, err := name.ParseReference(reg.host + "/" + repository)
	if err != nil {
		t.Fatal(err)
	}
	opt := remote.WithAuth(&authn.Basic{Username: username, Password: password})
	switch x := what.(type) {
	case v1.Image:
		err = remote.Write(ref, x, opt)
	case v1.ImageIndex:
		err = remote.WriteIndex(ref, x, opt)
	}
	if err != nil {
		t.Fatal(err)
	}
	return ref.Name()
}

// build makes an image for an architecture, of files from their paths and contents.
func build(t *testing.T, arch string, layers ...map[string]string) v1.Image {
	t.Helper()
	img := v1.Image(empty.Image)
	for _, files := range layers {
		var buf bytes.Buffer
		w := tar.NewWriter(&buf)
		for path, content := range files {
			_ = w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: path, Mode: 0o755, Size: int64(len(content))})
			_, _ = w.Write([]byte(content))
		}
		_ = w.Close()
		l, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
			return io.NopCloser(bytes.NewReader(buf.Bytes())), nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if img, err = mutate.AppendLayers(img, l); err != nil {
			t.Fatal(err)
		}
	}
	img, err := mutate.ConfigFile(img, &v1.ConfigFile{OS: "linux", Architecture: arch, RootFS: rootFS(t, img),
		Config: v1.Config{Env: []string{"ARCH=" + arch}}})
	if err != nil {
		t.Fatal(err)
	}
	return img
}

func rootFS(t *testing.T, img v1.Image) v1.RootFS {
	t.Helper()
	c, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	return c.RootFS
}

func library(t *testing.T) *image.Store {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("skipped: only root can make templates")
	}
	l, err := image.Open(t.TempDir(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return l
}

var shell = map[string]string{"bin/sh": "#!"}

func TestPull(t *testing.T) {
	l := library(t)
	t.Setenv("DOCKER_CONFIG", t.TempDir())
	reg := newRegistry(t, locked)
	img := build(t, runtime.GOARCH, shell, map[string]string{"etc/motd": "hello"})
	ref := reg.push(t, "team/geo:1.2", img)
	digest, err := img.Digest()
	if err != nil {
		t.Fatal(err)
	}
	opts := Options{Username: username, Password: password, Insecure: true}
	for _, ref := range []string{ref, reg.host + "/team/geo@" + digest.String()} {
		found, err := Find(t.Context(), ref, opts)
		if err != nil {
			t.Fatal(err)
		}
		if found.Digest != digest.String() {
			t.Errorf("%s: got %s, want %s", ref, found.Digest, digest)
		}
		got, err := l.Add(t.Context(), TemplateName(ref), found, image.AddOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if text, err := os.ReadFile(filepath.Join(got.Rootfs, "etc/motd")); err != nil || string(text) != "hello" {
			t.Errorf("content: got %q, %v", text, err)
		}
	}
	if got := reg.gets.Load(); got != 3 { // once each: the configuration and two layers
		t.Errorf("%d blobs were fetched, want 3", got)
	}
	for _, name := range []string{"geo-1.2", "geo"} {
		if _, err := l.Get(name); err != nil {
			t.Error(err)
		}
	}

	_, err = Find(t.Context(), reg.host+"/team/geo:3", opts)
	if err == nil || !strings.Contains(err.Error(), "MANIFEST_UNKNOWN") {
		t.Errorf("Find of a missing image: %v", err)
	}
	opts.Password = "wrong-secret"
	_, err = Find(t.Context(), ref, opts)
	if err == nil || !strings.Contains(err.Error(), "UNAUTHORIZED") && !strings.Contains(err.Error(), "401") {
		t.Errorf("Find with a wrong password: %v", err)
	}
	if strings.Contains(fmt.Sprintf("%+v", err), "wrong-secret") || strings.Contains(fmt.Sprintf("%+v", err),
		base64.StdEncoding.EncodeToString([]byte(username+":wrong-secret"))) {
		t.Errorf("the error contains the password: %v", err)
	}
}

// Find uses the credentials of docker login and podman login, and credential helpers.
func TestKeychain(t *testing.T) {
	reg := newRegistry(t, locked)
	ref := reg.push(t, "app", build(t, runtime.GOARCH, shell))
	auth := fmt.Sprintf(`{"auths":{%q:{"auth":%q}}}`, reg.host,
		base64.StdEncoding.EncodeToString([]byte(username+":"+password)))
	bin := t.TempDir()
	helper := "#!/bin/sh\necho '{\"ServerURL\":\"x\",\"Username\":\"" + username + "\",\"Secret\":\"" + password +
		"\"}'\n"
	if err := os.WriteFile(filepath.Join(bin, "docker-credential-berthtest"), []byte(helper), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	for what, set := range map[string]func(t *testing.T, dir string){
		"docker": func(t *testing.T, dir string) {
			t.Setenv("DOCKER_CONFIG", dir)
			write(t, filepath.Join(dir, "config.json"), auth)
		},
		"podman": func(t *testing.T, dir string) {
			t.Setenv("REGISTRY_AUTH_FILE", filepath.Join(dir, "auth.json"))
			write(t, filepath.Join(dir, "auth.json"), auth)
		},
		"helper": func(t *testing.T, dir string) {
			t.Setenv("DOCKER_CONFIG", dir)
			write(t, filepath.Join(dir, "config.json"), fmt.Sprintf(`{"credHelpers":{%q:"berthtest"}}`, reg.host))
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Setenv("HOME", t.TempDir())
			t.Setenv("DOCKER_CONFIG", "")
			if _, err := Find(t.Context(), ref, Options{Insecure: true}); err == nil {
				t.Fatal("Find did not send the password")
			}
			set(t, t.TempDir())
			if _, err := Find(t.Context(), ref, Options{Insecure: true}); err != nil {
				t.Error(err)
			}
		})
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestIndex(t *testing.T) {
	l := library(t)
	t.Setenv("DOCKER_CONFIG", t.TempDir())
	other := map[string]string{"amd64": "arm64", "arm64": "amd64"}[runtime.GOARCH]
	if other == "" {
		other = "amd64"
	}
	index := v1.ImageIndex(empty.Index)
	for _, arch := range []string{other, runtime.GOARCH} {
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: build(t, arch, shell,
			map[string]string{"arch": arch}),
			Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: arch}}})
	}
	reg := newRegistry(t, nil)
	ref := reg.push(t, "multi:latest", index)
	digest, err := index.Digest()
	if err != nil {
		t.Fatal(err)
	}
	for _, platform := range []string{"", "linux/" + other} {
		want := runtime.GOARCH
		if platform != "" {
			want = other
		}
		found, err := Find(t.Context(), ref, Options{Insecure: true, Platform: platform})
		if err != nil {
			t.Fatal(err)
		}
		got, err := l.Add(t.Context(), "multi", found, image.AddOptions{Platform: platform})
		if err != nil {
			t.Fatal(err)
		}
		if text, _ := os.ReadFile(filepath.Join(got.Rootfs, "arch")); string(text) != want {
			t.Errorf("image for %q: got that of %q, want %q", platform, text, want)
		}
		if got.Image.Digest != digest.String() || got.Image.Manifest.Digest == digest.String() ||
			got.Config.Env[0] != "ARCH="+want {
			t.Errorf("origin: got %+v, %+v", got.Image, got.Config)
		}
	}
	for _, platform := range []string{"linux/s390x", "windows/amd64", "linux", "a/b/c/d"} {
		if _, err := Find(t.Context(), ref, Options{Insecure: true, Platform: platform}); err == nil {
			t.Errorf("Find for %q: got an image", platform)
		}
	}
}

// Find refuses plain HTTP, which others on the network could read.
func TestPlainHTTP(t *testing.T) {
	var asked atomic.Int64
	reg := newRegistry(t, func(w http.ResponseWriter, r *http.Request) bool { asked.Add(1); return false })
	_, err := Find(t.Context(), reg.host+"/app", Options{Username: username, Password: password})
	if err == nil || !strings.Contains(err.Error(), "--insecure") {
		t.Errorf("Find: %v, want an error that names --insecure", err)
	}
	for url, want := range map[string]bool{"http://127.0.0.1:5000/v2/": true, "http://[::1]/v2/": true,
		"http://localhost/v2/": true,
		"http://10.0.0.1/v2/":  false, "http://localhost.example/": false, "http://x.local/": false,
		"http://0.0.0.0/": false} {
		r, _ := http.NewRequest(http.MethodGet, url, nil)
		g := &guard{next: accept{}, plain: r.URL.Host}
		if _, err := g.RoundTrip(r); (err == nil) != want {
			t.Errorf("%s: %v", url, err)
		}
	}
	if n := asked.Load(); n != 0 {
		t.Errorf("the registry received %d requests", n)
	}
}

// A registry with plain HTTP cannot direct requests to other services of this machine:
// neither by a redirect, nor, with its password, by the realm of a challenge.
func TestRegistryLeadsElsewhere(t *testing.T) {
	t.Setenv("DOCKER_CONFIG", t.TempDir())
	var seen atomic.Int64
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen.Add(1)
		io.WriteString(w, `{"token":"x"}`)
	}))
	defer other.Close()
	_, port, _ := net.SplitHostPort(other.Listener.Addr().String())
	for _, at := range []string{other.URL, "http://localhost:" + port} {
		for what, door := range map[string]func(w http.ResponseWriter, r *http.Request) bool{
			"a redirect": func(w http.ResponseWriter, r *http.Request) bool {
				if strings.Contains(r.URL.Path, "/manifests/") {
					http.Redirect(w, r, at+"/latest/meta-data/", http.StatusFound)
					return true
				}
				return false
			},
			"a realm": func(w http.ResponseWriter, r *http.Request) bool {
				w.Header().Set("WWW-Authenticate", `Bearer realm="`+at+`/token",service="x"`)
				w.WriteHeader(http.StatusUnauthorized)
				return true
			},
		} {
			reg := newRegistry(t, door)
			_, err := Find(t.Context(), reg.host+"/app", Options{Username: username, Password: password,
				Insecure: true})
			if err == nil || seen.Load() != 0 {
				t.Errorf("%s to %s: got %v, and %d requests there", what, at, err, seen.Load())
			}
			seen.Store(0)
		}
	}
}

type accept struct{}

func (accept) RoundTrip(*http.Request) (*http.Response, error) { return &http.Response{}, nil }

// Find strips control characters from a registry's error messages.
func TestRudeRegistry(t *testing.T) {
	t.Setenv("DOCKER_CONFIG", t.TempDir())
	reg := newRegistry(t, func(w http.ResponseWriter, r *http.Request) bool {
		if strings.Contains(r.URL.Path, "/manifests/") {
			http.Error(w, "\x1b[31m"+strings.Repeat("spam", 10_000), http.StatusTeapot)
			return true
		}
		return false
	})
	_, err := Find(t.Context(), reg.host+"/app", Options{Insecure: true})
	if err == nil || len(err.Error()) > maxError || strings.ContainsRune(err.Error(), 0x1b) {
		t.Errorf("Find: %q", err)
	}
}

func TestTemplateName(t *testing.T) {
	for ref, want := range map[string]string{"python:3.12-slim": "python-3.12-slim", "alpine": "alpine",
		"r.example:5000/a/b:Latest":                          "b-latest",
		"r.example/x@" + "sha256:" + strings.Repeat("0", 64): "x", "Bad Ref": "", "r.example/a/_b": "b"} {
		if got := TemplateName(ref); got != want {
			t.Errorf("TemplateName(%q) = %q, want %q", ref, got, want)
		}
	}
}

// References have the grammar of the distribution specification.
func TestHost(t *testing.T) {
	for ref, want := range map[string]string{
		"python:3.12": "index.docker.io", "docker.io/library/python": "index.docker.io",
		"registry.example.com/app:v1": "registry.example.com", "localhost:5000/a/b_c/d__e/f--g.h": "localhost:5000",
		"[::1]:5000/app": "[::1]:5000", "Registry.Example/app": "Registry.Example", "10.1.2.3:5000/app@sha256:" +
			strings.Repeat("a", 64): "10.1.2.3:5000",
		"file:///x": "", "-x": "", "--help": "", "x-": "", "_x": "", "/x": "", "a//b": "", "../x": "", "a/../b": "",
		"-x.example/y": "", "x.example:123456/y": "", "https://x.example/y": "", "a b": "", "": "", "::": "",
	} {
		if got := Host(ref); got != want {
			t.Errorf("%s: got %q, want %q", ref, got, want)
		}
	}
}

// What clients learn of a failure names no address of the server's network.
func TestExplain(t *testing.T) {
	resolver := &net.DNSError{Err: "no such host", Name: "registry.invalid", Server: "10.1.2.3:53", IsNotFound: true}
	for _, err := range []error{resolver,
		&net.DNSError{Err: "i/o timeout", Name: "registry.invalid", Server: "10.1.2.3:53", IsTimeout: true},
		&net.OpError{Op: "dial", Net: "tcp", Addr: &net.TCPAddr{IP: net.IPv4(10, 1, 2, 3), Port: 443},
			Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}} {
		if got := Explain(fmt.Errorf("get: %w", err)); strings.Contains(got, "10.1.2.3") || !strings.Contains(got,
			"its registry") {
			t.Errorf("%v: got %q", err, got)
		}
	}
	// As a real connection fails.
	_, err := Find(t.Context(), "registry.invalid/app:1", Options{Anonymous: true})
	unknown := Explain(err)
	if err == nil || strings.Contains(unknown, ":53") || !strings.Contains(unknown, "its registry") {
		t.Errorf("%v: got %q", err, unknown)
	}
	// A name of this network and one that does not exist are told alike.
	inside := Options{Anonymous: true, Transport: &http.Transport{DialContext: func(context.Context, string,
		string) (net.Conn, error) {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: ErrNotPublic}
	}}}
	if _, err := Find(t.Context(), "registry.invalid/app:1", inside); err == nil || Explain(err) != unknown {
		t.Errorf("a private address: got %q, for one that does not exist %q", Explain(err), unknown)
	}
}

// A manifest that takes far more memory than its text is not decoded, neither by the library nor by a store.
func TestCrowdedManifest(t *testing.T) {
	for _, kind := range []string{"application/vnd.oci.image.manifest.v1+json",
		"application/vnd.oci.image.index.v1+json"} {
		list := map[string]string{"application/vnd.oci.image.manifest.v1+json": "layers",
			"application/vnd.oci.image.index.v1+json": "manifests"}[kind]
		text := fmt.Sprintf(`{"schemaVersion":2,"mediaType":%q,%q:[{}%s]}`, kind, list, strings.Repeat(",{}", 500_000))
		reg := newRegistry(t, func(w http.ResponseWriter, r *http.Request) bool {
			if !strings.Contains(r.URL.Path, "/manifests/") {
				return false
			}
			w.Header().Set("Content-Type", kind)
			_, _ = io.WriteString(w, text)
			return true
		})
		if _, err := Find(t.Context(), reg.host+"/app:1", Options{Anonymous: true, Insecure: true}); err == nil ||
			!strings.Contains(err.Error(), "too many values") {
			t.Errorf("%s: got %v, want that it has too many values", kind, err)
		}
	}
}

func TestMoved(t *testing.T) {
	digest := "@sha256:" + strings.Repeat("0", 64)
	for ref, want := range map[string]string{
		"python:3.12":                    "m.example:5000/hub/library/python:3.12",
		"python":                         "m.example:5000/hub/library/python:latest",
		"ghcr.io/org/app" + digest:       "m.example:5000/hub/org/app" + digest,
		"registry.example:81/a/b/c:v1.0": "m.example:5000/hub/a/b/c:v1.0",
		"-x":                             "",
	} {
		if got := Moved(ref, "m.example:5000", "hub"); got != want {
			t.Errorf("%s: got %s, want %s", ref, got, want)
		}
	}
	if got := Moved("python", "m.example", ""); got != "m.example/library/python:latest" {
		t.Errorf("without a path: got %s", got)
	}
}
