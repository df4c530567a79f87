package e2b

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/exchange"
	"github.com/berth-run/berth/api/preview"
	"github.com/berth-run/berth/files"
	"github.com/berth-run/berth/internal/conns"
	"github.com/berth-run/berth/store"
)

// UploadPath is the prefix of the URLs to which clients upload the files of COPY steps:
// PROJECT/HASH/EXPIRES/TOKEN.
const UploadPath = "/e2b/uploads/"

const (
	uploadLife = time.Hour      // of such a URL
	cacheLife  = 24 * time.Hour // of uploaded files and of cached steps, since their last use
)

// filesHash matches the hash that clients compute of the files of a COPY step.
var filesHash = regexp.MustCompile(`^[0-9a-f]{64}$`)

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
func (d *Door) cachedResult(ctx context.Context, p berth.ProjectID, key store.ObjectKey) (*cached, error) {
	o, err := d.Objects.UpdateObject(ctx, p, key, func(o *store.Object) error {
		o.ExpiresAt = d.Now().Add(cacheLife).Unix()
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
func (d *Door) cache(ctx context.Context, p berth.ProjectID, key store.ObjectKey, c cached) error {
	if err := d.uncache(ctx, p, key); err != nil {
		return err
	}
	body, err := json.Marshal(c)
	if err != nil {
		return fmt.Errorf("encode cached result: %w", err)
	}
	err = d.Objects.CreateObjects(ctx, p, &store.Object{ObjectKey: key, CreatedAt: d.Now().Unix(),
		ExpiresAt: d.Now().Add(cacheLife).Unix(), Body: body})
	if err != nil {
		return fmt.Errorf("save cached result: %w", err)
	}
	return nil
}

// uncache deletes a cached result with its content.
func (d *Door) uncache(ctx context.Context, p berth.ProjectID, key store.ObjectKey) error {
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
func (d *Door) expireCache(ctx context.Context) {
	refs, err := d.Objects.ExpiredObjects(ctx, store.KindE2BCache, d.Now(), 100)
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

// uploadLink serves GET /templates/{template}/files/{hash}: whether the files of a COPY step are
// there, and where the client is to upload them.
func (d *Door) uploadLink(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	hash := r.PathValue("hash")
	if !filesHash.MatchString(hash) {
		return berth.Invalid("hash", "Invalid hash: expected 64 hexadecimal digits.")
	}
	if _, err := d.mustTemplate(r.Context(), c.Project, r.PathValue("template")); err != nil {
		return err
	}
	known, err := d.cachedResult(r.Context(), c.Project, cacheKey("files", hash))
	if err != nil {
		return err
	}
	what := fmt.Sprintf("%s/%s/%d", c.Project, hash, d.Now().Add(uploadLife).Unix())
	return x.JSON(http.StatusCreated, struct {
		Present bool   `json:"present"`
		URL     string `json:"url"`
	}{known != nil, preview.Origin(r) + UploadPath + what + "/" + d.give(uploadPurpose, what, c.Key)})
}

// upload serves PUT of a URL for uploads. The URL is the permission.
func (d *Door) upload(x *exchange.Exchange, r *http.Request) error {
	what, token, _ := cutLast(strings.TrimPrefix(r.URL.Path, UploadPath), "/")
	if _, ok := d.minted(uploadPurpose, what, token); !ok {
		return unauthorized("This URL is invalid.")
	}
	parts := strings.Split(what, "/") // of this server's making
	p, hash := berth.ProjectID(parts[0]), parts[1]
	key, ok, err := d.holder(r.Context(), uploadPurpose, p, what, token)
	if err != nil {
		return err
	}
	if !ok {
		return unauthorized("The key that created this URL is not valid any more.")
	}
	if expires, err := strconv.ParseInt(parts[2], 10, 64); err != nil || expires <= d.Now().Unix() {
		return unauthorized("This URL has expired.")
	}
	conns.Known(r.Context())
	if err := x.CountWrite(r.Context(), p); err != nil {
		return err
	}
	r, release := x.WhileValid(r, berth.Caller{Project: p, Key: key})
	defer release()
	x.SetCaller(berth.Caller{Project: p})
	if err := d.Check(r.Context(), p); err != nil {
		return err
	}
	made, err := d.Files.Create(r.Context(), p, files.CreateRequest{Filename: "template-" + hash[:12] + ".tar.gz",
		Purpose: "user_data", MaxBytes: d.MaxUpload}, r.Body)
	if err != nil {
		return err
	}
	if err := d.cache(r.Context(), p, cacheKey("files", hash), cached{File: made.ID}); err != nil {
		return errors.Join(err, d.Files.Delete(context.WithoutCancel(r.Context()), p, made.ID))
	}
	x.WriteHeader(http.StatusOK)
	return nil
}

// cutLast cuts a text at the last separator.
func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}
