package kubernetes

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"github.com/google/go-containerregistry/pkg/v1/stream"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/berth-run/berth/layer"
	"github.com/berth-run/berth/sandbox"
)

// Paths inside a sandbox.
const (
	guestDir    = "/.berth"
	guestPath   = guestDir + "/guest" // the guest program
	guestRunDir = guestDir + "/run"   // a small tmpfs
	guestSocket = guestRunDir + "/guest.sock"
	guestLog    = guestRunDir + "/log"
	stateDir    = "/run/berth" // of the guest
	dataDir     = "/mnt/data"
)

// imageFormat is the version of the images' content. It is part of their names.
const imageFormat = "1"

// images stores the images of sandboxes in the operator's registry. The layer of a template is
// stored once; over it lies a small layer with the guest program.
type images struct {
	repository string // of templates and of the guest
	guest      []byte // the program
	guestSum   string
	transport  http.RoundTripper
	log        *slog.Logger

	mu   sync.Mutex
	refs map[string]*storedImage // by tag
}

// A storedImage image is pushed at most once by this process.
type storedImage struct {
	mu  sync.Mutex
	ref string // with a digest; empty before
}

func newImages(registry, guestPath string, log *slog.Logger) (*images, error) {
	if registry == "" {
		return nil, errors.New(
			"no registry given: name one in kubernetes.registry to which Berth may push, and from which the nodes pull")
	}
	if _, err := name.NewRepository(registry); err != nil {
		return nil, fmt.Errorf("registry: %w", err)
	}
	guest, err := os.ReadFile(guestPath)
	if err != nil {
		return nil, fmt.Errorf("guest program: %w", err)
	}
	sum := sha256.Sum256(guest)
	return &images{repository: registry, guest: guest, guestSum: hex.EncodeToString(sum[:]), log: log,
		transport: loopbackOnly{remote.DefaultTransport}, refs: map[string]*storedImage{}}, nil
}

// loopbackOnly refuses plain HTTP to other machines: the library would use it for private
// addresses.
type loopbackOnly struct{ next http.RoundTripper }

func (t loopbackOnly) RoundTrip(r *http.Request) (*http.Response, error) {
	if host := r.URL.Hostname(); r.URL.Scheme != "https" && host != "localhost" && host != "127.0.0.1" &&
		host != "::1" {
		return nil, fmt.Errorf("the registry %s does not speak HTTPS", r.URL.Host)
	}
	return t.next.RoundTrip(r)
}

func (i *images) options(ctx context.Context) []remote.Option {
	return []remote.Option{remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain),
		remote.WithTransport(i.transport), remote.WithUserAgent("berth")}
}

// An owner is the user of commands. The guest runs as the same one, or as root.
type owner struct {
	uid, gid int
	root     bool // the guest is root
}

// template returns the reference of the image of a template, with a digest. It pushes the image
// unless the registry has it.
func (i *images) template(ctx context.Context, t sandbox.Template, who owner) (string, error) {
	key, err := templateKey(t)
	if err != nil {
		return "", err
	}
	base := "template-" + key
	return i.get(ctx, i.tag(base, who), func() (v1.Image, error) {
		img, err := i.base(ctx, base, t.Path)
		if err != nil {
			return nil, err
		}
		return i.withGuest(img, who)
	})
}

// guestOnly returns the reference of an image with only the guest program.
func (i *images) guestOnly(ctx context.Context) (string, error) {
	unprivileged := owner{uid: nobodyID, gid: nobodyID}
	return i.get(ctx, i.tag("guest", unprivileged), func() (v1.Image, error) {
		img, err := blank()
		if err != nil {
			return nil, err
		}
		return i.withGuest(img, unprivileged)
	})
}

// tag names an image with this guest.
func (i *images) tag(base string, who owner) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %s %v", imageFormat, i.guestSum, who))
	return base + "-" + hex.EncodeToString(sum[:8])
}

// templateKey identifies a template. Without a digest its directory, which never changes, is
// identified by its path and times.
func templateKey(t sandbox.Template) (string, error) {
	dir, err := t.Directory()
	if err != nil {
		return "", err
	}
	key := fmt.Appendf(nil, "%s digest %s", imageFormat, t.Digest)
	if t.Digest == "" {
		fi, err := os.Stat(dir)
		if err != nil {
			return "", err
		}
		st, ok := fi.Sys().(*syscall.Stat_t)
		if !ok {
			return "", fmt.Errorf("%s: no stat", dir)
		}
		key = fmt.Appendf(nil, "%s path %s %d %d", imageFormat, dir, st.Ino, fi.ModTime().UnixNano())
	}
	sum := sha256.Sum256(key)
	return hex.EncodeToString(sum[:16]), nil
}

// get returns the reference of the image with a tag, which build makes if the registry does not
// have it.
func (i *images) get(ctx context.Context, tag string, build func() (v1.Image, error)) (string, error) {
	i.mu.Lock()
	s := i.refs[tag]
	if s == nil {
		s = &storedImage{}
		i.refs[tag] = s
	}
	i.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ref != "" {
		return s.ref, nil
	}
	to, err := name.NewTag(i.repository + ":" + tag)
	if err != nil {
		return "", fmt.Errorf("parse tag: %w", err)
	}
	if found, err := remote.Head(to, i.options(ctx)...); err == nil {
		s.ref = to.Context().Digest(found.Digest.String()).String()
		return s.ref, nil
	} else if !notInRegistry(err) {
		return "", fmt.Errorf("registry: %w", err)
	}
	began := time.Now()
	img, err := build()
	if err == nil {
		err = remote.Write(to, img, i.options(ctx)...)
	}
	if err != nil {
		return "", fmt.Errorf("push %s: %w", to, err)
	}
	digest, err := img.Digest()
	if err != nil {
		return "", fmt.Errorf("compute digest: %w", err)
	}
	s.ref = to.Context().Digest(digest.String()).String()
	i.log.Info("kubernetes: pushed an image", "image", to.String(), "took", time.Since(began).Round(time.Millisecond))
	return s.ref, nil
}

