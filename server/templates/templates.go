// Package templates has the templates of containers of a server: which one a project may use, which is the default one,
// how it comes about, and when unused ones are removed.
package templates

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/container"
	"github.com/berth-run/berth/image"
	"github.com/berth-run/berth/sandbox"
	"github.com/berth-run/berth/server/config"
)

// Times for the removal of unused templates.
const (
	PruneInterval = time.Hour
	pruneGrace    = 24 * time.Hour   // after their last use
	holdGrace     = 10 * time.Minute // for a request to create its container
)

// Catalog holds the templates of containers. It holds locks on those in use, so that no other
// process removes them.
type Catalog struct {
	Images *image.Store
	config *config.Config
	limits func(context.Context, berth.ProjectID) (berth.Limits, error)

	mu   sync.Mutex
	held map[string]heldTemplate // by digest

	scanned map[string]*image.Contents // of templates that an earlier version made, by digest

	Build Build
}

type heldTemplate struct {
	io.Closer
	requested time.Time // by a request that may create a container; zero if there is none
	used      time.Time // last, by a request or a build
	pins      int       // of builds that use it
}

// New returns the catalogue of the templates in images. limits returns the limits of a project.
func New(images *image.Store, config *config.Config,
	limits func(context.Context, berth.ProjectID) (berth.Limits, error)) *Catalog {
	return &Catalog{Images: images, config: config, limits: limits, held: map[string]heldTemplate{},
		scanned: map[string]*image.Contents{}}
}

// Find returns and holds the template with a name or a digest. "" selects the default template.
func (t *Catalog) Find(ref string) (container.Template, error) {
	found, err := t.Images.Get(ref)
	if ref == "" {
		found, err = Default(t.config, t.Images)
	}
	if err == nil {
		err = t.hold(found.Digest)
	}
	if errors.Is(err, image.ErrNotFound) {
		if building := t.Build.Unavailable(); building != nil && (ref == "" || ref == image.Base().Name) {
			return container.Template{}, building
		}
		switch {
		case ref != "":
			return container.Template{}, notFound("berth.template", ref, nil)
		case t.config.Driver == config.UnsafeLocal:
			return container.Template{}, nil // commands run in the root of this machine
		}
	}
	if err != nil {
		return container.Template{}, err
	}
	return container.Template{Template: ForDriver(found), Env: found.Config.Env, Contents: t.contentsOf(found)}, nil
}

// contentsOf returns what a template contains, or nil if that cannot be found.
func (t *Catalog) contentsOf(found image.Template) *berth.TemplateContents {
	c := found.Contents
	if c == nil { // made by an earlier version
		t.mu.Lock()
		defer t.mu.Unlock()
		if c = t.scanned[found.Digest]; c == nil {
			scanned, err := found.FindContents()
			if err != nil {
				return nil
			}
			c = &scanned
			t.scanned[found.Digest] = c
		}
	}
	return &berth.TemplateContents{Programs: c.Programs, Python: c.Python, Kernels: c.Kernels}
}

// ForDriver converts a template for drivers.
func ForDriver(t image.Template) sandbox.Template {
	return sandbox.Template{Digest: t.Digest, Ref: t.Name, Path: t.Rootfs}
}

func (t *Catalog) hold(digest string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	h, err := t.holdLocked(digest)
	if err != nil {
		return err
	}
	h.requested = time.Now()
	h.used = h.requested
	t.held[digest] = h
	return nil
}

// holdLocked returns the entry of a template, which it holds. t.mu is held.
func (t *Catalog) holdLocked(digest string) (heldTemplate, error) {
	h, ok := t.held[digest]
	if ok {
		return h, nil
	}
	held, err := t.Images.Hold(digest)
	return heldTemplate{Closer: held}, err
}

// release releases templates that are neither used nor requested since a time.
func (t *Catalog) release(used map[string]bool, since time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	maps.DeleteFunc(t.held, func(digest string, h heldTemplate) bool {
		if used[digest] || h.pins > 0 || h.requested.After(since) {
			return false
		}
		h.Close()
		return true
	})
}

// Close releases all templates.
func (t *Catalog) Close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for digest, h := range t.held {
		h.Close()
		delete(t.held, digest)
	}
}

// Sweep removes templates and layers without references.
func (t *Catalog) Sweep(ctx context.Context, referenced func(context.Context) (map[string]bool, error),
	inUse map[string]bool, now time.Time, log *slog.Logger) error {
	t.release(inUse, now.Add(-holdGrace))
	refs, err := referenced(ctx)
	if err != nil {
		return err
	}
	used := map[string]bool{}
	maps.Copy(used, refs)
	maps.Copy(used, inUse)
	if err := t.dropPulled(used, now.Add(-pruneGrace)); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, PruneInterval/2) // a build may block it; the next sweep can wait
	defer cancel()
	done, err := t.Images.Prune(ctx, refs, pruneGrace)
	if len(done.Templates) > 0 || done.Blobs > 0 {
		log.Info("removed unused templates", "templates", done.Templates, "blobs", done.Blobs, "bytes", done.Bytes)
	}
	return err
}
