package templates

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/container/build"
	"github.com/berth-run/berth/image"
	"github.com/berth-run/berth/server/state"
)

// requestGrace is how long an image stays for a request that named it, until its container is created.
const requestGrace = time.Minute

// Spares implements build.Images.
func (pl *Puller) Spares(ctx context.Context, p berth.ProjectID) ([]build.Spare, error) {
	t := pl.Templates
	all, err := t.Images.List()
	if err != nil {
		return nil, fmt.Errorf("list images: %w", err)
	}
	prefix := ""
	if p != "" {
		prefix = state.PulledPrefix(p)
	}
	var spares []build.Spare
	var used map[string]bool
	for _, one := range all {
		if !pulledName.MatchString(one.Name) || !strings.HasPrefix(one.Name, prefix) {
			continue
		}
		if used == nil {
			if used, err = pl.InUse(ctx); err != nil {
				return nil, err
			}
		}
		if used[one.Digest] {
			continue
		}
		spares = append(spares, build.Spare{What: "image " + one.Name, Bytes: one.Bytes,
			UsedAt: t.lastUsed(one.Digest), Remove: func(context.Context) error {
				err := t.drop(one, used, time.Now())
				if errors.Is(err, image.ErrInUse) {
					return build.ErrInUse
				}
				return err
			}})
	}
	return spares, nil
}

// pin keeps a template from being removed until release is called.
func (t *Catalog) pin(digest string) (release func(), err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	h, err := t.holdLocked(digest)
	if err != nil {
		return nil, err
	}
	h.pins++
	h.used = time.Now()
	t.held[digest] = h
	return sync.OnceFunc(func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if h, ok := t.held[digest]; ok {
			h.pins--
			t.held[digest] = h
		}
	}), nil
}

// lastUsed returns when a template was last used.
func (t *Catalog) lastUsed(digest string) time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	last := t.Images.LastUsed(digest)
	if h := t.held[digest]; h.used.After(last) {
		last = h.used
	}
	return last
}

// drop removes the name of a pulled image, and the image with its last name. used are the digests that containers and
// snapshots refer to.
func (t *Catalog) drop(one image.Template, used map[string]bool, now time.Time) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if h, ok := t.held[one.Digest]; ok {
		if h.pins > 0 || now.Sub(h.requested) < requestGrace {
			return image.ErrInUse
		}
		h.Close()
		delete(t.held, one.Digest)
	}
	if err := t.Images.Remove(one.Name, used); err != nil && !errors.Is(err, image.ErrNotFound) {
		return fmt.Errorf("remove image %s: %w", one.Name, err)
	}
	return nil
}

// dropPulled removes pulled images that no container and no snapshot has used for a while.
func (t *Catalog) dropPulled(used map[string]bool, before time.Time) error {
	all, err := t.Images.List()
	for _, one := range all {
		if !pulledName.MatchString(one.Name) || used[one.Digest] || t.Images.LastUsed(one.Digest).After(before) {
			continue
		}
		if err := t.drop(one, used, time.Now()); err != nil && !errors.Is(err, image.ErrInUse) {
			return err
		}
	}
	return err
}
