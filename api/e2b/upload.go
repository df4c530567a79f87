package e2b

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/exchange"
	"github.com/berth-run/berth/api/preview"
	"github.com/berth-run/berth/container/build"
	"github.com/berth-run/berth/files"
	"github.com/berth-run/berth/internal/conns"
)

// UploadPath is the prefix of the URLs to which clients upload the files of COPY steps:
// PROJECT/HASH/EXPIRES/TOKEN.
const UploadPath = "/e2b/uploads/"

const uploadLife = time.Hour // of such a URL

// uploadLink serves GET /templates/{template}/files/{hash}: whether the files of a COPY step are
// there, and where the client is to upload them.
func (h *templates) uploadLink(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	hash := r.PathValue("hash")
	if !build.IsFilesHash(hash) {
		return berth.Invalid("hash", "Invalid hash: expected 64 hexadecimal digits.")
	}
	if _, err := h.builds.Template(r.Context(), c.Project, r.PathValue("template")); err != nil {
		return err
	}
	known, err := h.builds.HasFiles(r.Context(), c.Project, hash)
	if err != nil {
		return err
	}
	what := fmt.Sprintf("%s/%s/%d", c.Project, hash, h.now().Add(uploadLife).Unix())
	return x.JSON(http.StatusCreated, struct {
		Present bool   `json:"present"`
		URL     string `json:"url"`
	}{known, preview.Origin(r) + UploadPath + what + "/" + h.tokens.give(uploadPurpose, what, c.Key)})
}

// uploader identifies the caller of PUT of a URL for uploads. The URL is the permission.
func (h *templates) uploader(_ *exchange.Exchange, r *http.Request) (v exchange.Visit, err error) {
	what, token, _ := cutLast(strings.TrimPrefix(r.URL.Path, UploadPath), "/")
	if _, ok := h.tokens.minted(uploadPurpose, what, token); !ok {
		return v, unauthorized("This URL is invalid.")
	}
	parts := strings.Split(what, "/") // of this server's making
	p, hash := berth.ProjectID(parts[0]), parts[1]
	key, ok, err := h.tokens.holder(r.Context(), uploadPurpose, p, what, token)
	if err != nil {
		return v, err
	}
	if !ok {
		return v, unauthorized("The key that created this URL is not valid any more.")
	}
	if expires, err := strconv.ParseInt(parts[2], 10, 64); err != nil || expires <= h.now().Unix() {
		return v, unauthorized("This URL has expired.")
	}
	conns.Known(r.Context())
	v = exchange.Visit{Caller: berth.Caller{Project: p, Key: key}, Traits: exchange.StoresAsItComes}
	v.Handle = func(x *exchange.Exchange, r *http.Request, _ berth.Caller) error { return h.upload(x, r, p, hash) }
	return v, nil
}

// upload stores the files of COPY steps.
func (h *templates) upload(x *exchange.Exchange, r *http.Request, p berth.ProjectID, hash string) error {
	made, err := h.files.Create(r.Context(), p, files.CreateRequest{Filename: "template-" + hash[:12] + ".tar.gz",
		Purpose: "user_data", MaxBytes: h.maxUpload}, r.Body)
	if err != nil {
		return err
	}
	if err := h.builds.KeepFiles(r.Context(), p, hash, made.ID); err != nil {
		return errors.Join(err, h.files.Delete(context.WithoutCancel(r.Context()), p, made.ID))
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
