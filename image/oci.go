package image

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/sync/errgroup"

	"github.com/berth-run/berth/internal/jsonscan"
)

// Bounds on an image.
const (
	// DefaultMaxBytes is the default limit on an image's unpacked size.
	DefaultMaxBytes = 32 << 30

	// MaxDocument is the limit on a manifest or a configuration, in bytes.
	MaxDocument = 4 << 20

	maxFields  = 50_000 // JSON values in one, which take far more memory than their text
	maxNesting = 32
	maxLayers  = 512
	downloads  = 3 // concurrent blob downloads
	attempts   = 3 // per blob
)

// An Image is an image outside the store, as specified by OCI or Docker. Its content is
// untrusted.
type Image struct {
	Ref      string // the image's name at its origin
	Digest   string // digest that Ref resolved to: of the manifest, or of an index that lists it
	Manifest []byte // the manifest for one platform

	// Open opens one of the manifest's blobs. It must be safe for concurrent use.
	Open func(ctx context.Context, b Blob) (io.ReadCloser, error)
}

// An Origin is the image that a template was last made from.
type Origin struct {
	Ref      string `json:"ref"`
	Digest   string `json:"digest"`   // digest that Ref resolved to
	Manifest Blob   `json:"manifest"` // manifest for Platform
	Platform string `json:"platform"` // such as linux/amd64
	Blobs    []Blob `json:"blobs"`    // the configuration, then the layers from the lowest
}

// AddOptions configures Add. Zero values select the defaults.
type AddOptions struct {
	Platform string         // required platform, such as linux/arm64; default: this machine's
	MaxBytes int64          // limit on the unpacked size; default: DefaultMaxBytes
	Progress func(Progress) // never called concurrently

	// Grow is called before Add writes that many more bytes: for a blob with its size, and for each
	// unpacked file with its own. It is also called with 0 while a blob arrives. Its error ends Add. It
	// may be nil, and must be safe for concurrent use.
	Grow func(bytes int64) error

	// Private means that Add takes no blob from the store and leaves none there. The store does not
	// know who may read which of its blobs, and a manifest may list one of another's image.
	Private bool
}

