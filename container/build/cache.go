package build

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
)

const cacheLife = 24 * time.Hour // of uploaded files and of cached steps, since their last use

// filesHash matches the hash that clients compute of the files of a COPY step.
var filesHash = regexp.MustCompile(`^[0-9a-f]{64}$`)

// IsFilesHash reports whether a text has the form of a hash of the files of a COPY step.
func IsFilesHash(text string) bool { return filesHash.MatchString(text) }

// A cached is the result of a step, or the files of one, for builds that come later.
type cached struct {
	File     berth.FileID     `json:"file,omitempty"`
	Snapshot berth.SnapshotID `json:"snapshot,omitempty"`
	State    *stepState       `json:"state,omitempty"` // after the step
}

// cacheKey returns the key of a cached result.
func cacheKey(kind, of string) store.ObjectKey {
	sum := sha256.Sum256([]byte(kind + "\x00" + of))
	return store.ObjectKey{Kind: store.KindE2BCache, ID: "e2bc_" + hex.EncodeToString(sum[:24])}
}

// cachedResult returns a cached result and extends its life, or nil.
func (d *Service) cachedResult(ctx context.Context, p berth.ProjectID, key store.ObjectKey) (*cached, error) {
	o, err := d.Objects.UpdateObject(ctx, p, key, func(o *store.Object) error {
		o.ExpiresAt = d.Clock.Now().Add(cacheLife).Unix()
		return nil
	})
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read cached result: %w", err)
	}
	return decodeInto[cached](o)
}

// cache saves a result in place of any earlier one.
func (d *Service) cache(ctx context.Context, p berth.ProjectID, key store.ObjectKey, c cached) error {
	if err := d.uncache(ctx, p, key); err != nil {
		return err
	}
	body, err := json.Marshal(c)
	if err != nil {
		return fmt.Errorf("encode cached result: %w", err)
	}
	err = d.Objects.CreateObjects(ctx, p, &store.Object{ObjectKey: key, CreatedAt: d.Clock.Now().Unix(),
		ExpiresAt: d.Clock.Now().Add(cacheLife).Unix(), Body: body})
	if err != nil {
		return fmt.Errorf("save cached result: %w", err)
	}
	return nil
}

// uncache deletes a cached result with its content.
func (d *Service) uncache(ctx context.Context, p berth.ProjectID, key store.ObjectKey) error {
	o, err := d.Objects.GetObject(ctx, p, key)
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read cached result: %w", err)
	}
	c, err := decodeInto[cached](o)
	if err != nil {
		return err
	}
	if c.Snapshot != "" {
		if err := d.Snapshots.Delete(ctx, p, c.Snapshot); err != nil && berth.ErrorCode(err) != berth.CodeNotFound {
			return err
		}
	}
	if c.File != "" {
		if err := d.Files.Delete(ctx, p, c.File); err != nil && berth.ErrorCode(err) != berth.CodeNotFound {
			return err
		}
	}
	if err := d.Objects.DeleteObject(ctx, p, key); err != nil && !errors.Is(err, store.ErrNotFound) {
		return fmt.Errorf("delete cached result: %w", err)
	}
	return nil
}

// expireCache deletes the cached results that no build has used lately.
func (d *Service) expireCache(ctx context.Context) {
	refs, err := d.Objects.ExpiredObjects(ctx, store.KindE2BCache, d.Clock.Now(), 100)
	for _, ref := range refs {
		if err != nil {
			break
		}
		err = d.uncache(ctx, ref.Project, ref.ObjectKey)
	}
	if err != nil && ctx.Err() == nil {
		d.Log.Error("failed to delete cached results of template builds; will retry", "err", err)
	}
}

// HasFiles reports whether the files of a COPY step were uploaded.
func (d *Service) HasFiles(ctx context.Context, p berth.ProjectID, hash string) (bool, error) {
	c, err := d.cachedResult(ctx, p, cacheKey("files", hash))
	return c != nil, err
}

// KeepFiles makes an uploaded file the files of the COPY steps with a hash.
func (d *Service) KeepFiles(ctx context.Context, p berth.ProjectID, hash string, file berth.FileID) error {
	return d.cache(ctx, p, cacheKey("files", hash), cached{File: file})
}