// forget makes the next use look into the registry again, because the nodes did not find an image.
func (i *images) forget() {
	i.mu.Lock()
	defer i.mu.Unlock()
	clear(i.refs)
}

func notInRegistry(err error) bool {
	var e *transport.Error
	return errors.As(err, &e) && e.StatusCode == http.StatusNotFound
}

// blank returns an image without layers. Its stop signal ends the guest, which ignores others.
func blank() (v1.Image, error) {
	img, err := mutate.ConfigFile(mutate.MediaType(mutate.ConfigMediaType(empty.Image, types.OCIConfigJSON),
		types.OCIManifestSchema1),
		&v1.ConfigFile{OS: "linux", Architecture: runtime.GOARCH, Config: v1.Config{StopSignal: "SIGKILL"},
			RootFS: v1.RootFS{Type: "layers"}})
	if err != nil {
		return nil, fmt.Errorf("set configuration: %w", err)
	}
	return img, nil
}

// base returns the image of a template without a guest. The registry stores it under a tag of its
// own, so that its layer is made and sent once.
func (i *images) base(ctx context.Context, tag, rootfs string) (v1.Image, error) {
	to, err := name.NewTag(i.repository + ":" + tag)
	if err != nil {
		return nil, fmt.Errorf("parse tag: %w", err)
	}
	img, err := remote.Image(to, i.options(ctx)...)
	switch {
	case err == nil:
		return img, nil
	case !notInRegistry(err):
		return nil, fmt.Errorf("read image: %w", err)
	}
	if img, err = blank(); err != nil {
		return nil, err
	}
	r, w := io.Pipe()
	defer r.Close()
	go func() { w.CloseWithError(writeTree(w, rootfs)) }()
	img, err = mutate.AppendLayers(img, stream.NewLayer(r, stream.WithMediaType(types.OCILayer),
		stream.WithCompressionLevel(gzip.BestSpeed)))
	if err != nil {
		return nil, fmt.Errorf("add layer: %w", err)
	}
	if err := remote.Write(to, img, i.options(ctx)...); err != nil {
		return nil, fmt.Errorf("push image: %w", err)
	}
	if img, err = remote.Image(to, i.options(ctx)...); err != nil {
		return nil, fmt.Errorf("read image: %w", err)
	}
	return img, nil
}

// writeTree writes a root file system as a layer.
func writeTree(w io.Writer, rootfs string) error {
	r, diff := io.Pipe()
	defer r.Close()
	go func() {
		all := tar.NewWriter(diff)
		err := (&layer.Differ{Root: rootfs}).Diff(all)
		diff.CloseWithError(errors.Join(err, all.Close()))
	}()
	_, err := layer.Make(w, r, "", layer.Limits{})
	return err
}

// withGuest adds the guest program and its directories to an image.
func (i *images) withGuest(img v1.Image, who owner) (v1.Image, error) {
	uid, gid := who.uid, who.gid
	if who.root {
		uid, gid = 0, 0
	}
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, h := range []*tar.Header{
		{Typeflag: tar.TypeDir, Name: guestDir, Mode: 0o755},
		{Typeflag: tar.TypeReg, Name: guestPath, Mode: 0o755, Size: int64(len(i.guest))},
		{Typeflag: tar.TypeDir, Name: guestRunDir, Mode: 0o700, Uid: uid, Gid: gid},
		{Typeflag: tar.TypeDir, Name: stateDir, Mode: 0o711, Uid: uid, Gid: gid},
		{Typeflag: tar.TypeDir, Name: dataDir, Mode: 0o755, Uid: who.uid, Gid: who.gid},
	} {
		h.Name = strings.TrimPrefix(h.Name, "/")
		h.ModTime = time.Unix(1, 0)
		if err := w.WriteHeader(h); err != nil {
			return nil, err
		}
		if h.Typeflag == tar.TypeReg {
			if _, err := w.Write(i.guest); err != nil {
				return nil, err
			}
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	l, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(buf.Bytes())), nil
	},
		tarball.WithMediaType(types.OCILayer), tarball.WithCompressionLevel(gzip.BestSpeed))
	if err != nil {
		return nil, fmt.Errorf("make layer: %w", err)
	}
	if img, err = mutate.AppendLayers(img, l); err != nil {
		return nil, fmt.Errorf("add layer: %w", err)
	}
	return img, nil
}

// userOf returns the account of commands in a template.
func userOf(t sandbox.Template) (owner, string, error) {
	dir, err := t.Directory()
	if err != nil {
		return owner{}, "", err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return owner{}, "", err
	}
	defer root.Close()
	f, err := root.Open(filepath.Join("etc", "passwd"))
	if err != nil {
		return owner{}, "", err
	}
	defer f.Close()
	raw, err := io.ReadAll(io.LimitReader(f, 1<<20))
	if err != nil {
		return owner{}, "", err
	}
	for line := range strings.Lines(string(raw)) {
		fields := strings.Split(strings.TrimSpace(line), ":")
		if len(fields) < 7 || fields[0] != "user" {
			continue
		}
		var who owner
		if _, err := fmt.Sscanf(fields[2]+" "+fields[3], "%d %d", &who.uid, &who.gid); err != nil {
			return owner{}, "", fmt.Errorf("template %s: the account user has no number", t.Ref)
		}
		return who, fields[5], nil
	}
	return owner{}, "", fmt.Errorf("template %s: it has no account with the name user", t.Ref)
}