// Add creates a template from an image and names it. It fetches only blobs that the store
// lacks. If it fails, it leaves only complete blobs, which the next Add reuses.
func (l *Store) Add(ctx context.Context, as string, img Image, opts AddOptions) (Template, error) {
	if !namePattern.MatchString(as) {
		return Template{}, fmt.Errorf("the name %q must match %s", as, namePattern)
	}
	if opts.MaxBytes <= 0 {
		opts.MaxBytes = DefaultMaxBytes
	}
	opts.Platform = platformOf(opts.Platform)
	origin, err := readManifest(img, opts.MaxBytes)
	if err != nil {
		return Template{}, fmt.Errorf("image %s: %w", img.Ref, err)
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
	a := &addRun{store: l, image: img, origin: origin, dir: dir, platform: opts.Platform, max: opts.MaxBytes,
		gauge: newGauge(opts.Progress), blobs: filepath.Join(l.dir, "blobs"), private: opts.Private, grow: opts.Grow}
	if a.grow == nil {
		a.grow = func(int64) error { return nil }
	}
	if a.private {
		a.blobs = filepath.Join(dir, "blobs")
		if err := os.Mkdir(a.blobs, 0o700); err != nil {
			return Template{}, fmt.Errorf("image %s: %w", img.Ref, err)
		}
	}
	t, err := a.run(ctx)
	if err != nil {
		return Template{}, fmt.Errorf("image %s: %w", img.Ref, err)
	}
	return l.install(ctx, name{name: as}, t, filepath.Join(dir, "template"))
}

// readManifest validates an image's manifest and returns the blobs it lists.
func readManifest(img Image, maxBytes int64) (Origin, error) {
	if err := CheckDocument(img.Manifest); err != nil {
		return Origin{}, fmt.Errorf("the manifest: %w", err)
	}
	m, err := v1.ParseManifest(bytes.NewReader(img.Manifest))
	if err != nil {
		return Origin{}, fmt.Errorf("parse manifest: %w", err)
	}
	m.MediaType = cmp.Or(m.MediaType, types.OCIManifestSchema1) // OCI makes it optional
	if m.MediaType != types.OCIManifestSchema1 && m.MediaType != types.DockerManifestSchema2 {
		return Origin{}, fmt.Errorf("the manifest has media type %.100q, which is not an image's", m.MediaType)
	}
	if len(m.Layers) == 0 || len(m.Layers) > maxLayers {
		return Origin{}, fmt.Errorf("%d layers; an image must have 1 to %d", len(m.Layers), maxLayers)
	}
	o := Origin{Ref: img.Ref, Digest: img.Digest,
		Manifest: Blob{string(m.MediaType), sumOf(img.Manifest), int64(len(img.Manifest))}}
	if o.Digest == "" {
		o.Digest = o.Manifest.Digest
	}
	total := int64(0)
	for i, d := range append([]v1.Descriptor{m.Config}, m.Layers...) {
		if !digestPattern.MatchString(d.Digest.String()) {
			return o, fmt.Errorf("%.100q is not a SHA-256 digest", d.Digest)
		}
		if total += d.Size; d.Size < 0 || d.Size > maxBytes || total > maxBytes {
			return o, fmt.Errorf("%w: its layers exceed %d bytes", ErrTooLarge, maxBytes)
		}
		if i == 0 && d.Size > MaxDocument {
			return o, fmt.Errorf("%w: its configuration exceeds %d bytes", ErrTooLarge, MaxDocument)
		}
		if i > 0 && (!isLayer(string(d.MediaType))) {
			return o, fmt.Errorf("a layer has media type %.100q, which is not a file system layer's", d.MediaType)
		}
		o.Blobs = append(o.Blobs, Blob{string(d.MediaType), d.Digest.String(), d.Size})
	}
	return o, nil
}

// CheckDocument returns an error for a manifest, an index or a configuration that must not be decoded because it
// would take too much memory.
func CheckDocument(text []byte) error {
	if len(text) > MaxDocument {
		return fmt.Errorf("%w: it exceeds %d bytes", ErrTooLarge, MaxDocument)
	}
	if _, err := jsonscan.Check(text, maxFields, maxNesting); err != nil {
		return fmt.Errorf("%w: %w", ErrTooLarge, err)
	}
	return nil
}

func isLayer(mediaType string) bool {
	return (strings.Contains(mediaType, "layer") || strings.Contains(mediaType, "rootfs")) &&
		!strings.Contains(mediaType, "encrypted")
}

// An addRun is one run of Add.
type addRun struct {
	store  *Store
	image  Image
	origin Origin
	dir    string // scratch directory

	platform string
	max      int64
	gauge    *gauge
	grow     func(bytes int64) error
	blobs    string // directory of the blobs: the store's, or one of this run
	private  bool
}

// run creates dir/template/rootfs and returns the template's metadata.
func (a *addRun) run(ctx context.Context) (Template, error) {
	if err := a.fetch(ctx); err != nil {
		return Template{}, err
	}
	config, err := a.config()
	if err != nil {
		return Template{}, err
	}
	root := filepath.Join(a.dir, "template", "rootfs")
	if err := os.MkdirAll(root, 0o755); err != nil {
		return Template{}, err
	}
	if err := a.unpack(ctx, root, config.RootFS.DiffIDs); err != nil {
		return Template{}, err
	}
	a.gauge.step(Finish, "reading the unpacked files", 0, 0)
	if err := fit(root, config.Config.User); err != nil {
		return Template{}, fmt.Errorf("prepare file system: %w", err)
	}
	return Template{CreatedAt: time.Now().UTC().Truncate(time.Second), Image: &a.origin,
		Config: Config{Env: usableEnv(config.Config.Env), User: config.Config.User,
			WorkingDir: config.Config.WorkingDir}}, nil
}

// fetch fetches the blobs that the store lacks.
func (a *addRun) fetch(ctx context.Context) error {
	m := a.origin.Manifest
	if err := a.writeBlob(ctx, m, strings.NewReader(string(a.image.Manifest)), nil); err != nil {
		return err
	}
	total := int64(0)
	missing := map[string]Blob{}
	for _, b := range a.origin.Blobs {
		if _, twice := missing[b.Digest]; !twice && (a.private || !a.store.hasBlob(b)) {
			missing[b.Digest] = b
			total += b.Size
		}
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(downloads)
	for _, b := range missing {
		g.Go(func() error { return a.fetchBlob(ctx, b, total) })
	}
	return g.Wait()
}

func (a *addRun) fetchBlob(ctx context.Context, b Blob, total int64) error {
	err := a.grow(b.Size)
	if err != nil {
		return err
	}
	var refused error
	for range attempts {
		got := 0
		err = func() error {
			content, err := a.image.Open(ctx, b)
			if err != nil {
				return err
			}
			defer content.Close()
			return a.writeBlob(ctx, b, content, func(n int) error {
				got += n
				a.gauge.add(Download, "fetching "+shortDigest(b.Digest), int64(n), total)
				refused = a.grow(0)
				return refused
			})
		}()
		if err == nil || refused != nil || ctx.Err() != nil {
			break
		}
		a.gauge.add(Download, "fetching again "+shortDigest(b.Digest), int64(-got), total)
	}
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// config returns the image's configuration.
func (a *addRun) config() (*v1.ConfigFile, error) {
	text, err := smallBlob(a.blobs, a.origin.Blobs[0])
	if err != nil {
		return nil, err
	}
	if err := CheckDocument(text); err != nil {
		return nil, fmt.Errorf("the configuration: %w", err)
	}
	c, err := v1.ParseConfigFile(bytes.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("parse configuration: %w", err)
	}
	if got := c.OS + "/" + c.Architecture; got != a.platform && !strings.HasPrefix(a.platform, got+"/") {
		return nil, fmt.Errorf("the image is for %.80q, not for %s", got, a.platform)
	}
	if got, want := len(c.RootFS.DiffIDs), len(a.origin.Blobs)-1; got != want {
		return nil, fmt.Errorf("the configuration lists %d layers, the manifest %d", got, want)
	}
	a.origin.Platform = c.OS + "/" + c.Architecture
	if c.Variant != "" {
		a.origin.Platform += "/" + c.Variant
	}
	return c, nil
}
