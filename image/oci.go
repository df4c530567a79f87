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
)

// Bounds on an image.
const (
	// DefaultMaxBytes is how much an image may hold unpacked if nobody says.
	DefaultMaxBytes = 32 << 30

	maxDocument = 8 << 20 // bytes of a manifest or a configuration
	maxLayers   = 512
	downloads   = 3 // blobs at once
	attempts    = 3 // for each
)

// An Image is an image from elsewhere that a template can be made of, as OCI's
// image specification or Docker's says. Nothing of it is trusted.
type Image struct {
	Ref      string // what it is called where it is from
	Digest   string // of what Ref stands for; of the manifest, or of an index that has it
	Manifest []byte // of the image for one platform

	// Open opens one of the blobs that the manifest names. It may be called from
	// several goroutines.
	Open func(ctx context.Context, b Blob) (io.ReadCloser, error)
}

// An Origin is the image that a template was last made of.
type Origin struct {
	Ref      string `json:"ref"`
	Digest   string `json:"digest"`   // of what Ref stood for
	Manifest Blob   `json:"manifest"` // of this platform's image
	Platform string `json:"platform"` // such as linux/amd64
	Blobs    []Blob `json:"blobs"`    // its configuration, then its layers from the lowest
}

// AddOptions say how Add makes a template. Zero values are the defaults.
type AddOptions struct {
	Platform string         // that the image must be for, such as linux/arm64; default this machine's
	MaxBytes int64          // that the image may hold unpacked; default DefaultMaxBytes
	Progress func(Progress) // called one at a time
}

// Add makes a template of an image and gives it a name. Blobs that the library has
// are not fetched again; those that an interrupted Add has fetched are kept for the
// next one. Otherwise nothing is left of an Add that fails.
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
	a := &adding{library: l, image: img, origin: origin, dir: dir, platform: opts.Platform, max: opts.MaxBytes, gauge: newGauge(opts.Progress)}
	t, err := a.run(ctx)
	if err != nil {
		return Template{}, fmt.Errorf("image %s: %w", img.Ref, err)
	}
	return l.keep(ctx, name{name: as}, t, filepath.Join(dir, "template"))
}

// readManifest checks an image's manifest and returns what it names.
func readManifest(img Image, most int64) (Origin, error) {
	if len(img.Manifest) > maxDocument {
		return Origin{}, fmt.Errorf("its manifest has more than %d bytes", maxDocument)
	}
	m, err := v1.ParseManifest(bytes.NewReader(img.Manifest))
	if err != nil {
		return Origin{}, fmt.Errorf("its manifest cannot be read: %w", err)
	}
	m.MediaType = cmp.Or(m.MediaType, types.OCIManifestSchema1) // OCI makes it optional
	if m.MediaType != types.OCIManifestSchema1 && m.MediaType != types.DockerManifestSchema2 {
		return Origin{}, fmt.Errorf("its manifest is a %.100q, not one of an image", m.MediaType)
	}
	if len(m.Layers) == 0 || len(m.Layers) > maxLayers {
		return Origin{}, fmt.Errorf("it has %d layers, not 1 to %d", len(m.Layers), maxLayers)
	}
	o := Origin{Ref: img.Ref, Digest: img.Digest,
		Manifest: Blob{string(m.MediaType), sumOf(img.Manifest), int64(len(img.Manifest))}}
	if o.Digest == "" {
		o.Digest = o.Manifest.Digest
	}
	total := int64(0)
	for i, d := range append([]v1.Descriptor{m.Config}, m.Layers...) {
		if !digestPattern.MatchString(d.Digest.String()) {
			return o, fmt.Errorf("%.100q is no SHA-256 digest", d.Digest)
		}
		if total += d.Size; d.Size < 0 || d.Size > most || total > most {
			return o, fmt.Errorf("%w: its layers have more than %d bytes", ErrTooLarge, most)
		}
		if i == 0 && d.Size > maxDocument {
			return o, fmt.Errorf("%w: its configuration has more than %d bytes", ErrTooLarge, maxDocument)
		}
		if i > 0 && (!isLayer(string(d.MediaType))) {
			return o, fmt.Errorf("it has a layer of type %.100q, which is not one of a file system", d.MediaType)
		}
		o.Blobs = append(o.Blobs, Blob{string(d.MediaType), d.Digest.String(), d.Size})
	}
	return o, nil
}

func isLayer(mediaType string) bool {
	return (strings.Contains(mediaType, "layer") || strings.Contains(mediaType, "rootfs")) && !strings.Contains(mediaType, "encrypted")
}

// adding is one run of Add.
type adding struct {
	library *Store
	image   Image
	origin  Origin
	dir     string // of everything that is being made

	platform string
	max      int64
	gauge    *gauge
}

// run makes dir/template/rootfs and returns what is to be known of it.
func (a *adding) run(ctx context.Context) (Template, error) {
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
	a.gauge.step(Finish, "reading what was unpacked", 0, 0)
	if err := fit(root, config.Config.User); err != nil {
		return Template{}, fmt.Errorf("its files, all layers applied: %w", err)
	}
	return Template{CreatedAt: time.Now().UTC().Truncate(time.Second), Image: &a.origin,
		Config: Config{Env: usableEnv(config.Config.Env), User: config.Config.User, WorkingDir: config.Config.WorkingDir}}, nil
}

// fetch gets the blobs that the library has not.
func (a *adding) fetch(ctx context.Context) error {
	m := a.origin.Manifest
	if err := a.library.takeBlob(ctx, a.dir, m, strings.NewReader(string(a.image.Manifest)), nil); err != nil {
		return err
	}
	total := int64(0)
	missing := map[string]Blob{}
	for _, b := range a.origin.Blobs {
		if _, twice := missing[b.Digest]; !twice && !a.library.hasBlob(b) {
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

func (a *adding) fetchBlob(ctx context.Context, b Blob, total int64) error {
	var err error
	for range attempts {
		got := 0
		err = func() error {
			content, err := a.image.Open(ctx, b)
			if err != nil {
				return err
			}
			defer content.Close()
			return a.library.takeBlob(ctx, a.dir, b, content, func(n int) {
				got += n
				a.gauge.add(Download, "fetching "+shortDigest(b.Digest), int64(n), total)
			})
		}()
		if err == nil || ctx.Err() != nil {
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
func (a *adding) config() (*v1.ConfigFile, error) {
	text, err := a.library.smallBlob(a.origin.Blobs[0])
	if err != nil {
		return nil, err
	}
	c, err := v1.ParseConfigFile(bytes.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("its configuration cannot be read: %w", err)
	}
	if got := c.OS + "/" + c.Architecture; got != a.platform && !strings.HasPrefix(a.platform, got+"/") {
		return nil, fmt.Errorf("it is for %.80q, not for %s", got, a.platform)
	}
	if got, want := len(c.RootFS.DiffIDs), len(a.origin.Blobs)-1; got != want {
		return nil, fmt.Errorf("its configuration speaks of %d layers, its manifest of %d", got, want)
	}
	a.origin.Platform = c.OS + "/" + c.Architecture
	if c.Variant != "" {
		a.origin.Platform += "/" + c.Variant
	}
	return c, nil
}
