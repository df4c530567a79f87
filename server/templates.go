package server

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
	"github.com/berth-run/berth/sandbox/local"
	"github.com/berth-run/berth/server/config"
)

// Times for the removal of unused templates.
const (
	pruneInterval = time.Hour
	pruneGrace    = 24 * time.Hour   // after their last use
	holdGrace     = 10 * time.Minute // for a request to create its container
)

// templates holds the templates of containers. It holds locks on those in use, so that no other
// process removes them.
type templates struct {
	images *image.Store
	config *config.Config
	limits func(context.Context, berth.ProjectID) (berth.Limits, error)

	mu   sync.Mutex
	held map[string]heldTemplate // by digest

	scanned map[string]*image.Contents // of templates that an earlier version made, by digest

	build templateBuild
}

type heldTemplate struct {
	io.Closer
	requested time.Time
}

func newTemplates(images *image.Store, config *config.Config, limits func(context.Context,
	berth.ProjectID) (berth.Limits,
	error)) *templates {
	return &templates{images: images, config: config, limits: limits, held: map[string]heldTemplate{},
		scanned: map[string]*image.Contents{}}
}

// find returns and holds the template with a name or a digest. "" selects the default template.
func (t *templates) find(ref string) (container.Template, error) {
	found, err := t.images.Get(ref)
	if ref == "" {
		found, err = defaultTemplate(t.config, t.images)
	}
	if err == nil {
		err = t.hold(found.Digest)
	}
	if errors.Is(err, image.ErrNotFound) {
		if building := t.build.unavailable(); building != nil && (ref == "" || ref == image.Base().Name) {
			return container.Template{}, building
		}
		switch {
		case ref != "":
			return container.Template{}, templateNotFound("berth.template", ref, nil)
		case t.config.Driver == local.Name:
			return container.Template{}, nil // commands run in the root of this machine
		}
	}
	if err != nil {
		return container.Template{}, err
	}
	return container.Template{Template: templateOf(found), Env: found.Config.Env, Contents: t.contentsOf(found)}, nil
}

// contentsOf returns what a template contains, or nil if that cannot be found.
func (t *templates) contentsOf(found image.Template) *berth.TemplateContents {
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

// templateOf converts a template for drivers.
func templateOf(t image.Template) sandbox.Template {
	return sandbox.Template{Digest: t.Digest, Ref: t.Name, Path: t.Rootfs}
}

func (t *templates) hold(digest string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	h, ok := t.held[digest]
	if !ok {
		var err error
		if h.Closer, err = t.images.Hold(digest); err != nil {
			return err
		}
	}
	h.requested = time.Now()
	t.held[digest] = h
	return nil
}

// release releases templates that are neither used nor requested since a time.
func (t *templates) release(used map[string]bool, since time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	maps.DeleteFunc(t.held, func(digest string, h heldTemplate) bool {
		if used[digest] || h.requested.After(since) {
			return false
		}
		h.Close()
		return true
	})
}

// Close releases all templates.
func (t *templates) Close() { t.release(nil, time.Now()) }

// sweep removes templates and layers without references.
func (t *templates) sweep(ctx context.Context, referenced func(context.Context) (map[string]bool, error),
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
	ctx, cancel := context.WithTimeout(ctx, pruneInterval/2) // a build may block it; the next sweep can wait
	defer cancel()
	done, err := t.images.Prune(ctx, refs, pruneGrace)
	if len(done.Templates) > 0 || done.Blobs > 0 {
		log.Info("removed unused templates", "templates", done.Templates, "blobs", done.Blobs, "bytes", done.Bytes)
	}
	return err
}
